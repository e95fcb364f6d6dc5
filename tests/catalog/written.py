"""A valid model, server and key as plain values, and ways to write them."""

from __future__ import annotations

import copy
import json
from typing import Any

MODEL: dict[str, Any] = {
    "name": "coder",
    "description": "Code in any language.",
    "aliases": ["code"],
    "owner": "team-code",
    "kind": "chat",
    "class": "standard",
    "state": "running",
    "source": {"from": "https://example.com/coder.gguf", "version": "2026-11", "sha256": "ab" * 32},
    "context_length": 4096,
    "max_output": 1024,
    "profiles": [
        {
            "name": "gpu",
            "engine": "llamacpp",
            "gpu": {"class": "l40s-48g", "count": 1},
            "replicas": 2,
            "priority": 200,
            "weight": 2,
            "parallel": 4,
            "context": 16384,
            "cpu_cores": 2,
            "threads": 2,
            "memory_gib": 4.5,
            "node_selector": {"room": "basement"},
            "args": ["--flash-attn", "on"],
            "start_timeout": "15m",
            "drain_timeout": 90,
        },
        {"name": "cpu", "engine": "llamacpp", "replicas": 1, "memory_gib": 8},
    ],
}
"""With the fields that most models have. `WIDE` has the others."""

WIDE: dict[str, Any] = {
    "name": "wide",
    "extends": "small",
    "tags": ["code", "large"],
    "license": "Apache-2.0",
    "capabilities": ["json", "tools"],
    "unlisted": True,
    "replaced_by": "wide",
    "protect": True,
    "source": {
        "from": "hf://Qwen/Qwen3-8B-GGUF@main/*Q4_K_M*.gguf",
        "version": "v1",
        "checksums": {"a.gguf": "ab" * 32},
        "revision": "main",
        "files": ["*.gguf"],
        "ignore": ["*.md"],
        "format": "gguf",
        "mmproj": "mmproj.gguf",
        "draft": "hf://Qwen/Qwen3-0.6B-GGUF/*Q8_0*.gguf",
        "chat_template": "chat.jinja",
        "adapters": [{"name": "support", "source": "https://example.com/lora.gguf", "scale": 0.5}],
        "token_ref": "hub-token",
        "prefetch": True,
        "retain": "30d",
    },
    "external": {"base_url": "https://api.example.com/v1", "key_ref": "k", "served_name": "x", "timeout": "2m"},
    "context_length": 4096,
    "profiles": [
        {
            "name": "gpu",
            "engine": "llamacpp",
            "engine_version": "b11549",
            "binary": "/opt/llama-server",
            "command": ["serve", "--port", "{port}"],
            "gpu": {
                "class": "l40s-48g",
                "count": 2,
                "vendor": "nvidia",
                "name": "L40S",
                "memory": "40GB..",
                "compute_capability": "8.0..9.0",
                "slice": "1g.10gb",
            },
            "spill": False,
            "memory_gib": "4.5GiB",
            "memory_claim": "measured",
            "disk": "20GiB",
            "anti_affinity": ["other"],
            "placement": "binpack",
            "keep_within": "rack",
            "tp": 2,
            "pp": 1,
            "kv_type_k": "q8_0",
            "kv_type_v": "q8_0",
            "gpu_layers": 40,
            "tensor_split": [3, 1],
            "cpu_moe": 2,
            "flash_attention": "on",
            "mmap": False,
            "batch": 512,
            "utilisation": 0.9,
            "speculative": {"method": "ngram", "tokens": 5, "min_probability": 0.5},
            "env": {"A": "1"},
            "env_from": {"B": "secret"},
            "start_timeout": "auto",
            "min_tps": 5,
            "restart": "again",
        }
    ],
    "scaling": {
        "min": 0,
        "max": 4,
        "target": {"concurrency": 4, "slots": 0.5, "queue": 2, "rps": 3, "kv": 0.9},
        "window": "30s",
        "up_delay": "5s",
        "down_delay": "5m",
        "idle_timeout": "20m",
        "schedule": [{"cron": "0 7 * * 1-5", "time_zone": "Europe/Berlin", "min": 2, "max": 8}],
        "warm": 1,
        "max_cold_wait": "2m",
    },
    "class": "standard",
    "health": {
        "path": "/healthz",
        "inference": False,
        "interval": 10,
        "timeout": 5,
        "failures": 2,
        "no_progress_timeout": "5m",
        "expect_gpu": False,
    },
    "rollout": {
        "strategy": "surge",
        "max_surge": 2,
        "max_unavailable": 1,
        "auto_return": False,
        "canary": {"weight": 10, "duration": "30m"},
        "freeze": True,
    },
    "routing": {
        "strategy": "prefix",
        "queue": {"size": 10, "max_wait": "1m"},
        "time_limits": {"first_token": 20, "between_tokens": 30, "whole": "20m"},
        "retries": 1,
        "fallbacks": [{"on": ["full", "timeout"], "to": "coder"}],
        "parameters": {"strip": ["logit_bias"], "set": {"temperature": 0.2}},
        "concurrency": 8,
        "loading_feedback": True,
    },
    "access": {
        "allow": ["ana"],
        "deny": ["ben"],
        "visibility": "everyone",
        "preemption": False,
        "cost": {"input": 1, "cached_input": 0.1, "output": 2},
    },
}
"""With the fields that `MODEL` has not, each with a value other than its default. It breaks rules and no type."""

