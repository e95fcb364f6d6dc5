"""An estimate: every term apart, with where it is taken and what it rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HOST = "host"
HEADER = "from the header"
FILE_SIZE = "from the file's size"
ENGINE = "measured of the engine"
ASKED = "as asked"

GPU = "card"


def card(number: int) -> str:
    """The place of a term on a card."""
    return f"{GPU} {number}"


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that takes memory."""

    term: str
    """Its name, as the metrics of measurements have it: kv_cache, compute_buffer."""
    where: str
    """`host`, or `card N`."""
    bytes: int
    basis: str
    """What the figure rests on."""
    why: str
    """Which figures gave it, for `--explain`."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one replica takes."""

    architecture: str
    context: int
    """Tokens of all slots together."""
    parallel: int
    terms: tuple[Term, ...]
    notes: tuple[str, ...] = ()
    """Sentences about what is less sure than it looks."""

    @property
    def host_bytes(self) -> int:
        """All of the host's memory."""
        return self._sum(HOST)

    @property
    def card_bytes(self) -> int:
        """Of all cards together."""
        return sum(self.by_card)

    @property
    def by_card(self) -> tuple[int, ...]:
        """Of each card, in order."""
        numbers = [int(term.where.removeprefix(GPU)) for term in self.terms if term.where != HOST]
        return tuple(self._sum(card(n)) for n in range(max(numbers, default=-1) + 1))

    def total(self, name: str) -> int:
        """One kind of term, wherever it is."""
        return sum(term.bytes for term in self.terms if term.term == name)

    def _sum(self, where: str) -> int:
        return sum(term.bytes for term in self.terms if term.where == where)


def kept(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Without those that take nothing."""
    return tuple(term for term in terms if term.bytes)
