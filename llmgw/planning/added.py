"""Where a model that is new to a fleet would run best: on which cards, or on CPUs, and with how much context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.planning.cards import Card
from llmgw.planning.claim import options_of
from llmgw.planning.context import LEAST_CONTEXT, most_context
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.machines import Machine
from llmgw.planning.need import CPU, Files, Need, Place, need
from llmgw.planning.shape import ModelShape
from llmgw.planning.ways import counts, speed_of
from llmgw.units import GIB


@dataclass(frozen=True, slots=True)
class Offer:
    """The free cards of one class."""

    card_class: str
    """As a profile writes it."""
    card: Card
    """The smallest of them: what fits there fits on the others."""
    free: int
    """In the whole fleet."""
    together: int
    """The most that are free on one node."""
    host_bytes: int
    """The most memory that is left on a node that has one free."""
    runs: bool = True
    """Whether a node that has one has the engine for it, or no node has the engine at all."""

    def place(self, count: int) -> Place:
        """So many of them."""
        return Place(self.card, count, self.card_class)

    @property
    def memory_bytes(self) -> int:
        """Of one card."""
        return self.card.memory_bytes or 0


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

    @property
    def files(self) -> Files:
        """What its engine is given."""
        return Files(self.fields["name"], self.shape, self.bytes)

    def need(self, profile: Mapping[str, Any], place: Place, context: int) -> Need:
        """What a replica takes of a place."""
        model = self.model(profile, context)
        return need(self.files, self.engine, place, options_of(model, model.profiles[0]))

    def host_gib(self, profile: Mapping[str, Any], context: int) -> float:
        """GiB of host memory that a replica reserves without a card."""
        return self.need(profile, CPU, context).host_bytes / GIB

    def on_offer(self, offer: Offer, count: int, context: int) -> Need | None:
        """What it takes of so many cards and of their node, or None where it does not fit there."""
        taken = self.need(self.on_cards(offer, count), offer.place(count), context)
        return taken if taken.starts and taken.host_bytes <= offer.host_bytes else None

    def card_speed(self, offer: Offer) -> float | None:
        """Tokens a second of one reply, or None where nothing is known of the card."""
        return speed_of(self.files, self.engine, offer.place(1), LlamaOptions(), None)[0]

    def cpu_speed(self, host: Machine | None) -> tuple[float | None, str]:
        """Tokens a second of one reply on the CPU of a node, and what that rests on."""
        return speed_of(self.files, self.engine, CPU, LlamaOptions(), host)


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
        for count in counts(draft.engine, offer.together):
            if draft.on_offer(offer, count, least) is not None:
                most = most_context(lambda c, o=offer, n=count: draft.on_offer(o, n, c) is not None, wanted)  # type: ignore[misc]
                found.append(OnCards(offer, count, most, most < wanted))
                break
    return sorted(found, key=lambda way: way.rank)
