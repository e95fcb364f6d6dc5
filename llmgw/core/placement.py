"""Step 4 of a pass: a node for each replica that is missing, or why there is none.

Nothing that runs is moved. The needs of one rank are placed together, the largest
first; where that leaves some without a node, they are put closer, then every
arrangement is searched as far as a budget goes, and only then is one left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from llmgw.core.needs import Ask, Need, Spot, ask_of
from llmgw.core.rooms import Room, Rooms, spots_in
from llmgw.core.rules import Rules
from llmgw.core.search import Asked, search
from llmgw.core.shelf import Shelf
from llmgw.core.unplaced import Unplaced

SHELVES = 64
"""Kinds of needs whose rooms are kept in order at the same time: each has every node in it."""

Placed = dict[str, Spot]
"""Spots by the ids of their needs."""


def place(needs: Sequence[Need], rooms: Rooms) -> dict[str, Spot | Unplaced]:
    """A spot for each need, by its id, or why there is none.

    What is placed is taken from the rooms.
    """
    rules: dict[Ask, Rules] = {}
    asked = [Asked(need, rules.setdefault(ask := _ask(need), Rules(ask))) for need in needs]
    found: dict[str, Spot | Unplaced] = {}
    searched: dict[str, int] = {}
    for _, group in groupby(sorted(asked, key=lambda a: a.need.rank), key=lambda a: a.need.rank):
        spots, steps = _group(list(group), rooms)
        found.update(spots)
        searched |= steps
    tables: dict[tuple[Ask, int], Unplaced] = {}
    for a in asked:
        if a.need.id not in found:
            key = (a.rules.ask, searched.get(a.need.id, 0))
            if key not in tables:
                tables[key] = Unplaced(a.rules.table(rooms.all.values()), key[1])
            found[a.need.id] = tables[key]
    return found


def spot_in(need: Need, rooms: Iterable[Room]) -> Spot | None:
    """Where the need would go in one of some rooms: those of nodes that something is imagined gone from.

    Where it has failed only if none of the others will do.
    """
    rules = Rules(_ask(need))
    in_turn = sorted(rooms, key=lambda room: room.name in need.avoid) if need.avoid else rooms
    room = next((room for room in in_turn if rules.fits(room)), None)
    return spots_in(rules.ask, room)[0] if room else None


def _ask(need: Need) -> Ask:
    return ask_of(
        need.model,
        need.profile,
        version=need.version,
        weights_bytes=need.weights_bytes,
        shunned=need.shunned,
        within=need.within,
    )


def _group(asked: list[Asked], rooms: Rooms) -> tuple[Placed, dict[str, int]]:
    """Spots for the needs of one rank, and for those without one the steps a search was given up after."""
    memory, cores, cards = rooms.weigh(a.rules.ask for a in asked)

    def size(a: Asked) -> float:
        claim = a.rules.ask.claim(0)
        return memory * claim.memory_bytes + cores * claim.cpu_cores + cards * claim.cards

    asked.sort(key=lambda a: (-size(a), a.need.order))
    first = _fill(asked, rooms)
    left = [a for a in asked if a.need.id not in first]
    if not left:
        return first, {}
    # What fits nowhere even now, before anything is placed, is in nobody's way.
    _give_back(asked, first, rooms)
    hopeless = {ask for ask in {a.rules.ask for a in left} if not _fits_somewhere(ask, left, rooms)}
    rest = [a for a in asked if a.rules.ask not in hopeless]
    if len(first) < len(rest):
        return _arranged(rest, rooms, first)
    _take(asked, first, rooms)
    return first, {}


def _fits_somewhere(ask: Ask, asked: Iterable[Asked], rooms: Rooms) -> bool:
    rules = next(a.rules for a in asked if a.rules.ask == ask)
    return any(rules.fits(room) for room in rooms.all.values())


def _arranged(asked: list[Asked], rooms: Rooms, first: Placed) -> tuple[Placed, dict[str, int]]:
    """All of them if that can be found, else as many as any way of putting them down places."""
    closer = _fill(asked, rooms, closest=True)
    _give_back(asked, closer, rooms)
    found = None if len(closer) == len(asked) else search(asked, rooms)
    if found and found.spots:
        best = found.spots
    else:
        in_turn = _fill(sorted(asked, key=lambda a: a.need.order), rooms)
        _give_back(asked, in_turn, rooms)
        best = max((in_turn, first, closer), key=len)
    _take(asked, best, rooms)
    steps = found.steps if found and found.ended else 0
    return best, {a.need.id: steps for a in asked if steps and a.need.id not in best}


def _fill(asked: Sequence[Asked], rooms: Rooms, *, closest: bool = False) -> Placed:
    """Put them down one after another, each where it is best, and leave out what finds no room."""
    spots: Placed = {}
    shelves: dict[Ask, Shelf] = {}
    for need, rules in asked:
        shelf = shelves.get(rules.ask)
        if shelf is None:
            if len(shelves) >= SHELVES:
                shelves.clear()
            shelf = shelves[rules.ask] = Shelf(rules, rooms)
        room = _best(need, shelf, rooms, closest=closest)
        if room is not None:
            spots[need.id] = spots_in(rules.ask, room)[0]
            rooms.take(need, spots[need.id])
    return spots


def _take(asked: Iterable[Asked], spots: Placed, rooms: Rooms) -> None:
    for need, _ in asked:
        if need.id in spots:
            rooms.take(need, spots[need.id])


def _give_back(asked: Iterable[Asked], spots: Placed, rooms: Rooms) -> None:
    for need, _ in asked:
        if need.id in spots:
            rooms.give(need, spots[need.id])


Liking = tuple[bool, tuple[int, ...], bool, float, str]
"""How much a room is liked: the least is the best."""


def _best(need: Need, shelf: Shelf, rooms: Rooms, *, closest: bool) -> Room | None:
    """Where it has not failed, then apart from its like, then where its weights are, then the fullest.

    Args:
        need: what is to be placed.
        shelf: the rooms its kind fits into.
        rooms: all of them.
        closest: put it into the fullest room it fits, whatever else is liked.
    """
    homes = {name: n for name, n in rooms.homes[need.model.name].items() if n and name in rooms.all}
    special = {*homes, *rooms.holders.get(need.version, ()), *need.avoid, *rooms.suspects}
    shared: Counter[tuple[str, ...]] = Counter()
    for name, n in homes.items():
        for level in rooms.levels:
            shared[rooms.all[name].domain[:level]] += n

    def liking(room: Room) -> Liking:
        name, domain = room.name, room.domain
        last = name in need.avoid or name in rooms.suspects
        if closest:
            return last, (), False, room.left, name
        if need.profile.placement == "binpack":
            return last, (), bool(need.version) and need.version not in room.held, room.left, name
        apart = (homes.get(name, 0), *[shared[domain[:level]] for level in rooms.levels])
        return last, apart, bool(need.version) and need.version not in room.held, room.left, name

    candidates = [rooms.all[name] for name in special if name in rooms.all]
    possible = [room for room in candidates if shelf.rules.fits(room)]
    return min((*possible, *shelf.first(special)), key=liking, default=None)
