"""The sentences of a plan, in whatever form it is printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from llmgw.cli.render import count
from llmgw.core.actions import Action, Fetch, Held, Remove, Start
from llmgw.core.changed import FieldChange
from llmgw.core.downloads import DiskLeft, Download
from llmgw.core.engine_roll import EngineRoll
from llmgw.core.interruption import Interruption
from llmgw.core.learning import Foretold
from llmgw.core.model_change import CountChange, ModelChange
from llmgw.core.occupancy import CardFit, CardUse, Fit, MemoryUse
from llmgw.core.preview import Preview
from llmgw.planning.speed import said
from llmgw.units import show_bytes, show_duration, show_gib

LONGEST_VALUE = 60
"""Characters of a field's value: arguments can be long."""


def shared(plan: Preview) -> list[str]:
    """What changes for more than one model, and is no field: how far it reaches, and keys."""
    reaches = [f"{count(len(plan.shared), 'model')} changed by it: {short(plan.shared)}"] if plan.shared else []
    return [*reaches, *plan.keys]


def counted(model: ModelChange) -> str:
    """`cpu 1 to 2, gpu 3`."""
    return ", ".join(f"{c.profile} {_from(c)}{c.after}" for c in model.counts) or "none asked"


def _from(change: CountChange) -> str:
    return f"{change.before} to " if change.before != change.after else ""


def field(change: FieldChange) -> str:
    """`profiles.cpu.replicas: 1 to 2  (the difference starts or stops)`."""
    if change.hidden:
        return f"{change.field}: changed, not shown  ({change.effect})"
    before, after = values(change)
    return f"{change.field}: {before} to {after}  ({change.effect})"


def values(change: FieldChange) -> tuple[str, str]:
    """What a field says before and after; of one that may be secret, that it changed."""
    if change.hidden:
        return "not shown", "changed"
    return value(change.before), value(change.after)


def place(change: FieldChange) -> str:
    """`catalog/m.yaml:9`."""
    return f"{change.path}:{change.line}" if change.line else change.path


def value(of: object) -> str:
    """A value of a field, on one line and not too long."""
    if of in (None, ""):
        return "unset" if of is None else "empty"
    text = msgspec.json.encode(of).decode().strip('"')
    # What turns the direction of writing around would show another value than there is.
    return clipped("".join(c if c.isprintable() else "\ufffd" for c in text), LONGEST_VALUE)


