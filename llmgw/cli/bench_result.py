"""What a measurement through the gateway came to, and how it is said."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct, structs

from llmgw.cli.render import columns, count
from llmgw.core.live import Figures
from llmgw.planning.learned import Figure
from llmgw.units import GIB

HEAVIEST = 1000
"""The most that a catalog file may give as a weight."""


class Measured(Struct, frozen=True):
    """What one profile did."""

    name: str
    """Empty: it is not known which one answered."""
    replicas: tuple[str, ...]
    """That answered."""
    alone_tps: float | None
    """Of one answer at a time, the one in the middle. None: none was long enough."""
    streams: int
    """That there were at a time, when all slots were taken. 0: how many there are is not known."""
    together_tps: float | None
    """Of all of them together."""
    first_p50_s: float
    first_p90_s: float
    """Until the first token of an answer alone."""
    expected_tps: float | None
    """Of one answer alone. None: it was not worked out."""
    weight: int | None
    """As its file has it."""
    proposed: int | None = None
    """None: there is no other profile of its priority to share with."""


class Memory(Struct, frozen=True):
    """What one replica takes at its most."""

    replica: str
    node: str
    host: Figure | None
    card: Figure | None
    """None: it is on none, or one of the two is not known."""
    host_bytes: int | None = None
    card_bytes: int | None = None


class Bench(Struct, frozen=True):
    """All of it."""

    model: str
    gateway: str
    requests: int
    tokens: int
    profiles: tuple[Measured, ...]
    memory: tuple[Memory, ...] | None
    """None: control was not asked."""
    failed: tuple[str, ...] = ()
    """What came in place of answers, a sentence each."""
    over: bool = False
    """Whether the time was over before all of it was measured."""


def weighed(measured: list[Measured], figures: Figures | None) -> Iterator[Measured]:
    """With the weights by which profiles of one priority share in proportion to what they give.

    The gateway compares the taken share of slots times weight. So a weight goes by the tokens a
    second of one slot while all are taken, and the slowest has 1.
    """
    if figures is None:
        yield from measured
        return

    def priority(one: Measured) -> int:
        return figures.priorities.get(one.name, 0)

    for _, group in groupby(sorted(measured, key=lambda m: (priority(m), m.name)), key=priority):
        of = list(group)
        slots = {m.name: m.together_tps / m.streams for m in of if m.together_tps and m.streams}
        for one in of:
            if len(slots) < 2 or one.name not in slots:
                yield one
            else:
                proposed = round(slots[one.name] / min(slots.values()))
                yield structs.replace(one, proposed=max(1, min(HEAVIEST, proposed)))


def text(found: Bench) -> str:
    """As a person reads it."""
    return "\n".join(_lines(found))


def _lines(found: Bench) -> Iterator[str]:
    what = f"{count(found.requests, 'answer')} of {found.tokens} tokens alone, then all slots at once"
    yield f"{found.model} through {found.gateway}: {what}"
    head = ("PROFILE", "ALONE", "ESTIMATE", "ALL SLOTS", "EACH", "FIRST TOKEN p50", "p90", "WEIGHT")
    yield f"\n{columns([head, *map(_row, found.profiles)])}"
    if any(m.proposed is not None for m in found.profiles):
        yield "a weight goes by what one slot gives while all are taken; the slowest of a priority has 1"
    if found.memory is None:
        yield "\nmemory, estimates and slots: control was not asked (--control, --control-key-file)"
    elif found.memory:
        rows = [(m.replica, m.node, *_size(m.host, m.host_bytes), *_size(m.card, m.card_bytes)) for m in found.memory]
        yield f"\n{columns([('REPLICA', 'NODE', 'MEMORY', 'ESTIMATE', 'ON CARDS', 'ESTIMATE'), *rows])}"
    yield from (f"\nfailed  {why}" for why in found.failed)
    if found.over:
        yield "\nthe time was over before all of it was measured: give it longer with --within"


def _row(one: Measured) -> tuple[str, ...]:
    together = one.together_tps
    return (
        one.name or "?",
        _tps(one.alone_tps),
        f"{_tps(one.expected_tps)}{_off(one.alone_tps, one.expected_tps)}",
        f"{_tps(together)} of {one.streams}" if together else "-",
        _tps(together / one.streams if together else None),
        f"{one.first_p50_s:.2f} s",
        f"{one.first_p90_s:.2f} s",
        "-"
        if one.weight is None
        else str(one.weight)
        if one.proposed is None
        else f"{one.weight}, better {one.proposed}",
    )


def _tps(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} tok/s"


def _size(figure: Figure | None, found: int | None) -> tuple[str, str]:
    measured = "-" if found is None else f"{found / GIB:.2f} GiB"
    if figure is None:
        return measured, "-"
    return measured, f"{figure.predicted / GIB:.2f} GiB{_off(figure.measured, figure.predicted)}"


def _off(measured: float | None, predicted: float | None) -> str:
    """By how much an estimate was wrong, of what was measured: `, 4 % too high`."""
    if not measured or not predicted:
        return ""
    percent = round(100 * (predicted / measured - 1))
    return f", {abs(percent)} % too {'high' if percent > 0 else 'low'}" if percent else ", as measured"
