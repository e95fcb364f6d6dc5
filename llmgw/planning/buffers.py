"""The work space of llama.cpp: what a batch needs on its way through the widest layer.

The engine lays out one graph and reserves the most that is alive in it at a
time. Each function here is one kind of block, in numbers (f32) per token of a
batch. They were found by asking build b11549 for shapes that differ in one
figure: docs/estimates.md#the-work-space. `inputs` are the five vectors of a
token that are alive beside any block: the residual, its norm, and what the
allocator cannot give back yet.
"""

from __future__ import annotations

from llmgw.planning.kv import cells, worked_tokens
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.shape import ModelShape

NUMBER = 4
"""Bytes of one number at work."""
MASK = 2
"""Bytes of the mask, per token of the batch and cell of the cache."""
INPUTS = 5
SLACK_BYTES = 40 << 10
"""Positions, indices and rounding: 10 to 100 KiB were measured."""

EXTRA_RESIDUAL = frozenset(
    {
        *("granite", "granitemoe", "granitehybrid", "minicpm", "llama4", "cohere2", "cohere2moe", "command-r"),
        *("falcon", "phi2"),
    }
)
"""These scale the residual, or have two parts to add to it, and so keep a sixth vector."""
UNGATED = frozenset({"falcon", "gpt2", "gptneox", "phi2", "starcoder2"})
"""Their feed-forward has no gate: one vector of its width is alive, and not a gate, what it lets through, and both."""
JOINED = 2
"""Vectors more of gpt2 without flash attention: it makes query, key and value as one, and that stays."""
GEMMA3N_STREAMS = 5
"""Of gemma3n four residuals are alive at a time, and what is predicted of one."""
GEMMA3N_PER_LAYER = 2 * 256
"""And a vector of every layer for each token, twice: as it is read, and as layers take it."""


def output_bytes(shape: ModelShape, options: LlamaOptions) -> int:
    """The likelihood of each token of the vocabulary, for each slot; and its vector, where embeddings are asked for."""
    if not shape.causal:
        return NUMBER * shape.embedding * options.batch
    vectors = shape.embedding if options.embeddings else 0
    return NUMBER * (shape.vocabulary + vectors) * options.parallel


def compute_bytes(shape: ModelShape, options: LlamaOptions) -> int:
    """The work space of the backend that computes everything."""
    room = cells(shape, options)
    batch = worked_tokens(shape, options)
    attends = bool(shape.attention_layers) or not shape.causal
    looked = room.each if attends else 0
    through_window = room.windowed if shape.window else 0
    streams = _streams(shape)
    widest = per_token(shape, options) + streams
    if options.flash_attention or not attends:
        masks = MASK * batch * (looked + through_window)
        numbers = NUMBER * batch * widest + masks
        if attends and options.kv_type_k == options.kv_type_v == "f32":
            numbers = max(numbers + NUMBER * batch * shape.embedding, _halved_bytes(shape, options) + masks)
    else:
        heads = max(shape.heads, default=0)
        scores = looked * heads + _attention_alone(shape) + streams
        numbers = NUMBER * batch * (max(scores, widest) + looked) + 3 * MASK * batch * through_window
    return numbers + _rotation_bytes(shape, options) + SLACK_BYTES


def _halved_bytes(shape: ModelShape, options: LlamaOptions) -> int:
    """Keys and values of one layer in f16, for all tokens, and what is alive beside them.

    Flash attention computes in f16, and copies a cache of f32 anew for every layer.
    """
    kv_heads, value = max(shape.kv_heads, default=0), shape.latent_rank or shape.value_length
    copies = 2 * cells(shape, options).total * kv_heads * (shape.key_length + value)
    queries = max(shape.heads, default=0) * shape.key_length
    inputs = INPUTS - (shape.embedding >= queries)
    beside = _attention(shape) if shape.latent_rank else 2 * queries + inputs * shape.embedding
    return copies + NUMBER * worked_tokens(shape, options) * beside


