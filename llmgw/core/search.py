"""Another arrangement, where putting needs down one after another left some without a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from llmgw.core.needs import Need, Spot
from llmgw.core.rooms import Rooms, spots_in
from llmgw.core.rules import Rules

EXACT_NEEDS, EXACT_ROOMS = 8, 4
"""Up to so many needs that fit into so many rooms every arrangement is looked at."""

STEPS = 20_000
"""Rooms looked at in all, beyond that: about a fifth of a second."""


class Found(NamedTuple):
    """What a search came to."""

    spots: dict[str, Spot] | None
    """A spot for every need, by its id; None: there is no arrangement, or none was found in time."""
    steps: int
    ended: bool
    """Whether it was given up before everything was looked at."""


class Asked(NamedTuple):
    """One need, with the rules for it."""

    need: Need
    rules: Rules


def search(asked: Sequence[Asked], rooms: Rooms) -> Found:
    """A spot for each, or none: rooms are left as they were.

    What fits into the fewest rooms is put down first. An arrangement of what is
    left over that was looked at and led nowhere is not looked at again.
    """
    return _Search(asked, rooms).run()


class _Search:
    def __init__(self, asked: Sequence[Asked], rooms: Rooms) -> None:
        # The fullest first, once: to sort them anew for each need would cost more than the budget says.
        fullest = sorted(rooms.all.values(), key=lambda r: (r.left, r.name))
        kinds = {a.rules.ask: a.rules for a in asked}
        fitting = {ask: [r for r in fullest if rules.fits(r)] for ask, rules in kinds.items()}
        self._rooms = rooms
        self._fitting = fitting
        self._asked = sorted(asked, key=lambda a: (len(fitting[a.rules.ask]), -a.rules.ask.memory_bytes, a.need.id))
        self._open = sorted({r.name for found in fitting.values() for r in found})
        exact = len(asked) <= EXACT_NEEDS and len(self._open) <= EXACT_ROOMS
        self._budget = None if exact else STEPS
        self._steps = 0
        self._dead: set[tuple[int, tuple[tuple[object, ...], ...]]] = set()

    @property
    def _over(self) -> bool:
        return self._budget is not None and self._steps >= self._budget

    def run(self) -> Found:
        # A stack, and not a function that calls itself: there may be thousands of needs.
        chosen: list[Spot] = []
        ways = [self._ways(0)]
        while ways and len(chosen) < len(self._asked) and not self._over:
            spot = next(ways[-1], None)
            if spot is None:
                ways.pop()
                if chosen:
                    self._rooms.give(self._asked[len(chosen) - 1].need, chosen.pop())
                continue
            self._rooms.take(self._asked[len(chosen)].need, spot)
            chosen.append(spot)
            ways.append(self._ways(len(chosen)))
        whole = len(chosen) == len(self._asked)
        spots = {a.need.id: spot for a, spot in zip(self._asked, chosen, strict=False)}
        for a, spot in zip(self._asked, chosen, strict=False):
            self._rooms.give(a.need, spot)
        return Found(spots if whole else None, self._steps, ended=not whole and self._over)

    def _ways(self, depth: int) -> Iterator[Spot]:
        """Where the need of this depth can go; of rooms that are as good as each other, one."""
        if depth == len(self._asked) or (self._budget is None and self._known(depth)):
            return
        rules = self._asked[depth].rules
        tried = set()
        for room in self._fitting[rules.ask]:
            self._steps += 1
            if self._over:
                return
            if rules.fits(room) and (state := room.state()) not in tried:
                tried.add(state)
                yield from spots_in(rules.ask, room)

    def _known(self, depth: int) -> bool:
        """Whether the same needs were left with the same rooms before."""
        here = (depth, tuple(sorted(self._rooms.all[n].state() for n in self._open)))
        if here in self._dead:
            return True
        self._dead.add(here)
        return False
