"""From when to when each replica served: lines of history, joined."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs

from llmgw.core.history import Kind, Line, Of

LOST = "how it ended was not written down"


class Interval(Struct, frozen=True):
    """One life of one replica."""

    replica: str
    generation: int
    node: str
    started: int | None
    """UTC seconds. None: its start is not among the lines."""
    ready: int | None = None
    """Since when it served. None: it never did."""
    ended: int | None = None
    """None: it goes on."""
    end: str = ""
    """stop | failed | unknown. Empty: it goes on."""
    cards: tuple[str, ...] = ()
    version: str = ""
    digest: str = ""
    engine: str = ""
    build: str = ""
    fingerprint: str = ""
    commit: str = ""
    author: str = ""
    why: str = ""
    """Why it was started."""
    how: str = ""
    """How it ended."""

    @property
    def began(self) -> int:
        """When it was first heard of."""
        return next(at for at in (self.started, self.ready, self.ended, 0) if at is not None)


class Joined(Struct, frozen=True):
    """All lives that lines tell of, and where lines are missing."""

    intervals: tuple[Interval, ...]
    """In the order in which they began."""
    gaps: tuple[str, ...]
    """Sentences, in order of time."""
    gaps_at: tuple[int, ...]
    """When each was met, UTC seconds."""


def joined(lines: Iterable[Line]) -> Joined:
    """What lines in order of time tell together."""
    going: dict[Of, Interval] = {}
    over: list[Interval] = []
    gaps: list[tuple[int, str]] = []
    for line in lines:
        life = going.pop(line.of, None)
        if life is None and line.kind is not Kind.START:
            gaps.append((line.at, f"a {line.kind} of {_name(line)} without a start"))
        elif life is not None and line.kind is Kind.START:
            gaps.append((line.at, f"a start of {_name(line)} that had not ended"))
            over.append(structs.replace(life, ended=line.at, end="unknown", how=LOST))
            life = None
        elif life is not None and life.ready is not None and line.kind is Kind.READY:
            gaps.append((line.at, f"{_name(line)} is ready once more without an end before"))
        life = _with(life, line)
        if line.kind in (Kind.STOP, Kind.FAILED):
            over.append(life)
        else:
            going[line.of] = life
    every = sorted((*over, *going.values()), key=lambda i: (i.began, i.replica, i.generation, i.node))
    return Joined(tuple(every), tuple(text for _, text in gaps), tuple(at for at, _ in gaps))


def within(intervals: Iterable[Interval], since: float, until: float) -> tuple[Interval, ...]:
    """Those of which some part is in a time, both ends included."""
    return tuple(i for i in intervals if i.began <= until and (i.ended is None or i.ended >= since))


def _name(line: Line) -> str:
    return f"{line.replica}, generation {line.generation}, on {line.node}"


def _with(life: Interval | None, line: Line) -> Interval:
    """The life, one line later. What a later line knows better is as that has it."""
    if life is None:
        life = Interval(
            line.replica,
            line.generation,
            line.node,
            line.at if line.kind is Kind.START else None,
            why=line.reason if line.kind is Kind.START else "",
        )
    known = {
        name: getattr(line, name) or getattr(life, name)
        for name in ("cards", "version", "digest", "engine", "build", "fingerprint", "commit", "author")
    }
    life = structs.replace(life, **known)
    if line.kind is Kind.READY:
        return structs.replace(life, ready=line.at if life.ready is None else life.ready)
    if line.kind in (Kind.STOP, Kind.FAILED):
        return structs.replace(life, ended=line.at, end=str(line.kind), how=line.reason)
    return life
