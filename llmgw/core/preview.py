"""What a change would do, as one value: text, Markdown, JSON and the exit code are all made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from llmgw.catalog.check import SERVER
from llmgw.catalog.lines import Lines
from llmgw.core.actions import Action, Fetch, Held, Remove, Start
from llmgw.core.changed import FieldChange, server_changes
from llmgw.core.downloads import DiskLeft, Download, disks_left, downloads
from llmgw.core.engine_roll import EngineRoll, engine_rolls
from llmgw.core.machines import machines
from llmgw.core.model_change import ModelChange, Scene, model_change, public_fetch, subject
from llmgw.core.occupancy import CardUse, MemoryUse, card_uses, memory_uses
from llmgw.core.promised import digest, identity
from llmgw.core.replicas import survey
from llmgw.core.seats import counts
from llmgw.core.simulate import Course
from llmgw.core.wanted import Wanted

FORMAT_VERSION = "1.0"
"""Of the JSON: a minor one adds, a major one changes."""


class Drift(Struct, frozen=True):
    """What differs from the commit that is carried out already, with or without this change."""

    models: tuple[ModelChange, ...] = ()
    held: tuple[Held, ...] = ()
    """Of no model."""


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
    """Each when the one before it is done, with what drift brings about."""
    removals: tuple[Remove, ...]
    held: tuple[Held, ...]
    """Of no model: nodes, guards."""
    problems: tuple[str, ...]
    settled: bool
    digest: str
    """Of what is wanted, what would be done and who worked it out: the status says it again once it is done."""
    drift: Drift = Drift()
    server: tuple[FieldChange, ...] = ()
    """What differs of server.yaml."""
    keys: tuple[str, ...] = ()
    """What differs of client keys, a sentence each."""
    engines: tuple[EngineRoll, ...] = ()
    cards: tuple[CardUse, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    downloads: tuple[Download, ...] = ()
    disks: tuple[DiskLeft, ...] = ()
    warnings: tuple[str, ...] = ()
    version: str = ""
    """Of the llmgw that planned."""

    @property
    def changes(self) -> bool:
        """Whether the change does anything, or asks for anything else. What drift brings about is none of it."""
        return bool(self.models or self.server or self.keys or self.removals)

    @property
    def shared(self) -> tuple[str, ...]:
        """Models that are changed by what server.yaml brings into them."""
        return tuple(m.name for m in self.models if any(f.path == SERVER for f in m.fields))

    @property
    def own_steps(self) -> tuple[tuple[Action, ...], ...]:
        """The steps without what drift brings about."""
        drifting = {m.name for m in self.drift.models}
        mine = (tuple(a for a in step if subject(a) not in drifting) for step in self.steps)
        return tuple(step for step in mine if step)

    @property
    def blocked(self) -> bool:
        """Whether something of the change is held that waiting will not cure."""
        return any(h.stalled for h in self.held) or any(h.stalled for m in self.models for h in m.held)


def preview(
    base: Wanted | None,
    head: Wanted,
    course: Course,
    *,
    observed: str,
    dirty: bool,
    based_on: str,
    without: Course | None = None,
    lines: Lines | None = None,
    warnings: Iterable[str] = (),
    version: str = "",
) -> Preview:
    """What `head` would do.

    Args:
        base: what is carried out now; None: nothing is known of it.
        head: what the change asks.
        course: what passes would do about it.
        observed: where what was seen is from.
        dirty: whether the head has uncommitted changes.
        based_on: the base's commit.
        without: what passes would do without the change. None: that is not known, and nothing is called drift.
        lines: of the head's files.
        warnings: sentences on how far all this can be relied on.
        version: of the llmgw that plans.
    """
    before = dict(base.models) if base else {}
    brought = downloads(course, head)
    classes = {c.class_: c.name for c in head.server.cards}
    starting = any(isinstance(a, Start) for step in course.steps for a in step.actions)
    left = machines(survey(head, course.end, course.memory, 0.0), classes) if starting else ()
    asked = {name: sum(counts(entry, course.memory.scales).values()) for name, entry in head.models.items()}
    scene = Scene.of(course, downloads=brought, left=left, lines=lines, purged=head.purged, asked=asked)
    names = sorted({*before, *head.models, *scene.actions})
    mine = {name: model_change(name, before.get(name), head.models.get(name), scene) for name in names}
    drifted = _drift(mine, without, base)
    touched = tuple(c for name, c in mine.items() if name not in drifted and not c.empty)
    there_before = set(map(_known, without.held)) if without else set()
    loose = [h for h in course.held if not h.model]
    guards = [Held("commit", why, stalled=True) for why in head.held]
    steps = tuple(tuple(map(_public, step.actions)) for step in course.steps)
    removed_before = {a for step in (without.steps if without else ()) for a in step.actions if isinstance(a, Remove)}
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
        tuple(a for step in steps for a in step if isinstance(a, Remove) and a not in removed_before),
        tuple(sorted((*(h for h in loose if _known(h) not in there_before), *guards))),
        tuple(p.line_form() for p in head.problems),
        course.settled,
        digest(identity(head), steps),
        Drift(tuple(drifted[n] for n in sorted(drifted)), tuple(sorted(h for h in loose if _known(h) in there_before))),
        tuple(server_changes(base.server, head.server, lines)) if base else (),
        _keys(base, head),
        engine_rolls(before, head.models, course),
        card_uses(course),
        memory_uses(course),
        brought,
        disks_left(course, brought),
        tuple(warnings),
        version,
    )


def _drift(mine: Mapping[str, ModelChange], without: Course | None, base: Wanted | None) -> dict[str, ModelChange]:
    """Models that the commit leaves as they are, and that would move or be held just as much without it."""
    if without is None or base is None:
        return {}
    scene = Scene.of(without)
    found = {}
    for name, change in mine.items():
        if change.action == "none" and not change.empty:
            alone = model_change(name, base.models.get(name), base.models.get(name), scene)
            if _moving(alone) == _moving(change):
                found[name] = change
    return found


def _moving(change: ModelChange) -> tuple[object, ...]:
    return change.starts, change.stops, change.fetches, change.frozen, [_known(h) for h in change.held]


def _known(held: Held) -> tuple[str, str]:
    """By what something held is the same, whatever its figures are by now."""
    return held.subject, held.why


def _public(action: Action) -> Action:
    return public_fetch(action) if isinstance(action, Fetch) else action


def _keys(base: Wanted | None, head: Wanted) -> tuple[str, ...]:
    if base is None:
        return ()
    was, will = ({k.key.name: k.key for k in of.keys} for of in (base, head))
    found = [f"the key {name} is gone: its requests get 401" for name in was.keys() - will.keys()]
    found += [f"the key {name} is new" for name in will.keys() - was.keys()]
    found += [f"the key {name} is changed" for name in was.keys() & will.keys() if was[name] != will[name]]
    return tuple(sorted(found))
