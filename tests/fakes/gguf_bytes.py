"""Headers of GGUF and safetensors files made in memory, for tests that read a header and no weights."""

from __future__ import annotations

import json
import struct
from typing import Any

_TEXT, _ARRAY = 8, 9

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.file_type": 15,
    "llama.block_count": 2,
    "llama.context_length": 8192,
    "llama.embedding_length": 256,
    "llama.feed_forward_length": 512,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "llama.vocab_size": 1000,
}
"""The hyper-parameters of a small Llama."""


def gguf_header(values: dict[str, Any] | None = None, *, vocabulary: int = 0) -> bytes:
    """The head of a GGUF file, version 3, with one tensor.

    Args:
        values: its key-value pairs; else those of a small Llama.
        vocabulary: tokens of the tokenizer's list, which makes a header as long as real ones are.
    """
    pairs = dict(LLAMA if values is None else values)
    if vocabulary:
        pairs["tokenizer.ggml.tokens"] = [f"token-{n:06d}" for n in range(vocabulary)]
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(pairs))
    head += b"".join(_text(key) + _value(value) for key, value in pairs.items())
    head += _text("token_embd.weight") + struct.pack("<IQQIQ", 2, 256, 1000, 0, 0)
    return head + bytes(-len(head) % 32)


def safetensors_header(dtype: str = "BF16", shape: tuple[int, int] = (1000, 256)) -> bytes:
    """The head of a safetensors file with one tensor."""
    size = 2 * shape[0] * shape[1]
    table = {"model.embed_tokens.weight": {"dtype": dtype, "shape": list(shape), "data_offsets": [0, size]}}
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    kind, data = _plain(value)
    return struct.pack("<I", kind) + data


def _plain(value: Any) -> tuple[int, bytes]:
    match value:
        case bool():
            return 7, struct.pack("<?", value)
        case int():
            return 4, struct.pack("<I", value)
        case float():
            return 6, struct.pack("<f", value)
        case str():
            return _TEXT, _text(value)
        case _:
            kinds = [_plain(item) for item in value]
            return _ARRAY, struct.pack("<IQ", kinds[0][0], len(kinds)) + b"".join(data for _, data in kinds)
