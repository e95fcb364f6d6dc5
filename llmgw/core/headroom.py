"""How many more replicas of each profile would find a node now, and why not more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.core.cards import suits
from llmgw.core.needs import RANK, Ask, ask_of, shunners
from llmgw.core.replicas import Fleet
from llmgw.core.rooms import Profiled, Room, Rooms
from llmgw.core.rules import Rules
from llmgw.core.unplaced import Unplaced
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.core.within import domain_for

LOOKS = 20_000
"""Rooms that are looked at in all for what people read: about half a second. The models after that are asked about
one by one."""

Freed = Callable[[Model], Iterable[Room]]
"""The rooms that would be larger, as they would be then, had all that gives way to a model gone."""


class Headroom(Struct, frozen=True, order=True):
    """How many more of one profile there could be."""

    model: str
    profile: str
    more: int
    """That fit beside all that runs."""
    by_preempting: int
    """That fit where everything of a lower class gave way: at least `more`."""


class Left(Struct, frozen=True, omit_defaults=True):
    """The same for people, in a status."""

    profile: str
    more: int | None = None
    """None: it is not known what one takes."""
    by_preempting: int = 0
    why: str = ""
    """What keeps off the next one, on the nearest nodes, and what would change that."""

    @property
    def sentence(self) -> str:
        """`room for 2 more of gpu, 5 with preempting; not more because …`."""
        if self.more is None:
            return f"room for more of {self.profile} is not known: {self.why}"
        preempting = f", {self.by_preempting} with preempting" if self.by_preempting > self.more else ""
        return f"room for {self.more or 'no'} more of {self.profile}{preempting}; not more because {self.why}"


def headroom(
    entries: Iterable[WantedModel],
    rooms: Rooms,
    sizes: Mapping[str, int],
    freed: Freed | None = None,
    shunned: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Headroom, ...]:
    """For each profile of some models, in their order. Each is counted as if it were the only one to grow.

    Args:
        entries: the models that are asked about.
        rooms: what is left; it is not changed.
        sizes: bytes of each version, by key.
        freed: what a model may have by preempting; None: nothing.
        shunned: by model, the profiles that keep away from it, as `shunners` says.
    """
    plain: dict[Ask, int] = {}
    found = []
    for entry in entries:
        model = entry.sized
        for profile in model.profiles:
            rules = _rules(entry, profile, rooms, sizes, (shunned or {}).get(model.name, ()))
            if rules.ask not in plain:
                plain[rules.ask] = sum(rules.times(room, model.name) for room in rooms.all.values())
            more = plain[rules.ask]
            gained = sum(
                rules.times(room, model.name) - rules.times(rooms.all[room.name], model.name)
                for room in (freed(model) if freed else ())
            )
            found.append(Headroom(model.name, profile.name, more, more + gained))
    return tuple(found)


def why_not_more(
    entry: WantedModel, profile: str, rooms: Rooms, sizes: Mapping[str, int], shunned: tuple[str, ...] = ()
) -> Unplaced:
    """What would keep off the next one, were all placed that fit."""
    (of,) = (p for p in entry.sized.profiles if p.name == profile)
    rules = _rules(entry, of, rooms, sizes, shunned)
    return Unplaced(rules.table([_filled(rules, room, (entry.model.name, profile)) for room in rooms.all.values()]))


def left(wanted: Wanted, fleet: Fleet, sizes: Mapping[str, int], looks: int = LOOKS) -> dict[str, tuple[Left, ...]]:
    """Of every profile that runs or may run, by model, as far as so many looks go: the first by name.

    Args:
        wanted: what is asked.
        fleet: the settled fleet.
        sizes: bytes of each version, by key.
        looks: rooms that may be looked at.
    """
    rooms = Rooms(fleet, sizes=sizes)
    shunned = shunners(entry.model for entry in wanted.models.values())
    below = {word: _without_lower(word, wanted, fleet, rooms) for word in RANK}
    found: dict[str, tuple[Left, ...]] = {}
    for name, entry in sorted(wanted.models.items()):
        model = entry.sized
        looks -= len(model.profiles) * len(rooms.all)
        if looks < 0:
            break
        if not entry.stopped:
            counted = headroom([entry], rooms, sizes, lambda of: below[of.class_], shunned)
            found[name] = tuple(_left(entry, h, rooms, sizes, shunned.get(name, ())) for h in counted)
    return found


def _left(
    entry: WantedModel, counted: Headroom, rooms: Rooms, sizes: Mapping[str, int], shunned: tuple[str, ...]
) -> Left:
    (profile,) = (p for p in entry.sized.profiles if p.name == counted.profile)
    if profile.memory_gib is None:
        why = f"its memory is not written and cannot be worked out; llmgw lock {entry.model.name}"
        return Left(profile.name, why=why)
    why = why_not_more(entry, profile.name, rooms, sizes, shunned).words
    return Left(profile.name, counted.more, counted.by_preempting, why)


def _without_lower(word: str, wanted: Wanted, fleet: Fleet, rooms: Rooms) -> list[Room]:
    """The rooms that what is of a lower class has something in, without it."""
    lower = {n for n, entry in wanted.models.items() if RANK[entry.model.class_] > RANK[word]}
    return rooms.without(r.key for name in sorted(lower) for r in fleet.of(name) if r.holds)


def _rules(
    entry: WantedModel, profile: Profile, rooms: Rooms, sizes: Mapping[str, int], shunned: tuple[str, ...]
) -> Rules:
    model, version = entry.sized, entry.version_key
    ask = ask_of(model, profile, version=version, weights_bytes=sizes.get(version, 0), shunned=shunned)
    if profile.keep_within is None:
        return Rules(ask)
    key = f"{model.name}/{profile.name}"
    # As many as can be: of two places the roomier one.
    count = sum(max(0, room.memory_bytes // ask.memory_bytes) for room in rooms.all.values())
    within = domain_for(Rules(ask), key, profile.keep_within, rooms, count, version=version)
    return Rules(ask._replace(within=within))


def _filled(rules: Rules, room: Room, of: Profiled) -> Room:
    """A room with as many in it as fit."""
    times = rules.times(room, of[0])
    if not times:
        return room
    full, ask = room.copy(), rules.ask
    claim = ask.claim(room.cores)
    full.memory_bytes -= times * claim.memory_bytes
    full.cpu_cores -= times * claim.cpu_cores
    full.models[of[0]] += times
    full.models["/".join(of)] += times
    left = times * claim.cards
    for kind, uuids in full.free.items():
        if suits(ask, kind):
            taken = min(left, len(uuids) // max(1, claim.cards) * claim.cards)
            del uuids[:taken]
            left -= taken
    if full.disk_bytes is not None:
        full.disk_bytes -= times * ask.disk_bytes + (0 if room.stored[ask.version] else ask.weights_bytes)
    if ask.version:
        full.stored[ask.version] += times
    return full
