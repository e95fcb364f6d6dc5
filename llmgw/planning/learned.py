"""What estimates turned out to be worth: runs, each with what was predicted beside what was measured.

Everything is a ratio, measured over predicted, so 1 is an estimate that came true. Memory goes by
the engine, its version, the architecture and the kind of card; speed by the node first, since
hosts and drivers differ. docs/estimates.md#how-wrong-we-have-been
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from statistics import median
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, structs

from llmgw.planning.speed import CardSpeed

CPU = "cpu"
"""The place of a run without a card; else the class of its cards."""
MOST_RUNS = 400
"""That are kept: the file is read at each start of control. The oldest go first."""
MOVED = 0.03
"""A middle that moves by more than this part is worth a commit."""
APART_S = 6 * 3600
"""Between two commits for that, at least."""
SETTLED_S = 600.0
"""So long it has to stay moved: the first figures of a replica are of its first few answers."""
LEAST_RAISED = 1.02
"""Less is within what a claim is rounded up by."""
MOST_RAISED = 2.0
"""An estimate is never raised by more: one engine that leaks must not keep a kind of model from being placed."""
MORE_THAN_SEEN = 1.1
"""Of the most a profile's own replicas took: the next request may be the longest yet."""
NINE_OF_TEN = 0.9

_Amount = Annotated[float, Meta(gt=0, lt=1e15)]
_Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
_Word = Annotated[str, Meta(max_length=128)]


class Figure(Struct, frozen=True, order=True):
    """One quantity, in bytes or tokens a second."""

    predicted: _Amount
    measured: _Amount

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted


class Run(Struct, frozen=True, omit_defaults=True):
    """What the replicas of one profile came to on one node."""

    model: _Word
    profile: _Word
    node: _Word
    engine: _Word
    architecture: _Word
    place: _Word
    """`cpu`, or the class of its cards."""
    version: _Word = ""
    """Of the engine. Empty is unknown."""
    at: _Count = 0
    """When it was last measured, UTC seconds."""
    host: Figure | None = None
    """The most memory of the host."""
    card: Figure | None = None
    """The most memory of all its cards together."""
    tps: Figure | None = None
    """One answer alone."""
    speed: CardSpeed | None = None
    """Of the node's cards, solved from `tps`."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a newer run replaces it by."""
        return self.model, self.profile, self.node, self.version


class Estimates(Struct, frozen=True, omit_defaults=True):
    """What the status branch says of all runs."""

    at: _Count = 0
    """When that was last found worth a commit, UTC seconds."""
    runs: Annotated[tuple[Run, ...], Meta(max_length=MOST_RUNS)] = ()
    """Sorted."""


class Learned(Struct, frozen=True, omit_defaults=True):
    """What control knows of runs."""

    runs: tuple[Run, ...] = ()
    """Sorted."""
    published: Estimates = Estimates()
    """As the status branch has them. Placement goes by these, so that a plan made from the branch comes true."""
    looked_at: float = 0.0
    """UTC seconds."""
    moved_since: float = 0.0
    """Since when `runs` have said something else than what is published, UTC seconds. 0: they do not."""


Kind = tuple[str, str, str]
"""Engine, architecture and place."""


class About(NamedTuple):
    """What a prediction is of."""

    engine: str
    architecture: str
    place: str
    version: str = ""
    node: str = ""
    """Where it would run. Empty: that is open."""

    @property
    def kind(self) -> Kind:
        """What it has in common with runs whose memory says something of its own."""
        return self.engine, self.architecture, self.place


class Spread(Struct, frozen=True):
    """Ratios of several runs."""

    count: int
    p50: float
    p90: float
    """Nine of ten are no further from 1 than this one."""
    worst: float


class Row(Struct, frozen=True, omit_defaults=True):
    """How wrong estimates of one kind were."""

    engine: str
    version: str
    architecture: str
    place: str
    host: Spread | None = None
    card: Spread | None = None
    tps: Spread | None = None

    @property
    def spreads(self) -> Mapping[str, Spread]:
        """Those that are known."""
        named = {"host": self.host, "card": self.card, "tps": self.tps}
        return {name: spread for name, spread in named.items() if spread is not None}


class Margin(Struct, frozen=True):
    """How far off a prediction may be."""

    percent: int
    runs: int
    """That say so."""

    def __str__(self) -> str:
        return f"± {self.percent} % ({self.runs} run{'s' if self.runs != 1 else ''})"


def rows(runs: Iterable[Run]) -> tuple[Row, ...]:
    """The table, sorted."""
    kinds: dict[tuple[str, str, str, str], list[Run]] = {}
    for run in runs:
        kinds.setdefault((run.engine, run.version, run.architecture, run.place), []).append(run)
    return tuple(Row(*kind, *(spread(_ratios(of, w)) for w in _WHAT)) for kind, of in sorted(kinds.items()))


def spread(ratios: Iterable[float]) -> Spread | None:
    """Of some ratios; None where there are none."""
    found = sorted(ratios, key=_off)
    if not found:
        return None
    nine = found[ceil(NINE_OF_TEN * len(found)) - 1]
    return Spread(len(found), *(round(ratio, 3) for ratio in (median(found), nine, found[-1])))


def merged(runs: Iterable[Run], fresh: Iterable[Run]) -> tuple[Run, ...]:
    """The runs with newer ones in their place, sorted. A peak stays where the same was predicted."""
    kept = {run.key: run for run in runs}
    for run in fresh:
        known = kept.get(run.key)
        kept[run.key] = run if known is None else _peaks(known, run)
    newest = sorted(kept.values(), key=lambda run: (-run.at, run.key))[:MOST_RUNS]
    return tuple(sorted(newest, key=lambda run: run.key))


