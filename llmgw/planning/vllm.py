"""What vLLM takes of a card: it claims a share of it, and what is left of that is its cache.

Version 0.33. It measures itself when it starts, so the cache's size is known
only within what a batch's work space is guessed at: docs/estimates.md#vllm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmgw.planning.cards import Card
from llmgw.planning.estimate import ENGINE, FILE_SIZE, HEADER, Estimate, Term, card, kept
from llmgw.planning.memory import UNKNOWN_BYTES, UNKNOWN_FACTOR
from llmgw.planning.shape import ModelShape
from llmgw.units import GIB, MIB

PAGE_TOKENS = 16
CONTEXT_BYTES = 330 * MIB
GRAPH_BYTES = 512 * MIB
"""Of the graphs it records on a card, for each number of requests at a time."""
LEAST_WORK_BYTES = GIB
"""Of a batch's work space: no formula is published; 1 to 2 GiB were seen."""
HOST_BYTES = 4 * GIB
"""Of one process on the host: Python, torch and the pages it loads through."""

CAPABILITY = {
    "gptq": 6.0,
    "moe_wna16": 7.0,
    "compressed-tensors": 7.0,
    "fp8": 7.5,
    "awq": 7.5,
    "torchao": 7.5,
    "mxfp4": 8.0,
    "fbgemm_fp8": 8.0,
    "experts_int8": 8.0,
    "modelopt": 8.0,
    "quark": 8.9,
    "fp_quant": 10.0,
}
"""The lowest compute capability that each quantisation runs on."""
FORMATS = {
    ("compressed-tensors", "float-quantized"): 7.5,
    ("compressed-tensors", "pack-quantized"): 7.5,
    ("compressed-tensors", "int-quantized"): 7.5,
    ("compressed-tensors", "nvfp4-pack-quantized"): 7.5,
    ("modelopt", "nvfp4"): 7.5,
}
"""Where a method's formats differ from it."""
BF16_CAPABILITY = 8.0
FP8_CAPABILITY = 8.9
NO_FP16 = ("gemma2", "gemma3", "gemma3_text", "glm4")


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """The flags that change how much memory it takes. llmgw says each of them: their defaults changed."""

    context: int = 0
    """`--max-model-len`: of one request. 0: what the model was trained for."""
    cards: int = 1
    """`--tensor-parallel-size`."""
    utilization: float = 0.92
    """`--gpu-memory-utilization`."""
    requests: int = 0
    """`--max-num-seqs`. 0: by the card."""
    batch_tokens: int = 0
    """`--max-num-batched-tokens`. 0: by the card."""
    fp8_cache: bool = False
    """`--kv-cache-dtype fp8`."""


def batch_defaults(card_bytes: int, *, slow: bool = False) -> tuple[int, int]:
    """Tokens and requests at a time, by the card's memory.

    Args:
        card_bytes: of one card.
        slow: whether it is one of those that get the small batch in spite of their memory: A100, GB10.
    """
    if card_bytes >= 160 * GIB:
        return 16_384, 1024
    if card_bytes >= 70 * GIB and not slow:
        return 8192, 1024
    return 2048, 256


