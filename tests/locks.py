"""Locks for tests: what is known of a model's files."""

from __future__ import annotations

from llmgw.catalog.lock import Lock

FACTS = {
    "architecture": "llama",
    "layers": 32,
    "embedding": 4096,
    "vocabulary": 128256,
    "context": 131072,
    "feed_forward": 14336,
    "heads": 32,
    "kv_heads": 8,
    "key_length": 128,
    "value_length": 128,
    "weights.total": 4653375488,
    "weights.embedding": 295501824,
    "weights.output": 430940160,
    "weights.layers": 122716160,
    "weights.repacked_x86": 3925868544,
}
"""Of Llama 3.1 8B in Q4_K_M."""


def lock(size: int | None = 4_920_000_000, **facts) -> Lock:
    file = {"path": "m.gguf", **({} if size is None else {"bytes": size})}
    return Lock.model_validate({"model": "m", "source": {"from": "/m.gguf"}, "files": [file], "facts": facts})
