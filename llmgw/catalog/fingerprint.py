"""What makes a running replica out of date, and what each field's change does to what runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from llmgw.catalog.canonical import number
from llmgw.catalog.model import Model
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
        "pool": model.pool_tokens(profile),
        # llama.cpp knows its pool and slots only. The others are told how long one request may be.
        "request": None if profile.engine == "llamacpp" else model.context_length,
        "parallel": profile.parallel,
        "cpu_cores": profile.cpu_cores,
        "threads": profile.threads,
        "memory_gib": number(float(profile.memory_gib)),
        "gpu": [profile.gpu.class_, profile.gpu.count] if profile.gpu else None,
        "args": list(profile.args),
        # A version never changes what it holds, so where it was had from does not matter.
        "weights": model.source.version or model.source.from_,
    }
    # What is absent leaves no trace: a field that a later version adds is absent
    # from every model there is, and upgrading to that version restarts none.
    told = {key: value for key, value in runs.items() if value not in (None, [])}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


class Effect(StrEnum):
    """What the change of a field does to what runs."""

    RESTARTS = "its replicas start again"
    MOVES = "replicas move to other nodes"
    COUNTS = "the difference starts or stops"
    NOTHING = "nothing that runs is touched"


_R, _M, _C, _N = Effect

EFFECTS: Mapping[str, Mapping[str, Effect]] = MappingProxyType(
    {
        "model": {
            "name": _R,
            "description": _N,
            "aliases": _N,
            "owner": _N,
            "kind": _R,
            "class": _N,
            "state": _C,
            "source": _R,
            "context_length": _R,
            "max_output": _N,
            "profiles": _C,
        },
        # The `from` of a path is what is run; that of a version is only where it is had.
        "source": {"from": _N, "version": _R, "sha256": _N},
        "profile": {
            "name": _R,
            "engine": _R,
            "gpu": _R,
            "replicas": _C,
            "priority": _N,
            "weight": _N,
            "parallel": _R,
            "context": _R,
            "cpu_cores": _R,
            "threads": _R,
            "memory_gib": _R,
            "node_selector": _N,
            "args": _R,
            "start_timeout": _N,
            "drain_timeout": _N,
        },
        "gpu": {"class": _R, "count": _R},
        "server.yaml": dict.fromkeys(
            ("schema", "cluster", "gateways", "operators", "mirror", "node_grace", "policy"), _N
        )
        | {"nodes": _M},
        "node": {"name": _M, "drained": _M} | dict.fromkeys(("address", "key_sha256", "labels"), _N),
        "caller": {"name": _N, "key_sha256": _N},
        "mirror": {"base": _N, "api": _N, "retain": _N},
        "policy": {"max_removals": _N},
        "client key": {"name": _N, "sha256": _N, "models": _N},
    }
)
"""By the title of a type and the key in the file. A test changes every field of a model and compares."""