def heads_per_card(kv_heads: int, cards: int) -> int:
    """Heads of keys and values that each card keeps: with more cards than heads they are copied."""
    return max(1, kv_heads // cards) if kv_heads else 0


def token_bytes(shape: ModelShape, options: VllmOptions, layer: int) -> int:
    """What one token takes in one layer's cache, on one card."""
    each = 1 if options.fp8_cache else 2
    heads = heads_per_card(shape.kv_heads[layer], options.cards)
    return heads * (shape.key_length + shape.value_length) * each


def request_bytes(shape: ModelShape, options: VllmOptions, *, context: int, batch_tokens: int) -> int:
    """What one request of full length takes, on one card: without so much the engine does not start.

    Of an unknown shape it is what `llama.cpp` is given beside such a file: half as much again, and 2 GiB.
    """
    if not shape.known:
        held = shape.weights.total if shape.weights else 0
        return (round(held * (UNKNOWN_FACTOR - 1)) + UNKNOWN_BYTES) // options.cards
    size = 0
    for layer, heads in enumerate(shape.kv_heads):
        if heads:
            page = PAGE_TOKENS * token_bytes(shape, options, layer)
            size += page * _pages(shape, layer, context, batch_tokens)
    return size + shape.recurrent_layers * (shape.state_bytes // options.cards)


def _pages(shape: ModelShape, layer: int, context: int, batch_tokens: int) -> int:
    if shape.windowed and shape.windowed[layer]:
        return -(-min(shape.window - 1 + batch_tokens, context) // PAGE_TOKENS) + 1
    return -(-context // PAGE_TOKENS)


def cache_tokens(shape: ModelShape, options: VllmOptions, cache_bytes: int) -> int:
    """How many tokens a cache of so many bytes a card holds, where every layer keeps all of them."""
    each = sum(token_bytes(shape, options, n) for n in range(shape.layers))
    pages = cache_bytes // (each * PAGE_TOKENS) - 1 if each else 0
    return max(pages, 0) * PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Fit:
    """What becomes of a card's memory."""

    estimate: Estimate
    claimed: int
    """Bytes of each card that the engine takes for itself."""
    cache_bytes: int
    """Left for its cache, on each card. Negative: it does not start."""
    request_bytes: int
    """The least it has to be: one request of full length."""
    cache_tokens: int
    problems: tuple[str, ...]
    """Why it would not start; none: it would."""


def fit(shape: ModelShape, weight_bytes: int, options: VllmOptions, gpu: Card, free_bytes: int | None = None) -> Fit:
    """How a model lies on cards of one kind.

    Args:
        shape: of the model.
        weight_bytes: of all its files.
        options: how it is run.
        gpu: the kind of card.
        free_bytes: of each card, as its driver says.
    """
    total = gpu.memory_bytes or 0
    free = total if free_bytes is None else free_bytes
    tokens, requests = batch_defaults(total, slow=gpu.name.startswith(("A100", "GB10")))
    tokens, requests = options.batch_tokens or tokens, options.requests or requests
    context = options.context or shape.context
    claimed = -int(-total * options.utilization // 1)
    weights = -(-weight_bytes // options.cards)
    work = work_bytes(shape, options, tokens, requests)
    left = claimed - weights - work - GRAPH_BYTES - CONTEXT_BYTES
    least = request_bytes(shape, options, context=context, batch_tokens=tokens)
    fixed = [
        ("weights", weights, FILE_SIZE, f"all files over {options.cards} cards"),
        ("compute_gpu", work, ENGINE, f"a batch of {tokens} tokens and {requests} requests"),
        ("cuda_graphs", GRAPH_BYTES, ENGINE, "recorded when it starts"),
        ("cuda_context", CONTEXT_BYTES, ENGINE, "the driver's own, for each process"),
        ("kv_cache", max(left, 0), HEADER, f"what is left of {options.utilization:.0%} of the card"),
    ]
    terms = [Term(name, card(n), size, basis, why) for n in range(options.cards) for name, size, basis, why in fixed]
    terms.append(Term("engine", "host", HOST_BYTES * options.cards, ENGINE, "a process for each card"))
    estimate = Estimate(shape.architecture, context, requests, kept(terms))
    found = tuple(_problems(shape, options, gpu, claimed=claimed, free=free, left=left, least=least, context=context))
    return Fit(estimate, claimed, left, least, cache_tokens(shape, options, left), found)


def needs(shape: ModelShape, weight_bytes: int, options: VllmOptions, *, on_cpu: bool = False) -> Estimate:
    """What a model takes for as many requests of full length as are asked for, whatever the cards.

    Args:
        shape: of the model.
        weight_bytes: of all its files.
        options: how it is run.
        on_cpu: whether it is on no card.
    """
    tokens, _ = batch_defaults(0)
    tokens, requests = options.batch_tokens or tokens, options.requests or 1
    context = options.context or shape.context
    each = request_bytes(shape, options, context=context, batch_tokens=tokens)
    states = shape.recurrent_layers * (shape.state_bytes // options.cards)
    batch, pages = f"a batch of {tokens} tokens", f"pages of {PAGE_TOKENS} for {context} tokens"
    fixed = [
        ("weights", -(-weight_bytes // options.cards), FILE_SIZE, f"all files over {options.cards} places"),
        (
            "kv_cache",
            (each - states) * requests,
            HEADER if shape.known else FILE_SIZE,
            f"{pages}, {requests} times" if shape.known else "half as much as its files and 2 GiB, a request",
        ),
        ("recurrent_state", states * requests, HEADER, f"{shape.state_bytes} bytes a layer and request"),
        ("compute_buffer" if on_cpu else "compute_gpu", work_bytes(shape, options, tokens, requests), ENGINE, batch),
    ]
    if not on_cpu:
        fixed.append(("cuda_graphs", GRAPH_BYTES, ENGINE, "recorded when it starts"))
        fixed.append(("cuda_context", CONTEXT_BYTES, ENGINE, "the driver's own, for each process"))
    places = ["host"] if on_cpu else [card(n) for n in range(options.cards)]
    terms = [Term(name, where, size, basis, why) for where in places for name, size, basis, why in fixed]
    terms.append(Term("engine", "host", HOST_BYTES * options.cards, ENGINE, "a process for each card"))
    unknown = f"unknown shape of {shape.architecture[:64]!r}, by the file's size only: its config does not say enough"
    return Estimate(shape.architecture, context, requests, kept(terms), () if shape.known else (unknown,))


def work_bytes(shape: ModelShape, options: VllmOptions, tokens: int, requests: int) -> int:
    """Of a batch: the widest layer in 16 bits, and the likelihoods in 32."""
    widest = 2 * max(shape.feed_forward, default=0) // options.cards + 6 * shape.embedding
    wide = 3 * shape.expert_feed_forward * shape.experts_used // options.cards
    likely = 4 * requests * shape.vocabulary
    return max(LEAST_WORK_BYTES, 2 * tokens * max(widest, wide + 6 * shape.embedding) + 2 * likely)


def _problems(
    shape: ModelShape, options: VllmOptions, gpu: Card, *, claimed: int, free: int, left: int, least: int, context: int
) -> Iterator[str]:
    yield from divisibility(shape, options.cards)
    yield from capability(shape, gpu)
    if free < claimed:
        yield f"{_gib(claimed)} of each card are claimed and {_gib(free)} are free"
    if left < least:
        short = _gib(least - left)
        yield f"{short} short on each card of the cache for one request of {context} tokens"


def divisibility(shape: ModelShape, cards: int) -> Iterator[str]:
    """Why a model cannot be split over so many cards."""
    heads = max(shape.heads, default=0)
    if heads % cards:
        yield f"{heads} heads cannot be split over {cards} cards"
    kv_heads = max(shape.kv_heads, default=0)
    if kv_heads and kv_heads % cards and cards % kv_heads:
        yield f"{kv_heads} heads of keys and values cannot be split over {cards} cards"


def capability(shape: ModelShape, gpu: Card) -> Iterator[str]:
    """Why a card cannot compute with a model's numbers. A card of another maker is not judged."""
    if gpu.capability is None:
        return
    method, kind = shape.quantization, shape.file_type
    least = FORMATS.get((method, kind), CAPABILITY.get(method, 0.0))
    if gpu.capability < least:
        yield f"{method} needs a card of compute capability {least}, and {gpu.name} has {gpu.capability}"
    if shape.dtype == "bfloat16" and gpu.capability < BF16_CAPABILITY and shape.architecture in NO_FP16:
        yield f"{shape.architecture} needs bfloat16, and {gpu.name} has none"


def weight_only(shape: ModelShape, gpu: Card) -> bool:
    """Whether FP8 weights are read in 8 bits and computed with in 16: the memory of FP8 without its speed."""
    is_fp8 = "fp8" in shape.quantization or shape.file_type in ("fp8", "float-quantized")
    return is_fp8 and gpu.capability is not None and gpu.capability < FP8_CAPABILITY


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
