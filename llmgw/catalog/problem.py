"""What is wrong in a file of the repository: where, what, why and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Steps: TypeAlias = tuple[str | int, ...]
"""The way to a value inside a file: `("profiles", 0, "replicas")`."""


class Place(NamedTuple):
    """A line and a column, counted from 1 as editors do."""

    line: int
    column: int


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One problem of one file. Sorted by where it is."""

    path: str
    """Of the file, from the top of the repository."""
    line: int
    """0 with column 0: the file as a whole, one that is missing for example."""
    column: int
    what: str
    why: str
    do: str
    model: str = ""
    """The model it concerns, or empty: its name could not be read, or it is no model's."""

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n  because {self.why}\n  next: {self.do}"

    def line_form(self) -> str:
        """The same on one line, for a log and a table's cell."""
        return f"{self.where}: {self.what}: {self.why}; {self.do}"


class Finding(NamedTuple):
    """A problem before its file is known: what reading, types and rules each yield."""

    at: Steps
    """The value it is about."""
    what: str
    why: str
    do: str
    place: Place | None = None
    """Where to point, when that is not where the value at `at` is."""


def label(at: Steps) -> str:
    """`profiles[0].replicas`, as people write such a way."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{shorten(step, 40)}" for step in at)
    return text.removeprefix(".")


def shorten(text: str, limit: int = 60) -> str:
    """At most `limit` characters of it, on one line and with nothing that moves a terminal's cursor."""
    one_line = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return one_line if len(one_line) <= limit else f"{one_line[: limit - 1]}…"