SERVER: dict[str, Any] = {
    "schema": 1,
    "cluster": "lab",
    "nodes": [
        {
            "name": "n1",
            "address": "10.0.0.5",
            "key_sha256": "01" * 32,
            "labels": {"room": "basement"},
            "drained": False,
        },
        {"name": "n2", "address": "n2.internal"},
    ],
    "gateways": [{"name": "front", "key_sha256": "02" * 32}],
    "operators": [{"name": "ana", "key_sha256": "03" * 32}],
    "mirror": {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082", "retain": "7d"},
    "node_grace": "10m",
    "policy": {"max_removals": 3},
}

WIDE_SERVER: dict[str, Any] = {
    "schema": 1,
    "cluster": "lab",
    "state": "stopped",
    "nodes": [
        {
            "name": "n1",
            "address": "10.0.0.5",
            "cards_out": ["GPU-1"],
            "engines": [{"name": "llamacpp", "version": "b11549"}],
            "ssh": {"user": "llm", "host": "n1.lab", "port": 2222, "key_ref": "install"},
        }
    ],
    "mirror": {
        "base": "http://10.0.0.2:8081",
        "api": "http://10.0.0.2:8082",
        "former_bases": ["http://10.0.0.1:8081"],
        "reserve": "50GiB",
        "parallel_nodes": 8,
        "release_for_fetch": True,
    },
    "cards": [{"name": "big", "class": "l40s-48g", "count": 8}],
    "defaults": {"owner": "team-assist", "routing": {"retries": 1}, "profile": {"threads": 4}},
    "blocks": {"small": {"class": "opportunistic", "profile": {"cpu_cores": 2}}},
    "policy": {
        "max_removals": 1,
        "required": ["owner"],
        "licenses": ["MIT"],
        "unpinned_sources": "refuse",
        "min_tps": 5,
        "max_start_time": "20m",
        "quotas": [{"owner": "research", "class": "standard", "cards": 4, "memory_gib": 100, "replicas": 9}],
    },
    "engines": [
        {
            "name": "llamacpp",
            "version": "b11549",
            "platform": "linux-aarch64",
            "backend": "cuda",
            "from": "https://example.com/llama.tar.gz",
            "sha256": "ab" * 32,
        }
    ],
    "notifications": [
        {"name": "ops", "url_ref": "slack", "on": ["parked"], "owners": ["a"], "for": "10m"},
        {"name": "mail", "command": "mail-ops"},
    ],
    "freeze": [{"name": "weekend", "cron": "0 18 * * 5", "time_zone": "Europe/Berlin", "duration": "60h"}],
}
"""With the fields that `SERVER` has not, each with a value other than its default."""

KEY: dict[str, Any] = {"name": "helpdesk", "sha256": "cd" * 32, "models": ["coder"]}

WIDE_KEY: dict[str, Any] = {
    "name": "research",
    "sha256": "ef" * 32,
    "owner": "team-research",
    "expires": "2027-01-31",
    "limits": {"rpm": 60, "tpm": 1000, "concurrency": 2},
    "budget": {"amount": 50, "unit": "tokens", "period": "day"},
}
"""With the fields that `KEY` has not."""

GONE = object()
"""In place of a value: the key is not written."""

LOCK: dict[str, Any] = {
    "model": "coder",
    "source": {"from": "hf://Qwen/Qwen3-8B-GGUF@main/*.gguf", "version": "2026-11", "files": ["*.gguf"]},
    "commit": "0f" * 20,
    "license": "apache-2.0",
    "gated": False,
    "base_model": "Qwen/Qwen3-8B",
    "files": [{"path": "q-Q4_K_M.gguf", "bytes": 5_000_000_000, "sha256": "ab" * 32}],
    "facts": {"architecture": "qwen3", "layers": 36, "windowed": [True, False]},
}


def changed(base: dict[str, Any], *changes: tuple[tuple[str | int, ...], Any]) -> dict[str, Any]:
    """A copy with the value at each way put in, or with `GONE` taken out."""
    value = copy.deepcopy(base)
    for at, new in changes:
        here: Any = value
        for step in at[:-1]:
            here = here[step]
        if new is GONE:
            del here[at[-1]]
        else:
            here[at[-1]] = new
    return value


def as_yaml(value: Any) -> bytes:
    """JSON is YAML: the shortest way to write a value that is read back as it is."""
    return json.dumps(value, indent=1).encode()
