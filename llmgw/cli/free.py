"""What is free of the fleet, as the status branch or control sees it: cards by class, and the freest node."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from llmgw.cli.seen import Seen
from llmgw.core.replicas import Standing, survey
from llmgw.core.rooms import CardKind, Room, Rooms
from llmgw.core.wanted import Wanted
from llmgw.planning.added import Host, Offer


@dataclass(frozen=True, slots=True)
class Free:
    """What a new model could be given."""

    known: bool = False
    """Whether the fleet was seen at all."""
    offers: tuple[Offer, ...] = ()
    host: Host | None = None
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
    rooms = [r for r in Rooms(fleet).all.values() if r.traits.known and r.traits.standing is Standing.USABLE]
    having = [room for room in rooms if _has(room, engine)]
    open_rooms = [room for room in rooms if not room.traits.drained]
    names = {card.class_: card.name for card in wanted.server.cards}
    by_class: dict[str, list[tuple[CardKind, Room]]] = defaultdict(list)
    for room in open_rooms:
        for kind, uuids in room.free.items():
            called = names.get(kind.card_class, "" if names else kind.card_class)
            if uuids and called and not kind.slice:
                by_class[called].append((kind, room))
    offers = [_offer(name, found, engine, anywhere=bool(having)) for name, found in sorted(by_class.items())]
    hosts = [room for room in open_rooms if room in having] or open_rooms
    host = max(hosts, key=lambda room: (room.memory_bytes, room.name), default=None)
    return Free(
        True,
        tuple(offers),
        Host(host.name, host.memory_bytes, host.cores) if host else None,
        sum(len(room.order) for room in rooms),
        len(rooms),
        len(having),
    )


def _offer(name: str, found: Iterable[tuple[CardKind, Room]], engine: str, *, anywhere: bool) -> Offer:
    found = list(found)
    # The smallest of a class: what fits there fits on the others.
    kind = min(kind for kind, _ in found)
    runs = [pair for pair in found if _has(pair[1], engine, pair[0].vendor)]
    usable = runs or found
    return Offer(
        name,
        kind.name,
        kind.vendor,
        min(kind.memory_bytes for kind, _ in found),
        kind.compute_capability,
        sum(len(room.free[kind]) for kind, room in usable),
        max(len(room.free[kind]) for kind, room in usable),
        max(room.memory_bytes for _, room in usable),
        bool(runs) or not anywhere,
    )


def _has(room: Room, engine: str, vendor: str = "") -> bool:
    """Whether a node has an engine, for cards of a vendor where one is named. What it does not say excludes nothing."""
    if room.traits.engines is None:
        return True
    named = [e for e in room.traits.engines if e.name == engine]
    if not vendor:
        return bool(named)
    return any(e.build != "embedded" and (e.accelerators is None or vendor in e.accelerators) for e in named)
