"""Where a model that is new to a fleet would run best: on which cards, or on CPUs, and with how much context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.errors import OperatorError
from llmgw.planning import vllm
from llmgw.planning.cards import Card, find, usable
from llmgw.planning.claim import STEP_GIB, claimed_gib, options_of
from llmgw.planning.fit import shortages
from llmgw.planning.memory import estimate
from llmgw.planning.shape import ModelShape
from llmgw.planning.speed import card_tps, class_of, cpu_bytes, cpu_tps
from llmgw.units import GIB

STEP_TOKENS = 256
"""A context that is lowered is a multiple of this: engines round to it themselves."""
LEAST_CONTEXT = 4096
"""A place with room for fewer tokens does not hold a model that has more."""
ASSUMED_GBS = 40.0
"""Of a host's memory: two channels of DDR4, the least that servers have. No node reports its own."""
CPU_BATCH_TOKENS = 2048
"""What vLLM works on at a time where no card says more."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The free cards of one class."""

    card_class: str
    """As a profile writes it."""
    product: str
    vendor: str
    memory_bytes: int
    capability: str
    free: int
    """In the whole fleet."""
    together: int
    """The most that are free on one node."""
    host_bytes: int
    """The most memory that is left on a node that has one free."""
    runs: bool = True
    """Whether a node that has one has the engine for it, or no node has the engine at all."""

    @property
    def card(self) -> Card:
        """As the table of cards knows it, with what its driver says."""
        capability = float(self.capability) if self.capability.replace(".", "", 1).isdigit() else None
        known = find(self.product, self.memory_bytes)
        if known is None:
            return Card(self.vendor, self.product, self.memory_bytes, 0.0, capability, "", bf16=True, shared=False)
        return replace(known, memory_bytes=self.memory_bytes, capability=capability or known.capability)


@dataclass(frozen=True, slots=True)
class Host:
    """What is left on the node that has most of it."""

    name: str
    memory_bytes: int
    cores: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A model to be: everything but where it runs, and with how much context."""

    fields: Mapping[str, Any]
    """As its file will write them."""
    engine: str
    replicas: int
    shape: ModelShape
    lock: Lock

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return self.lock.total_bytes or 0

    def model(self, profile: Mapping[str, Any], context: int) -> Model:
        """The model with one profile."""
        return Model.model_validate({**self.fields, "context_length": context, "profiles": [dict(profile)]})

    def on_cards(self, offer: Offer, count: int) -> dict[str, Any]:
        """The profile that runs it on so many cards."""
        gpu = {"class": offer.card_class, "count": count}
        split = {"tp": count} if self.engine != "llamacpp" and count > 1 else {}
        return {"name": "gpu", "engine": self.engine, "gpu": gpu, "replicas": self.replicas, **split, "cpu_cores": 1}

    def on_cpus(self, cores: int) -> dict[str, Any]:
        """The profile that runs it without a card."""
        return {"name": "cpu", "engine": self.engine, "replicas": self.replicas, "cpu_cores": cores}

    def host_gib(self, profile: Mapping[str, Any], context: int) -> float:
        """GiB of host memory that a replica reserves."""
        if self.engine != "llamacpp" and "gpu" not in profile:
            options = vllm.VllmOptions(context=context)
            cache = vllm.request_bytes(self.shape, options, context=context, batch_tokens=CPU_BATCH_TOKENS)
            return ceil((self.bytes + cache + vllm.HOST_BYTES) / GIB / STEP_GIB) * STEP_GIB
        model = self.model(profile, context)
        return claimed_gib(model, model.profiles[0], self.lock) or 0.0

    def card_bytes(self, offer: Offer, count: int, context: int) -> int | None:
        """Of the fullest of so many cards, or None where it does not fit there."""
        profile = self.on_cards(offer, count)
        if self.host_gib(profile, context) * GIB > offer.host_bytes:
            return None
        if self.engine != "llamacpp":
            laid = vllm.fit(self.shape, self.bytes, vllm.VllmOptions(context=context, cards=count), offer.card)
            return None if laid.problems else laid.claimed
        model = self.model(profile, context)
        room = (usable(offer.memory_bytes, apple=offer.vendor == "apple"),) * count
        try:
            found = estimate(self.shape, self.bytes, options_of(model, model.profiles[0]), free=room)
        except OperatorError:
            return None
        return None if shortages(found, cards=room) else max(found.by_card, default=0)

    def card_speed(self, offer: Offer) -> float | None:
        """Tokens a second of one reply, or None where nothing is known of the card."""
        gbs = offer.card.bandwidth_gbs
        return card_tps(self.shape, self.bytes, class_of(offer.card), bandwidth_gbs=gbs)

    def cpu_speed(self) -> float | None:
        """Tokens a second of one reply on a host with `ASSUMED_GBS`."""
        return cpu_tps(cpu_bytes(self.shape, self.bytes), all_gbs=ASSUMED_GBS)


@dataclass(frozen=True, slots=True)
class OnCards:
    """One way to run it on cards."""

    offer: Offer
    count: int
    context: int
    """The most that it has room for, of what was wanted."""
    short: bool
    """Whether that is less."""

    @property
    def rank(self) -> tuple[int, bool, int, int, str]:
        """The fewest cards, with room for all of the context, of the freest class; of these the smallest."""
        return self.count, self.short, -self.offer.free, self.offer.memory_bytes, self.offer.card_class


def ways_on_cards(draft: Draft, offers: Iterable[Offer], wanted: int) -> list[OnCards]:
    """Every class of free cards that holds a model, the best first.

    Args:
        draft: of the model.
        offers: what is free.
        wanted: tokens of context.
    """
    least = min(LEAST_CONTEXT, wanted)
    found = []
    for offer in offers:
        for count in _counts(offer.together):
            if draft.card_bytes(offer, count, least) is not None:
                most = most_context(lambda c, o=offer, n=count: draft.card_bytes(o, n, c) is not None, wanted)  # type: ignore[misc]
                found.append(OnCards(offer, count, most, most < wanted))
                break
    return sorted(found, key=lambda way: way.rank)


def most_context(fits: Callable[[int], bool], wanted: int) -> int:
    """The most tokens that fit, up to what is wanted; 0: none do.

    Args:
        fits: whether so many tokens do; fewer always do where more do.
        wanted: more are not asked for.
    """
    if fits(wanted):
        return wanted
    low, high = 0, (wanted - 1) // STEP_TOKENS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * STEP_TOKENS) else (low, middle - 1)
    return low * STEP_TOKENS


def _counts(together: int) -> Iterable[int]:
    """How many cards are tried: powers of two, into which heads divide, up to what one node has free."""
    count = 1
    while count <= together:
        yield count
        count *= 2
