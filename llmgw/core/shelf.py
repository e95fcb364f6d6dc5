"""The rooms one ask fits into, so that the best is found without looking at all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush

from llmgw.core.rooms import Room, Rooms
from llmgw.core.rules import Rules


class Shelf:
    """Rooms by failure domain, the fullest first.

    A room that was touched since the shelf was last asked is put in its new place,
    and one that does not fit any more falls out when it is met. While needs are
    placed nothing grows; where something is given back, a new shelf is made.
    """

    def __init__(self, rules: Rules, rooms: Rooms) -> None:
        self.rules = rules
        self._rooms = rooms
        self._seen = len(rooms.touched)
        self._heaps: dict[tuple[str, ...], list[tuple[float, str]]] = {}
        for name, room in rooms.all.items():
            if rules.fits(room):
                self._heaps.setdefault(room.domain, []).append((room.left, name))
        for heap in self._heaps.values():
            heapify(heap)
        self._tops: dict[tuple[str, ...], Room] = {}
        """The fullest of each failure domain, as far as it is known to be that still."""

    def first(self, aside: Collection[str]) -> Iterator[Room]:
        """The fullest room of each failure domain, but for some names."""
        touched = self._rooms.touched
        for room in touched[self._seen :]:
            if room.domain in self._heaps:
                heappush(self._heaps[room.domain], (room.left, room.name))
                self._tops.pop(room.domain, None)
        self._seen = len(touched)
        for domain, heap in self._heaps.items():
            top = self._tops.get(domain)
            if top is None or top.name in aside:
                top = self._top(domain, heap, aside)
            if top is not None:
                yield top

    def _top(self, domain: tuple[str, ...], heap: list[tuple[float, str]], aside: Collection[str]) -> Room | None:
        kept = []
        found = None
        while heap and found is None:
            left, name = heap[0]
            room = self._rooms.all[name]
            if left != room.left or not self.rules.fits(room):
                heappop(heap)  # as it was before something was put into it, or full
            elif name in aside:
                kept.append(heappop(heap))
            else:
                found = room
        for entry in kept:
            heappush(heap, entry)
        if found is not None and not kept:
            self._tops[domain] = found
        return found
