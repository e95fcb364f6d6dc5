"""Room on the mirror's disk: whether a fetch has it, and what may go before its time to make some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llmgw.catalog.server import MirrorEntry
from llmgw.core.actions import Held, Remove
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.retention import Retention
from llmgw.units import show_bytes

SHOWN = 5
"""Versions that are named where room is short: the longest unreferenced ones."""

_UNDER_WAY = (HoldingState.QUEUED, HoldingState.FETCHING)


class MirrorDisk:
    """What is left of it, while fetches are decided one after another."""

    def __init__(self, mirror: MirrorEntry, seen: MirrorSeen, kept: Retention, sizes: Mapping[str, int]) -> None:
        """Look at what is left.

        Args:
            mirror: what it keeps free.
            seen: the whole of what it holds.
            kept: what is there only for a while.
            sizes: bytes of versions that are wanted, where they are known, by key.
        """
        self._mirror = mirror
        self.removals: list[Remove] = []
        self._leaving = 0
        """Bytes that removals of this pass and of earlier ones give back, and that are not free yet."""
        free = seen.disk_free_bytes
        self._left = None if free is None else free - mirror.reserve
        holdings = {h.key: h for h in seen.holdings}
        if self._left is not None:
            self._leaving = seen.removed_bytes
            self._left -= sum(_to_come(h, sizes.get(h.key)) for h in seen.holdings if h.state in _UNDER_WAY)
        catalog = (k for k, h in holdings.items() if h.origin == "catalog" and h.state not in _UNDER_WAY)
        self._spare = [holdings[k] for k in kept.spare(catalog)]

    def admit(self, name: str, key: str, size: int | None, have: int) -> Held | None:
        """Take the room of one fetch, or say why there is none.

        Args:
            name: the model's.
            key: of the version.
            size: of all its files; None: nobody has said, and only the mirror will see.
            have: bytes of them that are there already.
        """
        if self._left is None:
            return None
        need = max(0, size - have) if size is not None else 0
        # Of an unknown size it is only known that it is too much where nothing is left.
        short = need - self._left
        if short <= 0:
            self._left -= need
            return None
        if short <= self._leaving:
            self._left -= need
            return Held(name, "it waits until the mirror has deleted what it removed", model=name)
        missing = short - self._leaving
        going = _enough(self._spare, missing)
        if going and self._mirror.release_for_fetch:
            self._left -= need
            return self._release(name, key, going)
        return self._full(name, size, missing, bool(going))

    def _release(self, name: str, key: str, going: list[Holding]) -> Held:
        for h in going:
            why = f"it makes room for {key}: nothing refers to it, and mirror.release_for_fetch lets it go"
            self.removals.append(Remove(h.name, h.version, why))
            self._spare.remove(h)
            self._leaving += _size(h)
        names = " and ".join(h.key for h in going)
        return Held(name, f"it waits until the mirror has removed {names}, which makes room for it", model=name)

    def _full(self, name: str, size: int | None, missing: int, enough: bool) -> Held:
        what = f"of {show_bytes(size)}" if size is not None else "and its size is not known"
        detail = f"{show_bytes(missing)} short, {what}; {show_bytes(self._mirror.reserve)} stay free"
        named = ", ".join(f"{h.key} ({show_bytes(_size(h))})" for h in self._spare[:SHOWN])
        more = f" and {len(self._spare) - SHOWN} more" if len(self._spare) > SHOWN else ""
        if enough:
            do = f"set mirror.release_for_fetch, or remove what only its retention keeps: {named}{more}"
        elif named:
            do = f"free room on the mirror's disk; what only its retention keeps is not enough: {named}{more}"
        else:
            do = "free room on the mirror's disk, or lower mirror.reserve"
        why = "the mirror's disk has no room for its weights"
        return Held(name, why, detail, do, model=name, stalled=not enough, kind="disk")


def _enough(spare: Iterable[Holding], missing: int) -> list[Holding]:
    """As many as are needed, the oldest first; none where all of them are not enough."""
    going: list[Holding] = []
    for holding in spare:
        if missing > 0 and _size(holding):
            going.append(holding)
            missing -= _size(holding)
    return going if missing <= 0 else []


def _size(holding: Holding) -> int:
    return sum(f.bytes for f in holding.files) or holding.done_bytes


def _to_come(holding: Holding, size: int | None) -> int:
    total = holding.total_bytes if holding.total_bytes is not None else size
    return 0 if total is None else max(0, total - holding.done_bytes)
