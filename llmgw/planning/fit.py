"""Whether an estimate fits where it is to run, and what is short where it does not."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw.planning.estimate import Estimate
from llmgw.units import GIB


@dataclass(frozen=True, slots=True)
class Short:
    """A place that has too little memory."""

    where: str
    needed: int
    usable: int

    @property
    def missing(self) -> int:
        """Bytes it is short of."""
        return self.needed - self.usable

    def __str__(self) -> str:
        return f"{self.where}: {self.needed / GIB:.1f} GiB are needed and {self.usable / GIB:.1f} GiB can be had"


def shortages(estimate: Estimate, *, cards: tuple[int, ...] = (), host: int | None = None) -> tuple[Short, ...]:
    """Where an estimate does not fit; none: it does.

    Args:
        estimate: of one replica.
        cards: bytes that can be had of each card it is laid out on.
        host: bytes that can be had of the host, or None where nobody knows.
    """
    found = []
    if host is not None and estimate.host_bytes > host:
        found.append(Short("host", estimate.host_bytes, host))
    for number, needed in enumerate(estimate.by_card):
        usable = cards[number] if number < len(cards) else 0
        if needed > usable:
            found.append(Short(f"card {number}", needed, usable))
    return tuple(found)