def published(learned: Learned, now: float) -> Learned:
    """With what is worth a commit published: a middle has moved, for long enough, and the last one is hours ago.

    Control's clock may have been ahead when the last one was made: a time to come holds nothing up.
    """
    last = learned.published
    if not _moved(rows(last.runs), rows(learned.runs)):
        return structs.replace(learned, moved_since=0.0)
    since = learned.moved_since or now
    if now - since < SETTLED_S or (last.runs and 0 <= now - last.at < APART_S):
        return structs.replace(learned, moved_since=since)
    return structs.replace(learned, published=Estimates(int(now), learned.runs), moved_since=0.0)


def raises(runs: Iterable[Run]) -> dict[Kind, float]:
    """By what the host's memory of a kind of run is multiplied: what nine of ten stayed under, where that is more."""
    found: dict[Kind, list[float]] = {}
    for run in runs:
        if run.host is not None:
            found.setdefault((run.engine, run.architecture, run.place), []).append(run.host.ratio)
    nine = {kind: sorted(ratios)[ceil(NINE_OF_TEN * len(ratios)) - 1] for kind, ratios in found.items()}
    return {kind: min(ratio, MOST_RAISED) for kind, ratio in nine.items() if ratio > LEAST_RAISED}


def shares(runs: Iterable[Run]) -> dict[tuple[str, str], float]:
    """By model and profile, what its replicas took of the host's memory that was worked out: the most, and a tenth.

    A ratio and no size, since the profile may have been given more context since.
    """
    found: dict[tuple[str, str], float] = {}
    for run in runs:
        if run.host is not None:
            key = run.model, run.profile
            found[key] = max(found.get(key, 0.0), min(run.host.ratio * MORE_THAN_SEEN, MOST_RAISED))
    return found


def quicker(runs: Iterable[Run], about: About) -> float:
    """What to multiply a predicted speed with: the middle of the runs that are most like it; 1 where there are none."""
    ratios = _ratios(_nearest(runs, about, "tps"), "tps")
    return median(ratios) if ratios else 1.0


def card_speed(runs: Iterable[Run], about: About) -> CardSpeed | None:
    """How quick the node's own cards are, or others of their class; None: no model was measured on any."""
    speeds = [run.speed for run in _nearest(runs, about, "tps") if run.speed is not None]
    return sorted(speeds, key=lambda s: (s.layer_s, s.share))[len(speeds) // 2] if speeds else None


def margin(runs: Iterable[Run], about: About, what: str) -> Margin | None:
    """How far nine of ten runs most like it were off, or None where nothing like it has run.

    Args:
        runs: that are known.
        about: the prediction.
        what: host, card or tps; of `tps` what is left once `quicker` has corrected it.
    """
    ratios = _ratios(_nearest(runs, about, what), what)
    # One run says how far off that one was, and not how alike others are.
    middle = median(ratios) if len(ratios) > 1 and what == "tps" else 1.0
    found = spread(ratio / middle for ratio in ratios)
    return Margin(max(1, ceil(round(100 * abs(found.p90 - 1), 3))), found.count) if found else None


_WHAT = ("host", "card", "tps")

_LEVELS: Mapping[bool, tuple[Callable[[Run | About], tuple[str, ...]], ...]] = {
    False: (
        lambda r: (r.engine, r.place, r.architecture, r.version),
        lambda r: (r.engine, r.place, r.architecture),
        lambda r: (r.engine, r.place),
    ),
    True: (
        lambda r: (r.engine, r.place, r.node, r.version),
        lambda r: (r.engine, r.place, r.node),
        lambda r: (r.engine, r.place, r.version),
        lambda r: (r.engine, r.place),
    ),
}
"""What runs have in common with a prediction, the narrowest first: of memory, and of speed."""


def _nearest(runs: Iterable[Run], about: About, what: str) -> list[Run]:
    """The runs that are most like it, of the narrowest likeness that any has."""
    known = [run for run in runs if getattr(run, what) is not None]
    for likeness in _LEVELS[what == "tps"]:
        if found := [run for run in known if likeness(run) == likeness(about)]:
            return found
    return []


def _ratios(runs: Iterable[Run], what: str) -> list[float]:
    figures: Iterable[Figure | None] = (getattr(run, what) for run in runs)
    return [figure.ratio for figure in figures if figure is not None]


def _off(ratio: float) -> tuple[float, float]:
    return abs(ratio - 1), ratio


def _peaks(known: Run, run: Run) -> Run:
    """The newer run: another replica of it may have needed more before, and one that just began has needed little."""

    def peak(before: Figure | None, now: Figure | None) -> Figure | None:
        if before is None or now is None or before.predicted != now.predicted:
            return now or before
        return max(before, now)

    return structs.replace(
        run,
        host=peak(known.host, run.host),
        card=peak(known.card, run.card),
        tps=run.tps or known.tps,
        speed=run.speed or known.speed,
    )


def _moved(before: Iterable[Row], now: Iterable[Row]) -> bool:
    """Whether any middle is new, or is more than `MOVED` from where it was."""
    was = {(*_of(row), what): spread.p50 for row in before for what, spread in row.spreads.items()}
    found = {(*_of(row), what): spread.p50 for row in now for what, spread in row.spreads.items()}
    return any(key not in was or abs(p50 - was[key]) > MOVED * was[key] for key, p50 in found.items())


def _of(row: Row) -> tuple[str, str, str, str]:
    return row.engine, row.version, row.architecture, row.place