def clipped(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def foretold(one: Foretold, now: Foretold | None) -> str:
    """`cpu on n1: 9.1 GiB of memory ± 4 % (3 runs), ~36 tok/s ± 10 % (1 run)`, and which figures are others now."""
    figures = (
        (f"{show_gib(one.host_bytes)} of memory" if one.host_bytes is not None else "", one.host_margin),
        (f"{show_gib(one.card_bytes)} on its cards" if one.card_bytes is not None else "", one.card_margin),
        (said(one.tps) if one.tps is not None else "", one.tps_margin),
    )
    shown = ", ".join(f"{figure} {off}" if off else figure for figure, off in figures if figure)
    unknown = "" if any(off for figure, off in figures if figure) else "; nothing like it has run yet"
    before = f"; as it runs now {', '.join(_moved(one, now))}" if now and list(_moved(one, now)) else ""
    return f"{one.profile} on {one.node}: {shown or 'nothing could be worked out'}{unknown if shown else ''}{before}"


def _moved(one: Foretold, now: Foretold) -> Iterator[str]:
    if now.host_bytes is not None and now.host_bytes != one.host_bytes:
        yield f"{show_gib(now.host_bytes)} of memory"
    if now.card_bytes is not None and now.card_bytes != one.card_bytes:
        yield f"{show_gib(now.card_bytes)} on its cards"
    if now.tps is not None and now.tps != one.tps:
        yield said(now.tps)


def fit(one: Fit) -> str:
    """`24.0 of 180.3 GiB of memory; GPU-1 (l40s-48g) 31.0 of 44.8 GiB`."""
    host = f"{show_gib(one.claim_bytes)} of {show_gib(one.free_bytes)} free memory"
    return "; ".join((host, *(f"{c.card} ({c.card_class}) {_of_card(c)}" for c in one.cards)))


def _of_card(card: CardFit) -> str:
    if card.needs_bytes is None:
        return f"{show_gib(card.free_bytes)} free, need not known"
    return f"{show_gib(card.needs_bytes)} of {show_gib(card.free_bytes)}"


def service(model: ModelChange) -> str:
    """What its clients have of it meanwhile. Empty: nothing that serves is touched."""
    if model.interruption:
        return interrupted(model.interruption)
    return "as before: never fewer replicas serve than before and after" if model.starts and model.stops else ""


def interrupted(of: Interruption) -> str:
    """How much less of a model serves, and for how long."""
    took = "and it stays so" if of.lasts else "how long is not known: no start was timed"
    if of.seconds is not None:
        took = f"about {show_duration(of.seconds)}"
    fewest = "no replica serves" if not of.fewest else f"{of.fewest} of {of.normally} replicas serve"
    return f"{fewest} for {count(of.steps, 'step')}, {took}"


def download(one: Download) -> str:
    """`m/v1 to n1: 4.9 GB, about 3m`."""
    size = show_bytes(one.bytes) if one.bytes is not None else "size not known"
    took = f"about {show_duration(one.seconds)}" if one.seconds is not None else "time not known: no rate was measured"
    return f"{one.version} to {one.to}: {size}, {took}"


def disk(of: DiskLeft) -> str:
    """`n1: 120.0 GB free, 115.1 GB left`."""
    left = f"{show_bytes(of.after)} left" if of.after is not None else "what is left is not known"
    return f"{of.at}: {show_bytes(of.before)} free, {left}"


def card_use(of: CardUse) -> str:
    """`l40s-48g: 6 now, at most 8, then 7 of 8`."""
    return f"{of.card_class}: {of.before} now, at most {of.peak}, then {of.after} of {of.total}"


def memory_use(of: MemoryUse) -> str:
    """`n1: 30.0 GiB free now, at least 6.0 GiB, then 18.0 GiB`."""
    return f"{of.node}: {show_gib(of.before)} free now, at least {show_gib(of.least)}, then {show_gib(of.after)}"


def roll(of: EngineRoll) -> Iterator[str]:
    """A change of an engine's version, a sentence a line."""
    yield f"{of.engine}: {of.before} to {of.after}"
    names = {"have it": of.nodes_with, "lack it": of.nodes_without, "do not say": of.nodes_unknown}
    yield "nodes: " + "; ".join(f"{short(nodes)} {verb_}" for verb_, nodes in names.items() if nodes)
    yield f"models, in the order they roll: {', '.join(of.models)}"
    yield of.flags


def drifting(model: ModelChange) -> Iterator[str]:
    """What becomes of a model without the change, a sentence each."""
    yield from (f"{model.name}: start {s.id} on {s.node}: {s.why}" for s in model.starts)
    yield from (f"{model.name}: stop {s.id} on {s.node}: {s.why}" for s in model.stops)
    yield from (f"{model.name}: fetch {f.name}/{f.version}: {f.why}" for f in model.fetches)
    yield from (f"{model.name}: held {h.sentence}" for h in model.held)
    if model.frozen:
        yield f"{model.name}: {model.frozen}"


def held(of: Held) -> str:
    """What is not done, and why."""
    return f"{of.subject}: {of.reason}"


def step(actions: Iterable[Action]) -> str:
    """What one step does, all of it at the same time."""
    return ", ".join(map(action, actions))


def action(of: Action) -> str:
    """`start m/cpu/1 on n1`."""
    if isinstance(of, Fetch | Remove):
        return f"{'fetch' if isinstance(of, Fetch) else 'remove'} {of.name}/{of.version}"
    return f"{'start' if isinstance(of, Start) else 'stop'} {of.id} on {of.node}"


def short(names: Iterable[str], most: int = 10) -> str:
    """A list of names that does not fill the screen."""
    known = list(names)
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")