def _rotation_bytes(shape: ModelShape, options: LlamaOptions) -> int:
    """What turns keys before they are kept in fewer bits: a square as wide as a head, for each kind of cache."""
    if options.kv_type_k in ("f32", "f16", "bf16") or shape.latent_rank or not shape.attention_layers:
        return 0
    return (1 + bool(shape.window)) * NUMBER * shape.key_length**2


def _streams(shape: ModelShape) -> int:
    """Of a model with several residuals, those that are alive beside any block."""
    if shape.architecture != "gemma3n":
        return 0
    return GEMMA3N_STREAMS * shape.embedding + GEMMA3N_PER_LAYER * shape.layers


def per_token(shape: ModelShape, options: LlamaOptions) -> int:
    """Numbers alive at the widest place, for each token of a batch. States are counted in."""
    residual = INPUTS + (shape.architecture in EXTRA_RESIDUAL)
    dense = max(*shape.feed_forward, shape.shared_feed_forward, 0)
    wide = 1 if shape.architecture in UNGATED else 3
    blocks = [residual * shape.embedding + wide * dense, _attention(shape)]
    if options.embeddings and shape.causal:
        # Then every token of a batch has an output, and not only the last of each slot.
        blocks.append(INPUTS * shape.embedding + shape.vocabulary)
    # The states of all slots are copied in, once a batch and not once a token.
    states = shape.state_bytes * options.parallel // (NUMBER * worked_tokens(shape, options))
    states += _states_again(shape, options)
    if shape.state_bytes:
        blocks.append(INPUTS * shape.embedding + _recurrent(shape, options) + states)
    if shape.experts:
        # The experts behind a delta net are laid out before its states are given back.
        blocks.append(residual * shape.embedding + _experts(shape) + (states if shape.delta_heads else 0))
    return max(blocks)


DELTA_PLACES = 4
"""A gated delta net frees so many times the place that other recurrent layers do."""


def _states_again(shape: ModelShape, options: LlamaOptions) -> int:
    """A second copy of the states of all slots but one, where no place that a batch freed is large enough for it."""
    batch = worked_tokens(shape, options)
    freed = batch * (DELTA_PLACES if shape.delta_heads else 1)
    if options.parallel * shape.state_size <= freed:
        return 0
    return (options.parallel - 1) * shape.state_size * shape.state_width // batch


def _attention(shape: ModelShape) -> int:
    heads, kv_heads = max(shape.heads, default=0), max(shape.kv_heads, default=0)
    if shape.latent_rank:
        # Of each head: its query, the turned part of it, that query in the latent space, and the two joined.
        latent = shape.latent_rank + shape.rope_length
        each = shape.head_key_length + shape.rope_length + shape.latent_rank + latent
        return heads * each + INPUTS * shape.embedding
    return max(2 * heads, 4 * kv_heads) * shape.key_length + INPUTS * shape.embedding


def _attention_alone(shape: ModelShape) -> int:
    """Beside the scores, where attention is computed without flash attention."""
    if shape.latent_rank:
        return _attention(shape)
    heads, kv_heads = max(shape.heads, default=0), max(shape.kv_heads, default=0)
    queries = heads * shape.key_length
    # A vector that is as long as a query takes the place of one that is done with.
    inputs = INPUTS - (shape.embedding >= queries) + (JOINED if shape.architecture == "gpt2" else 0)
    return 2 * queries + 2 * kv_heads * shape.key_length + inputs * shape.embedding


def _experts(shape: ModelShape) -> int:
    """Of the experts a token goes to: gate, up, their product; and what comes down, where no freed place holds it."""
    wide = shape.expert_feed_forward * shape.experts_used
    down = shape.embedding * shape.experts_used
    return 3 * wide + (down if 2 * wide < down else 0)


def _recurrent(shape: ModelShape, options: LlamaOptions) -> int:
    width, groups = shape.state_width, shape.state_groups * shape.state_size
    if not shape.delta_heads:
        return 5 * width + 6 * groups + shape.state_heads
    # A gated delta net works in chunks. Where keys need not be repeated for the values' heads, more is alive.
    alone = shape.delta_heads == shape.state_groups
    if options.parallel == 1:
        return 5 * groups + (35 * width // 4 if alone else 13 * width // 2)
    return 4 * groups + (9 * width if alone else 31 * width // 4)
