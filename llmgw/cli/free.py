"""What is free of the fleet, as the status branch or control sees it: cards by class, and the freest node."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from llmgw.cli.seen import Seen
from llmgw.core.machines import machines
from llmgw.core.replicas import Standing, survey
from llmgw.core.rooms import Rooms
from llmgw.core.wanted import Wanted
from llmgw.planning.added import Offer
from llmgw.planning.machines import Cards, Machine


@dataclass(frozen=True, slots=True)
class Free:
    """What a new model could be given."""

    known: bool = False
    """Whether the fleet was seen at all."""
    offers: tuple[Offer, ...] = ()
    host: Machine | None = None
    """The node with most memory left. None: nothing is known of any."""
    cards: int = 0
    """Of all nodes that report, free or not."""
    nodes: int = 0
    """That report."""
    engines: int = 0
    """Of those, that have the engine or do not say which they have."""


def free(seen: Seen, wanted: Wanted | None, engine: str) -> Free:
    """What is free for a model of one engine.

    Args:
        seen: the fleet.
        wanted: what is asked of it; None: that is not known.
        engine: that the model runs on.
    """
    if seen.observed is None or wanted is None:
        return Free()
    fleet = survey(wanted, seen.observed, seen.memory, time.time())
    names = {card.class_: card.name for card in wanted.server.cards}
    open_ones = machines(fleet, names)
    rooms = [r for r in Rooms(fleet).all.values() if r.traits.known and r.traits.standing is Standing.USABLE]
    having = [machine for machine in open_ones if machine.has(engine)]
    by_class: dict[str, list[tuple[Cards, Machine]]] = defaultdict(list)
    for machine in open_ones:
        for cards in machine.cards:
            if cards.free:
                by_class[cards.card_class].append((cards, machine))
    offers = [_offer(name, found, engine, anywhere=bool(having)) for name, found in sorted(by_class.items())]
    return Free(
        True,
        tuple(offers),
        max(having or open_ones, key=lambda m: (m.free_bytes, m.name), default=None),
        sum(len(room.order) for room in rooms),
        len(rooms),
        len(having),
    )


def _offer(name: str, found: Sequence[tuple[Cards, Machine]], engine: str, *, anywhere: bool) -> Offer:
    runs = [(cards, machine) for cards, machine in found if machine.has(engine, cards.card.vendor)]
    usable = runs or found
    return Offer(
        name,
        min((cards.card for cards, _ in found), key=lambda card: (card.memory_bytes or 0, card.name)),
        sum(cards.free for cards, _ in usable),
        max(cards.free for cards, _ in usable),
        max(machine.free_bytes for _, machine in usable),
        bool(runs) or not anywhere,
    )
