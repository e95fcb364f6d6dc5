"""A plan as text, for a terminal and a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llmgw.cli import plan_outline as outline
from llmgw.cli import plan_words as words
from llmgw.cli.render import columns, count
from llmgw.core.actions import Held
from llmgw.core.changed import FieldChange
from llmgw.core.model_change import ModelChange
from llmgw.core.preview import Preview
from llmgw.planning.speed import pace, reply

MOST_LINES = 12
"""Of one kind in one model: a hundred starts are a number and not a screen."""

SIGNS = {"create": "+", "remove": "-", "change": "~", "none": " "}


def plan_text(plan: Preview) -> str:
    """What `llmgw plan` prints."""
    return "\n".join(_plan(plan))


def _plan(plan: Preview) -> Iterator[str]:
    dirty = " and uncommitted changes" if plan.dirty else ""
    yield f"llmgw plan  cluster {plan.cluster}  base {plan.base[:8] or 'none'}  head {plan.head[:8]}{dirty}"
    yield f"seen: {plan.observed}"
    yield f"{count(len(plan.models), 'model')} to look at, {plan.unchanged} unchanged"
    yield from (f"\nwarning  {warning}" for warning in plan.warnings)
    yield from (f"\nproblem  {problem}" for problem in plan.problems)
    yield from (f"\nheld     {held.sentence}" for held in plan.held)
    yield from _shared(plan)
    for model in outline.worst_first(plan.models):
        yield ""
        yield from _model(model)
    if plan.removals:
        yield ""
        yield from (f"removed from the mirror: {r.name}/{r.version}  {r.why}" for r in plan.removals)
    if plan.own_steps:
        yield "\nsteps, each when the one before it is done:"
        yield from (f"  {n}. {words.step(step)}" for n, step in enumerate(plan.own_steps, 1))
        if not plan.settled:
            yield "  … and so on: it did not come to rest within the steps that were looked at"
    yield from _section("cards in use", map(words.card_use, plan.cards))
    yield from _section("memory of nodes", map(words.memory_use, plan.memory))
    yield from _section("disks, before anything is freed", map(words.disk, plan.disks))
    yield from _drift(plan)
    if plan.observed == "nothing":
        yield "\nNothing is known of the fleet, so nothing is placed: only what is asked is compared."
    yield f"\nresult: {outline.headline(plan)}  (plan {plan.digest})"


def _shared(plan: Preview) -> Iterator[str]:
    """What changes for more than one model."""
    if plan.server or plan.keys:
        yield "\n~ server.yaml" if plan.server else "\n~ keys"
        yield from _fields(plan.server)
        yield from (f"    {line}" for line in words.shared(plan))
    for rolled in plan.engines:
        first, *rest = words.roll(rolled)
        yield f"\n~ engine {first}"
        yield from (f"    {line}" for line in rest)


def _drift(plan: Preview) -> Iterator[str]:
    """What is amiss with or without the change, and counts for nothing in the result."""
    drift = plan.drift
    if not (drift.models or drift.held):
        return
    yield "\ndrift, which this change neither causes nor cures:"
    yield from (f"  held    {h.sentence}" for h in drift.held)
    for model in drift.models:
        yield from _most([f"  {line}" for line in words.drifting(model)])


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    shown = list(lines)
    if shown:
        yield f"\n{title}:"
        yield from _most([f"  {line}" for line in shown])


def _model(model: ModelChange) -> Iterator[str]:
    file = f"  {model.path}" if model.path else ""
    yield f"{SIGNS[model.action]} {model.name}  {words.counted(model)}  ({outline.verb(model)}){file}"
    if model.frozen:
        yield f"    frozen  {model.frozen}"
    yield from _fields(model.fields)
    yield from (f"    clients {sentence}" for sentence in model.noticed)
    if service := words.service(model):
        yield f"    service {service}"
    if model.gives_way_to:
        yield f"    loses   its place to {model.gives_way_to}"
    for fetch in model.fetches:
        yield f"    fetch   {fetch.name}/{fetch.version} from {fetch.source}"
    yield from _most([f"    bytes   {words.download(d)}" for d in model.downloads])
    yield from (f"    move    one of {m.profile} from {m.from_} to {m.to}" for m in model.moves[:MOST_LINES])
    yield from _starts(model)
    now = {e.profile: e for e in model.estimates_before}
    for one in model.estimates:
        yield f"    expect  {words.foretold(one, now.get(one.profile))}"
        if one.tps is not None and pace(one.tps):
            yield f"            {reply(one.tps)}"
    if model.starts and not model.estimates:
        yield f"    note    not estimated: run llmgw lock {model.name}"
    yield from (f"    note    {note}" for note in model.notes)
    yield from (f"    pin     {sentence}" for sentence in model.unpinned)
    yield from _most([f"    stop    {stop.id} on {stop.node}  {stop.why}" for stop in model.stops])
    yield from _held(model.held)


def _starts(model: ModelChange) -> Iterator[str]:
    fits = {f.id: f for f in model.fits}
    for start in model.starts[:MOST_LINES]:
        yield f"    start   {start.id} on {start.node}  {start.why}"
        if start.id in fits:
            yield f"            takes {words.fit(fits[start.id])}"
    if len(model.starts) > MOST_LINES:
        yield f"    start   and {len(model.starts) - MOST_LINES} more"


def _fields(fields: Iterable[FieldChange]) -> Iterator[str]:
    rows = [(f"    {words.field(change)}", words.place(change)) for change in fields]
    yield from columns(rows).splitlines() if rows else ()


def _held(held: Iterable[Held]) -> Iterator[str]:
    for h in held:
        yield f"    held    {words.held(h)}" + (f"\n            next: {h.next}" if h.next else "")


def _most(lines: list[str]) -> Iterator[str]:
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        yield f"{indent}and {len(lines) - MOST_LINES} more"
