"""What was predicted of one replica that runs: to be held against what is measured of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.errors import OperatorError
from llmgw.planning.cards import Card, usable
from llmgw.planning.claim import CACHE_BYTES, CACHE_SHARE, options_of
from llmgw.planning.memory import estimate
from llmgw.planning.shape import ModelShape, from_facts
from llmgw.planning.speed import (
    CardSpeed,
    calibrated,
    card_tps,
    class_of,
    cpu_bytes,
    cpu_tps,
    tensor_split_tps,
)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where it runs."""

    cards: tuple[Card, ...] = ()
    """Its own, as the table knows them, with the memory that their driver says. None of them: a CPU."""
    claim_bytes: int = 0
    """Of the host, which its cache of prompts is a part of."""
    threads: int = 0
    memory_gbs: float = 0.0
    """10^9 bytes a second that every core together reads."""
    core_gbs: float = 0.0
    """That one core reads alone. 0: not known."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What one replica should take, and how fast it should answer. None: that cannot be worked out."""

    architecture: str
    host_bytes: int | None = None
    card_bytes: int | None = None
    """Of all its cards together. None without cards."""
    tps: float | None = None
    """Of one answer alone."""


def predicted(
    model: Model, profile: Profile, lock: Lock | None, spot: Spot, *, speed: CardSpeed | None = None
) -> Predicted | None:
    """The prediction for a replica of a profile. None: nothing is known of its files.

    Args:
        model: whose profile it is.
        profile: as it is run.
        lock: what its source was found to be.
        spot: where it runs.
        speed: of its cards, where that was measured; else what cards like them do.
    """
    found = _files(lock)
    if found is None:
        return None
    shape, file_bytes = found
    tps = _tps(profile, shape, file_bytes, spot, speed)
    if profile.engine != "llamacpp":
        # The others claim a share of a card, and fill it whatever the model.
        return Predicted(shape.architecture, tps=tps)
    kept = min(CACHE_BYTES, spot.claim_bytes // CACHE_SHARE)
    options = replace(options_of(model, profile), cache_ram_bytes=kept)
    room = tuple(usable(c.memory_bytes or 0, apple=c.vendor == "apple") for c in spot.cards)
    try:
        laid = estimate(shape, file_bytes, options, free=room)
    except OperatorError:
        return Predicted(shape.architecture, tps=tps)
    return Predicted(shape.architecture, laid.host_bytes, laid.card_bytes if room else None, tps)


def solved(profile: Profile, lock: Lock | None, spot: Spot, tps: float) -> CardSpeed | None:
    """How quick its card is, from the speed that was measured there. None: it cannot be told from that."""
    found = _files(lock)
    if found is None or len(spot.cards) != 1 or not _whole(profile, spot):
        return None
    (card,) = spot.cards
    if card.bandwidth_gbs <= 0 or not found[0].known:
        return None
    return calibrated(*found, class_of(card), bandwidth_gbs=card.bandwidth_gbs, depth=0, measured_tps=tps)


def _files(lock: Lock | None) -> tuple[ModelShape, int] | None:
    if lock is None or not lock.facts or not lock.total_bytes:
        return None
    try:
        return from_facts(lock.facts), lock.total_bytes
    except OperatorError:
        # Facts that a later version wrote.
        return None


def _tps(profile: Profile, shape: ModelShape, file_bytes: int, spot: Spot, speed: CardSpeed | None) -> float | None:
    if not spot.cards:
        rates = {"all_gbs": spot.memory_gbs, "core_gbs": spot.core_gbs}
        return cpu_tps(cpu_bytes(shape, file_bytes), **rates, threads=profile.threads or spot.threads)
    if not _whole(profile, spot):
        return None
    card, count = spot.cards[0], len(spot.cards)
    speed = speed or class_of(card)
    if profile.engine != "llamacpp" and count > 1:
        return tensor_split_tps(shape, file_bytes, speed, bandwidth_gbs=card.bandwidth_gbs, cards=count)
    return card_tps(shape, file_bytes, speed, bandwidth_gbs=card.bandwidth_gbs)


def _whole(profile: Profile, spot: Spot) -> bool:
    """Whether all of it is on cards of one kind: what a host adds, or a slower card, has rates of its own."""
    return profile.gpu_layers is None and not profile.cpu_moe and len({card.name for card in spot.cards}) == 1
