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
"""With every field there is, in one profile at least."""

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

KEY: dict[str, Any] = {"name": "helpdesk", "sha256": "cd" * 32, "models": ["coder"]}

GONE = object()
"""In place of a value: the key is not written."""


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
