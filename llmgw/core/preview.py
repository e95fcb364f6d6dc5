"""What a change would do, as one value: text, JSON and the exit code are all made of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from llmgw.catalog import canonical
from llmgw.catalog.fingerprint import Effect, effect_of
from llmgw.core.actions import Action, Fetch, Held, Remove, Start, Stop
from llmgw.core.beside import free_cards
from llmgw.core.learning import Foretold, foretold
from llmgw.core.machines import machines
from llmgw.core.replicas import survey
from llmgw.core.seats import counts
from llmgw.core.simulate import Course
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.machines import Machine
from llmgw_agent.protocol import split_id

FORMAT_VERSION = "1.0"
"""Of the JSON: a minor one adds, a major one changes."""


class FieldChange(Struct, frozen=True):
    """One field of the catalog that differs."""

    field: str
    """`profiles.cpu.replicas`."""
    before: Any
    """None: it was not there."""
    after: Any
    effect: str


class CountChange(Struct, frozen=True):
    """How many replicas of one profile, before and after."""

    profile: str
    before: int
    after: int


class ModelChange(Struct, frozen=True):
    """What changes of one model."""

    name: str
    action: str
    """create | remove | change | none: what the commit does to its entry. `none` moves without being changed."""
    counts: tuple[CountChange, ...]
    fields: tuple[FieldChange, ...]
    starts: tuple[Start, ...]
    stops: tuple[Stop, ...]
    fetches: tuple[Fetch, ...]
    held: tuple[Held, ...]
    frozen: str = ""
    estimates: tuple[Foretold, ...] = ()
    """Of the first replica that starts of each profile."""
    notes: tuple[str, ...] = ()
    """What a reader should know: cards that stay free and would do it faster."""


class Preview(Struct, frozen=True):
    """What a change would do to the fleet as it was seen."""

    format_version: str
    cluster: str
    base: str
    """The commit that is carried out now; empty: none is known."""
    head: str
    dirty: bool
    observed: str
    """Where what was seen is from, and how old it is."""
    models: tuple[ModelChange, ...]
    """Those that change or move, sorted."""
    unchanged: int
    steps: tuple[tuple[Action, ...], ...]
    removals: tuple[Remove, ...]
    held: tuple[Held, ...]
    """Of no model: nodes, guards."""
    problems: tuple[str, ...]
    settled: bool
    digest: str
    """Of what is wanted and what would be done."""

    @property
    def changes(self) -> bool:
        """Whether anything would be done, or anything wanted differs."""
        return bool(self.steps) or any(m.action != "none" for m in self.models)

    @property
    def blocked(self) -> bool:
        """Whether something is held that waiting will not cure."""
        return any(h.stalled for h in self.held) or any(h.stalled for m in self.models for h in m.held)


def preview(base: Wanted | None, head: Wanted, course: Course, *, observed: str, dirty: bool, based_on: str) -> Preview:
    """What `head` would do.

    Args:
        base: what is carried out now; None: nothing is known of it.
        head: what the change asks.
        course: what passes would do about it.
        observed: where what was seen is from.
        dirty: whether the head has uncommitted changes.
        based_on: the base's commit.
    """
    before = dict(base.models) if base else {}
    names = sorted({*before, *head.models, *_moved(course)})
    left = machines(survey(head, course.end, course.memory, 0.0), {c.class_: c.name for c in head.server.cards})
    changes = [_model(name, before.get(name), head.models.get(name), course, left) for name in names]
    touched = tuple(c for c in changes if c.action != "none" or c.starts or c.stops or c.fetches or c.held or c.frozen)
    steps = tuple(step.actions for step in course.steps)
    guards = (Held("commit", why, stalled=True) for why in head.held)
    digest = hashlib.sha256(
        msgspec.json.encode((sorted((n, canonical.spec(w.model)) for n, w in head.models.items()), steps))
    )
    return Preview(
        FORMAT_VERSION,
        head.server.cluster,
        based_on,
        head.commit,
        dirty,
        observed,
        touched,
        len(names) - len(touched),
        steps,
        tuple(a for step in steps for a in step if isinstance(a, Remove)),
        tuple(sorted((*(h for h in course.held if not h.model), *guards))),
        tuple(p.line_form() for p in head.problems),
        course.settled,
        digest.hexdigest()[:12],
    )


def _moved(course: Course) -> Iterable[str]:
    for step in course.steps:
        for action in step.actions:
            yield _subject(action)


def _subject(action: Action) -> str:
    return action.name if isinstance(action, Fetch | Remove) else split_id(action.id)[0]


def _model(
    name: str, before: WantedModel | None, after: WantedModel | None, course: Course, left: tuple[Machine, ...]
) -> ModelChange:
    mine = [a for step in course.steps for a in step.actions if _subject(a) == name]
    was, will = counts(before, {}), counts(after, {})
    fields = tuple(_fields(before, after)) if before and after else ()
    if before is None and after is None:
        action = "none"
    elif before is None or after is None:
        action = "create" if after else "remove"
    else:
        action = "change" if fields else "none"
    return ModelChange(
        name,
        action,
        tuple(CountChange(p, was.get(p, 0), will.get(p, 0)) for p in sorted({*was, *will})),
        fields,
        tuple(a for a in mine if isinstance(a, Start)),
        tuple(a for a in mine if isinstance(a, Stop)),
        tuple(a for a in mine if isinstance(a, Fetch)),
        tuple(h for h in course.held if h.model == name),
        after.frozen if after else "",
        tuple(_estimates(after, [a for a in mine if isinstance(a, Start)], course)) if after else (),
        tuple(free_cards(after, {split_id(a.id)[1] for a in mine if isinstance(a, Start)}, left)) if after else (),
    )


def _estimates(entry: WantedModel, starts: Iterable[Start], course: Course) -> Iterator[Foretold]:
    first: dict[str, Start] = {}
    for start in sorted(starts, key=lambda s: s.id):
        first.setdefault(split_id(start.id)[1], start)
    nodes = {node.name: node for node in course.end.nodes}
    runs = course.memory.learned.published.runs
    for _, start in sorted(first.items()):
        node = nodes.get(start.node)
        report = next((r for r in node.replicas if r.id == start.id), None) if node else None
        if node and report and (found := foretold(entry, node, report, runs)):
            yield found


def _fields(before: WantedModel, after: WantedModel) -> Iterator[FieldChange]:
    was, will = _flat(canonical.spec(before.model)), _flat(canonical.spec(after.model))
    for at in sorted({*was, *will}):
        if was.get(at) != will.get(at):
            yield FieldChange(".".join(at), was.get(at), will.get(at), str(_effect(at, after)))


Way = tuple[str, ...]
"""The way to a value. Names of profiles may have dots in them."""


def _flat(value: Any, at: Way = ()) -> dict[Way, Any]:
    """Every leaf by its way: `profiles`, `cpu`, `replicas`. Named parts go by their name."""
    if isinstance(value, dict):
        parts = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, list) and value and all(isinstance(v, dict) and "name" in v for v in value):
        parts = [(str(v["name"]), v) for v in value]
    else:
        return {at: value}
    return {k: v for key, part in parts for k, v in _flat(part, (*at, key)).items()}


def _effect(at: Way, entry: WantedModel) -> Effect:
    """What the change of a field does to what runs."""
    if at == ("source", "from") and entry.model.source.is_path:
        return Effect.RESTARTS
    return effect_of(at)
