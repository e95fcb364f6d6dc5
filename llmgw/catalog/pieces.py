"""The sections of docs/catalog.md: what each is called, and a piece of a file that shows it."""

from __future__ import annotations

HEADINGS = {
    "model": "A model",
    "source": "`source` of a model",
    "adapter": "One of the `adapters` of a source",
    "external": "`external` of a model",
    "profile": "One of the `profiles` of a model",
    "gpu": "`gpu` of a profile",
    "speculative": "`speculative` of a profile",
    "scaling": "`scaling` of a model",
    "target": "`target` of scaling",
    "schedule entry": "One entry of the `schedule` of scaling",
    "health": "`health` of a model",
    "rollout": "`rollout` of a model",
    "canary": "`canary` of a rollout",
    "routing": "`routing` of a model",
    "queue": "`queue` of routing",
    "time limits": "`time_limits` of routing",
    "fallback": "One of the `fallbacks` of routing",
    "parameters": "`parameters` of routing",
    "access": "`access` of a model",
    "cost": "`cost` of access",
    "server.yaml": "server.yaml",
    "node": "One of the `nodes`",
    "node engine": "One of the `engines` of a node",
    "ssh": "`ssh` of a node",
    "caller": "One of the `gateways` or `operators`",
    "mirror": "`mirror` of the fleet",
    "card": "One of the `cards` of the fleet",
    "policy": "`policy` of the fleet",
    "quota": "One of the `quotas` of the policy",
    "engine build": "One of the `engines` of the fleet",
    "notification": "One of the `notifications`",
    "freeze window": "One of the windows of `freeze`",
    "client key": "A client key",
    "limits": "`limits` of a key",
    "budget": "`budget` of a key",
}
"""By the title of a type, in the order of the page."""

EXAMPLES = {
    "model": """\
name: coder
description: Code in any language.
owner: team-code
license: Apache-2.0
source: {from: https://models.example.com/coder.gguf, version: 2026-11}
context_length: 16384
profiles:
  - {name: cpu, engine: llamacpp, replicas: 1, memory_gib: 12}""",
    "source": """\
source:
  from: hf://Qwen/Qwen3-8B-GGUF@6c0f6d4b2e1a90817263544536271809aabbccdd/Qwen3-8B-Q4_K_M.gguf
  version: 2026-11""",
    "adapter": """\
source:
  from: https://models.example.com/base.gguf
  version: v1
  adapters:
    - {name: support, source: https://models.example.com/support-lora.gguf, scale: 0.8}""",
    "external": """\
name: large
context_length: 200000
external: {base_url: https://api.example.com/v1, key_ref: example-key, served_name: large-2026}""",
    "profile": """\
profiles:
  - name: gpu
    engine: llamacpp
    gpu: {class: l40s-48g, count: 2}
    replicas: 7
    priority: 200
    parallel: 8
    memory_gib: 4
    kv_type_k: q8_0
    kv_type_v: q8_0
    flash_attention: on""",
    "gpu": "gpu: {class: l40s-48g, count: 2}",
    "speculative": "speculative: {method: draft, tokens: 5}",
    "scaling": """\
scaling: {min: 1, max: 6, idle_timeout: 15m}""",
    "target": """\
scaling: {max: 6, target: {slots: 0.7, queue: 2}}""",
    "schedule entry": """\
scaling:
  min: 1
  max: 8
  schedule:
    - {cron: "0 7 * * 1-5", time_zone: Europe/Berlin, min: 4}
    - {cron: "0 19 * * *", time_zone: Europe/Berlin, min: 1}""",
    "health": "health: {no_progress_timeout: 5m}",
    "rollout": "rollout: {strategy: surge, max_surge: 2}",
    "canary": "rollout: {canary: {weight: 10, duration: 30m}}",
    "routing": """\
routing:
  retries: 1
  queue: {size: 200, max_wait: 2m}""",
    "queue": "routing: {queue: {size: 200, max_wait: 2m}}",
    "time limits": "routing: {time_limits: {first_token: 30s, whole: 10m}}",
    "fallback": """\
routing:
  fallbacks:
    - {on: [full, unavailable], to: coder-small}""",
    "parameters": "routing: {parameters: {strip: [logit_bias], set: {temperature: 0.2}}}",
    "access": "access: {allow: [helpdesk, research]}",
    "cost": "access: {cost: {input: 0.2, output: 0.6}}",
    "server.yaml": """\
schema: 1
cluster: lab
nodes: [{name: n1, address: 10.0.0.5}]
defaults:
  owner: team-assist
  profile: {start_timeout: 15m}
blocks:
  small: {class: opportunistic, profile: {cpu_cores: 2}}""",
    "node": "nodes: [{name: n1, address: 10.0.0.5, labels: {room: basement}}]",
    "node engine": "nodes: [{name: n1, address: 10.0.0.5, engines: [{name: llamacpp, version: b11549}]}]",
    "ssh": "nodes: [{name: n1, address: 10.0.0.5, ssh: {user: llm, key_ref: install}}]",
    "caller": "gateways: [{name: front}]",
    "mirror": "mirror: {base: http://10.0.0.2:8081, api: http://10.0.0.2:8082, retain: 14d}",
    "card": "cards: [{name: big, class: l40s-48g, count: 8}]",
    "policy": "policy: {max_removals: 2, required: [owner, license], licenses: [Apache-2.0, MIT]}",
    "quota": "policy: {quotas: [{owner: research, cards: 4}]}",
    "engine build": """\
engines:
  - name: llamacpp
    version: b11549
    backend: cuda
    from: https://mirror.example.com/llama-b11549-cuda.tar.gz
    sha256: 7a1e5c3b9d8f60214365a7c9ebfd102132435465768798a9babcdcedfe0f1021""",
    "notification": "notifications: [{name: ops, url_ref: slack-url, on: [node_silent, parked], for: 10m}]",
    "freeze window": 'freeze: [{name: weekend, cron: "0 18 * * 5", time_zone: Europe/Berlin, duration: 60h}]',
    "client key": """\
name: helpdesk
sha256: 7a1e5c3b9d8f60214365a7c9ebfd102132435465768798a9babcdcedfe0f1021
models: [coder]""",
    "limits": "limits: {rpm: 60, concurrency: 4}",
    "budget": "budget: {amount: 50, period: month}",
}
"""By the title of a type: a piece of a file that uses it. A test reads each with the type."""
