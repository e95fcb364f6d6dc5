"""What a model remembers of its context in llama.cpp: keys, values and recurrent states.

As build b11549 reports it, to the byte it prints: docs/estimates.md#the-cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.shape import ModelShape
from llmgw.planning.tensor_types import by_name

CELLS = 256
"""A cache has a multiple of so many cells."""


@dataclass(frozen=True, slots=True)
class Cells:
    """How many tokens a cache has room for."""

    total: int
    """Of all slots: `n_ctx`."""
    each: int
    """Of one stream: `n_ctx_seq`."""
    windowed: int
    """Of one stream, in layers that look through a window."""
    streams: int


def padded(tokens: int, to: int = CELLS) -> int:
    """The next multiple."""
    return -(-tokens // to) * to


def worked_tokens(shape: ModelShape, options: LlamaOptions) -> int:
    """The most tokens that are worked on at a time: of a model with a cache no more than it has cells."""
    return min(options.ubatch, _total(shape, options)) if shape.causal else options.ubatch


def _total(shape: ModelShape, options: LlamaOptions) -> int:
    return padded(options.context or shape.context or CELLS)


def cells(shape: ModelShape, options: LlamaOptions) -> Cells:
    """The sizes of a model's caches."""
    total = _total(shape, options)
    streams = options.streams
    each = total if streams == 1 else padded(total // streams)
    windowed = each
    if shape.window and not options.swa_full:
        looked = shape.window * (options.parallel if options.kv_unified else 1)
        windowed = min(each, padded(looked + worked_tokens(shape, options)))
    return Cells(each * streams, each, windowed, streams)


def kv_bytes(shape: ModelShape, options: LlamaOptions) -> tuple[int, ...]:
    """Keys and values of each layer, of all slots."""
    room = cells(shape, options)
    key, value = (by_name()[kind.upper()].bytes_each for kind in (options.kv_type_k, options.kv_type_v))
    found = []
    for layer, heads in enumerate(shape.kv_heads):
        through_window = bool(shape.windowed) and shape.windowed[layer]
        lengths = shape.key_length, shape.value_length
        if through_window:
            lengths = shape.window_key_length or lengths[0], shape.window_value_length or lengths[1]
        each = heads * (lengths[0] * key + lengths[1] * value)
        if heads and shape.indexer_key_length:
            each += shape.indexer_key_length * key
        found.append(round((room.windowed if through_window else room.each) * room.streams * each))
    return tuple(found)


def state_bytes(shape: ModelShape, options: LlamaOptions) -> tuple[int, ...]:
    """Recurrent states of each layer: per slot, whatever its context."""
    each = shape.state_bytes * options.parallel * (1 + options.draft_tokens)
    return tuple(each if recurrent else 0 for recurrent in shape.recurrent)
