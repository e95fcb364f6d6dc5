"""One figure, beside what it is held against."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """As it stands in build/bench.json."""

    name: str
    value: float
    unit: str
    peer: str = ""
    """What it is compared with; empty: nothing, it is a figure to watch."""
    peer_value: float | None = None
    must: float | None = None
    """The most that value (or, with a peer, value over peer) may be."""

    @property
    def ratio(self) -> float | None:
        return round(self.value / self.peer_value, 3) if self.peer_value else None

    @property
    def ok(self) -> bool:
        held = self.ratio if self.ratio is not None else self.value
        return self.must is None or held <= self.must

    def plain(self) -> dict[str, object]:
        """With what follows from it."""
        return {**self._asdict(), "ratio": self.ratio, "ok": self.ok}


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of this process, and of the children it has waited for, that some work takes."""

    def spent() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))

    before = spent()
    work()
    return spent() - before


def least(work: Callable[[], object], *, times: int) -> float:
    """The least CPU seconds of several runs: what noise adds is left out."""
    return min(cpu_s(work) for _ in range(times))


def peak_gib() -> float:
    """The most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
