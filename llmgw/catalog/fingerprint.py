"""What makes a running replica out of date, and what each field's change does to what runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from llmgw.catalog.canonical import number
from llmgw.catalog.model import Model
from llmgw.catalog.planned import mark_of, types_in
from llmgw.catalog.profile import Profile


def fingerprint(model: Model, profile: Profile) -> str:
    """16 hex digits that change when, and only when, a replica has to be started again.

    Args:
        model: what is served.
        profile: the way it is run.
    """
    runs: dict[str, Any] = {
        # The engine is told the name, calls itself by it, and is asked for it by probes.
        "name": model.name,
        "kind": model.kind,
        "engine": profile.engine,
        "engine_version": profile.engine_version,
        "pool": model.pool_tokens(profile),
        # llama.cpp knows its pool and slots only. The others are told how long one request may be.
        "request": None if profile.engine == "llamacpp" else model.context_length,
        "parallel": profile.parallel,
        "cpu_cores": profile.cpu_cores,
        "threads": profile.threads,
        "memory_gib": None if profile.memory_gib is None else number(float(profile.memory_gib)),
        "gpu": [profile.gpu.class_, profile.gpu.count] if profile.gpu else None,
        "slice": profile.gpu.slice if profile.gpu else None,
        "args": list(profile.args),
        "kv_types": [profile.kv_type_k, profile.kv_type_v] if profile.kv_type_k or profile.kv_type_v else None,
        "gpu_layers": profile.gpu_layers,
        "tensor_split": [number(share) for share in profile.tensor_split],
        "cpu_moe": profile.cpu_moe,
        "flash_attention": profile.flash_attention,
        "no_mmap": None if profile.mmap else True,
        "batch": profile.batch,
        "env": profile.env,
        # Any text, for a start again that nothing else asks for.
        "restart": profile.restart,
        # A version never changes what it holds, so where it was had from does not matter.
        "weights": model.source.version or model.source.from_,
    }
    # What is absent leaves no trace: a field that a later version adds is absent
    # from every model there is, and upgrading to that version restarts none.
    told = {key: value for key, value in runs.items() if value not in (None, [], {}, "")}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


class Effect(StrEnum):
    """What the change of a field does to what runs."""

    RESTARTS = "its replicas start again"
    MOVES = "replicas move to other nodes"
    COUNTS = "the difference starts or stops"
    AS_BROUGHT = "as if each model wrote it"
    NOTHING = "nothing that runs is touched"


_R, _M, _C, _A, _N = Effect


def _all(effect: Effect, keys: str) -> dict[str, Effect]:
    return dict.fromkeys(keys.split(), effect)


EFFECTS: Mapping[str, Mapping[str, Effect]] = MappingProxyType(
    {
        "model": _all(_R, "name kind source context_length")
        | _all(_C, "state external profiles scaling")
        | _all(_N, "extends description aliases owner tags license capabilities unlisted replaced_by protect")
        | _all(_N, "max_output class health rollout routing access"),
        # The `from` of a path is what is run; that of a version is only where it is had.
        "source": _all(_R, "version mmproj draft chat_template adapters")
        | _all(_N, "from sha256 checksums revision files ignore format token_ref prefetch retain"),
        "adapter": _all(_R, "name source scale"),
        "external": _all(_N, "base_url key_ref served_name timeout"),
        "profile": _all(
            _R, "name engine engine_version binary command gpu parallel context cpu_cores threads memory_gib"
        )
        | _all(_R, "tp pp kv_type_k kv_type_v gpu_layers tensor_split cpu_moe flash_attention mmap batch utilisation")
        | _all(_R, "speculative args env env_from restart")
        | _all(_C, "replicas")
        | _all(_N, "priority weight spill memory_claim disk node_selector anti_affinity placement keep_within")
        | _all(_N, "start_timeout drain_timeout min_tps"),
        "speculative": _all(_R, "method tokens min_probability"),
        "gpu": _all(_R, "class count slice") | _all(_N, "vendor name memory compute_capability"),
        "scaling": _all(_C, "min max target window up_delay down_delay idle_timeout schedule warm")
        | _all(_N, "max_cold_wait"),
        "target": _all(_C, "concurrency slots queue rps kv"),
        "schedule entry": _all(_C, "cron time_zone min max"),
        "health": _all(_N, "path inference interval timeout failures no_progress_timeout expect_gpu"),
        "rollout": _all(_N, "strategy max_surge max_unavailable auto_return canary freeze"),
        "canary": _all(_N, "weight duration"),
        "routing": _all(_N, "strategy queue time_limits retries fallbacks parameters concurrency loading_feedback"),
        "queue": _all(_N, "size max_wait"),
        "time limits": _all(_N, "first_token between_tokens whole"),
        "fallback": _all(_N, "on to"),
        "parameters": _all(_N, "strip set"),
        "access": _all(_N, "allow deny visibility preemption cost"),
        "cost": _all(_N, "input cached_input output"),
        "server.yaml": _all(_M, "nodes")
        | _all(_C, "state")
        | _all(_A, "cards defaults blocks")
        | _all(_N, "schema cluster gateways operators mirror node_grace policy engines notifications freeze"),
        "node": _all(_M, "name drained") | _all(_N, "address key_sha256 labels cards_out engines ssh"),
        "node engine": _all(_N, "name version"),
        "ssh": _all(_N, "user host port key_ref"),
        "caller": _all(_N, "name key_sha256"),
        "card": _all(_A, "name class") | _all(_N, "count"),
        "mirror": _all(_N, "base api former_bases retain reserve parallel_nodes release_for_fetch"),
        "policy": _all(
            _N, "max_removals required licenses unpinned_sources min_tps max_start_time quotas soak models_at_once"
        ),
        "quota": _all(_N, "owner class cards memory_gib replicas"),
        "engine build": _all(_N, "name version platform backend from sha256"),
        "notification": _all(_N, "name url_ref command on owners for"),
        "freeze window": _all(_N, "name cron time_zone duration"),
        "client key": _all(_N, "name sha256 owner models expires limits budget"),
        "limits": _all(_N, "rpm tpm concurrency"),
        "budget": _all(_N, "amount unit period"),
    }
)
"""By the title of a type and the key in the file: what the change does once the field acts. A test changes
every field of a model and compares."""


def effect_of(at: tuple[str, ...], kind: type[BaseModel] = Model) -> Effect:
    """What the change of one field of a model does to what runs now.

    Args:
        at: the way to it, in which lists go by the names of their entries: `profiles`, `gpu`, `parallel`.
        kind: what it is a field of, where that is no model.
    """
    effect, steps = Effect.NOTHING, iter(at)
    for step in steps:
        found = next(((n, f) for n, f in kind.model_fields.items() if (f.alias or n) == step), None)
        if found is None:
            break
        name, field = found
        mark = mark_of(kind, name)
        if mark is not None and not mark.values:
            return Effect.NOTHING
        if (known := EFFECTS.get(str(kind.model_config["title"]))) is None:
            break  # a part that models are read with acts as the whole of it does
        effect = known[step]
        inner = next(types_in(field.annotation), None)
        if inner is None:
            break
        kind = inner
        if str(field.annotation).startswith("tuple"):
            next(steps, None)
    return effect
