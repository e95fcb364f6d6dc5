"""How many more replicas of each profile would find a node now, and why not more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from llmgw.catalog.model import Model
from llmgw.core.needs import Ask, ask_of
from llmgw.core.retention import version_key
from llmgw.core.rooms import Disk, Key, Profiled, Room, Rooms, spots_in, suits
from llmgw.core.rules import Rules
from llmgw.core.unplaced import Unplaced

GivesWay = Callable[[Model], Iterable[Key]]
"""The running replicas that would give way to one of a model."""


class Headroom(Struct, frozen=True, order=True):
    """How many more of one profile there could be."""

    model: str
    profile: str
    more: int
    """That fit beside all that runs."""
    by_preempting: int
    """That fit where everything of a lower class gave way: at least `more`."""


def headroom(
    models: Iterable[Model], rooms: Rooms, sizes: Mapping[str, int], gives_way: GivesWay | None = None
) -> tuple[Headroom, ...]:
    """For each profile of some models, in their order. Each is counted as if it were the only one to grow.

    Args:
        models: that are asked about.
        rooms: what is left; it is not changed.
        sizes: bytes of each version, by key.
        gives_way: whom a model may preempt; None: nobody.
    """
    plain: dict[Ask, int] = {}
    found = []
    for model in models:
        without = rooms.without(gives_way(model)) if gives_way else []
        for profile in model.profiles:
            version = version_key(model)
            ask = ask_of(model, profile, version=version, weights_bytes=sizes.get(version, 0))
            rules = Rules(ask)
            if ask not in plain:
                plain[ask] = sum(_times(rules, room, model.name) for room in rooms.all.values())
            gained = sum(
                _times(rules, room, model.name) - _times(rules, rooms.all[room.name], model.name) for room in without
            )
            found.append(Headroom(model.name, profile.name, plain[ask], plain[ask] + gained))
    return tuple(found)


def why_not_more(model: Model, profile: str, rooms: Rooms, sizes: Mapping[str, int]) -> Unplaced:
    """What would keep off the next one, were all placed that fit."""
    (of,) = (p for p in model.profiles if p.name == profile)
    version = version_key(model)
    rules = Rules(ask_of(model, of, version=version, weights_bytes=sizes.get(version, 0)))
    return Unplaced(rules.table([_filled(rules, room, (model.name, profile)) for room in rooms.all.values()]))


def _times(rules: Rules, room: Room, model: str) -> int:
    """How often the ask of a model fits into one room."""
    if not rules.fits(room):
        return 0
    claim = rules.ask.claim(room.cores)
    most = [room.memory_bytes // claim.memory_bytes]
    if claim.cpu_cores:
        most.append(room.cpu_cores // claim.cpu_cores)
    if claim.cards:
        # All cards of one replica are of one kind.
        most.append(sum(len(u) // claim.cards for kind, u in room.free.items() if suits(rules.ask, kind)))
    if rules.ask.disk_bytes and room.disk_bytes is not None:
        fetched = 0 if room.stored[rules.ask.version] else rules.ask.weights_bytes
        most.append((room.disk_bytes - fetched) // rules.ask.disk_bytes)
    if model in rules.ask.shuns:
        most.append(1)  # it is kept apart from its own
    return min(most)


def _filled(rules: Rules, room: Room, of: Profiled) -> Room:
    times = _times(rules, room, of[0])
    if not times:
        return room
    full = room.copy()
    ask = rules.ask
    for _ in range(times):
        spot = spots_in(ask, full)[0]
        full.take(of, spot.claim, spot.devices, Disk(ask.version, ask.weights_bytes, ask.disk_bytes))
    return full
