"""How commands print what they found: text for people, JSON for programs, both of one value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from llmgw.core.actions import Action, Fetch, Held, Remove, Start
from llmgw.core.learning import Foretold
from llmgw.core.preview import FieldChange, ModelChange, Preview
from llmgw.planning.speed import pace, reply, said
from llmgw.units import show_gib

LONGEST_VALUE = 60
"""Characters of a field's value in a plan: arguments can be long."""


def as_json(value: msgspec.Struct) -> str:
    """A value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()


def columns(rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are as wide as what is in them; the first row is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def count(n: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def plan_text(plan: Preview) -> str:
    """What `llmgw plan` prints."""
    return "\n".join(_plan(plan))


def _plan(plan: Preview) -> Iterator[str]:
    dirty = " and uncommitted changes" if plan.dirty else ""
    yield f"llmgw plan  cluster {plan.cluster}  base {plan.base[:8] or 'none'}  head {plan.head[:8]}{dirty}"
    yield f"seen: {plan.observed}"
    yield f"{count(len(plan.models), 'model')} to look at, {plan.unchanged} unchanged"
    for problem in plan.problems:
        yield f"\nproblem  {problem}"
    for held in plan.held:
        yield f"\nheld     {held.sentence}"
    for model in plan.models:
        yield ""
        yield from _model(model)
    if plan.removals:
        yield ""
        yield from (f"removed from the mirror: {r.name}/{r.version}  {r.why}" for r in plan.removals)
    if plan.steps:
        yield "\nsteps, each when the one before it is done:"
        yield from (f"  {n}. {', '.join(map(_action, step))}" for n, step in enumerate(plan.steps, 1))
    if plan.observed == "nothing":
        yield "\nNothing is known of the fleet, so nothing is placed: only what is asked is compared."
    yield f"\n{_result(plan)}"


def _model(model: ModelChange) -> Iterator[str]:
    sign = {"create": "+", "remove": "-", "change": "~", "none": " "}[model.action]
    counts = ", ".join(
        f"{c.profile} {c.before} to {c.after}" if c.before != c.after else f"{c.profile} {c.after}"
        for c in model.counts
    )
    yield f"{sign} {model.name}  {counts or 'none asked'}"
    if model.frozen:
        yield f"    frozen  {model.frozen}"
    for change in model.fields:
        yield f"    {change.field}: {_value(change.before)} to {_value(change.after)}  ({_effect(change)})"
    for fetch in model.fetches:
        yield f"    fetch   {fetch.name}/{fetch.version} from {fetch.source}"
    for start in model.starts:
        yield f"    start   {start.id} on {start.node}  {start.why}"
    for one in model.estimates:
        yield f"    expect  {_foretold(one)}"
        if one.tps is not None and pace(one.tps):
            yield f"            {reply(one.tps)}"
    yield from (f"    note    {note}" for note in model.notes)
    for stop in model.stops:
        yield f"    stop    {stop.id} on {stop.node}  {stop.why}"
    yield from _held(model.held)


def _foretold(one: Foretold) -> str:
    """`cpu on n1: 9.1 GiB of memory ± 4 % (3 runs), ~36 tok/s ± 10 % (1 run)`."""
    figures = (
        (f"{show_gib(one.host_bytes)} of memory" if one.host_bytes is not None else "", one.host_margin),
        (f"{show_gib(one.card_bytes)} on its cards" if one.card_bytes is not None else "", one.card_margin),
        (said(one.tps) if one.tps is not None else "", one.tps_margin),
    )
    shown = ", ".join(f"{figure} {off}" if off else figure for figure, off in figures if figure)
    unknown = "" if any(off for figure, off in figures if figure) else "; nothing like it has run yet"
    return f"{one.profile} on {one.node}: {shown or 'nothing could be worked out'}{unknown if shown else ''}"


def _held(held: Iterable[Held]) -> Iterator[str]:
    for h in held:
        yield f"    held    {h.subject}: {h.reason}" + (f"\n            next: {h.next}" if h.next else "")


def _value(value: object) -> str:
    text = "unset" if value is None else msgspec.json.encode(value).decode().strip('"')
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _effect(change: FieldChange) -> str:
    return change.effect


def _action(action: Action) -> str:
    if isinstance(action, Fetch | Remove):
        return f"{'fetch' if isinstance(action, Fetch) else 'remove'} {action.name}/{action.version}"
    return f"{'start' if isinstance(action, Start) else 'stop'} {action.id} on {action.node}"


def _result(plan: Preview) -> str:
    starts = sum(len(m.starts) for m in plan.models)
    stops = sum(len(m.stops) for m in plan.models)
    fetches = sum(len(m.fetches) for m in plan.models)
    held = len(plan.held) + sum(len(m.held) for m in plan.models)
    parts = f"{starts} to start, {stops} to stop, {fetches} to fetch, {held} held"
    if not plan.changes and not held and not plan.problems:
        parts = "nothing to do"
    return f"result: {parts}  (plan {plan.digest})"
