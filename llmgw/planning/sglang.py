"""What SGLang takes of a card: weights and cache in one pool, and a reserve for everything else.

Version 0.5.23: its own rule, so it is exact where the engine is not asked for
something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmgw.planning.shape import ModelShape
from llmgw.planning.vllm import VllmOptions, token_bytes
from llmgw.units import GIB, MIB

TIERS = ((20, 2048, 8), (35, 4096, 48), (60, 4096, 32), (160, 8192, 256))
"""Of cards below so many GiB: tokens of a chunk of a prompt, and requests whose graphs are recorded."""
LARGEST = (16_384, 512)
LARGE_CARD_GIB = 60
LARGE_RESERVE_MIB = 10 * 1024
PREFILL_GRAPHS = 8
LATENT_MIB = 1536
VISION_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Pool:
    """How a card is divided."""

    fraction: float
    """`--mem-fraction-static`."""
    static_bytes: int
    """Weights and cache together."""
    cache_bytes: int
    cache_tokens: int
    chunk_tokens: int
    requests: int


def reserve_bytes(card_bytes: int, shape: ModelShape, cards: int) -> int:
    """What is kept free of weights and cache."""
    chunk, requests = _tier(card_bytes)
    size = 512 + max(chunk, 2048) * 1.5 + cards / 8 * 1024 + requests * 2 + 8 * PREFILL_GRAPHS
    if shape.latent_rank:
        size += LATENT_MIB
    if card_bytes > LARGE_CARD_GIB * GIB:
        size = max(size, LARGE_RESERVE_MIB)
    return int(size * MIB)


def pool(shape: ModelShape, weight_bytes: int, card_bytes: int, *, cards: int = 1, vision: bool = False) -> Pool:
    """How a model's weights and cache lie on each of its cards."""
    chunk, requests = _tier(card_bytes)
    fraction = round((card_bytes - reserve_bytes(card_bytes, shape, cards)) / card_bytes, 3) if card_bytes else 0.0
    fraction = max(fraction, 0.0) * (VISION_SHARE if vision else 1)
    static = int(card_bytes * fraction)
    left = static - -(-weight_bytes // cards)
    each = sum(token_bytes(shape, VllmOptions(cards=cards), n) for n in range(shape.layers))
    return Pool(fraction, static, left, max(left, 0) // each if each else 0, chunk, requests)


def _tier(card_bytes: int) -> tuple[int, int]:
    return next(((chunk, most) for limit, chunk, most in TIERS if card_bytes < limit * GIB), LARGEST)
