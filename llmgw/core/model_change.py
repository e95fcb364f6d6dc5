"""What a change would do to one model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from msgspec import Struct, structs

from llmgw.catalog.lines import Lines
from llmgw.catalog.printable import public_url
from llmgw.core.actions import Action, Fetch, Held, Remove, Start, Stop
from llmgw.core.beside import free_cards
from llmgw.core.changed import FieldChange, model_changes
from llmgw.core.downloads import Download
from llmgw.core.expected import expected, expected_now, too_little
from llmgw.core.interruption import Interruption, interruptions
from llmgw.core.learning import Foretold
from llmgw.core.noticed import noticed, unpinned
from llmgw.core.occupancy import Fit, fits, needing
from llmgw.core.seats import counts
from llmgw.core.simulate import Course
from llmgw.core.wanted import PURGE, WantedModel
from llmgw.planning.machines import Machine
from llmgw_agent.protocol import split_id


class CountChange(Struct, frozen=True):
    """How many replicas of one profile, before and after."""

    profile: str
    before: int
    after: int


class Move(Struct, frozen=True, order=True):
    """A profile's replicas that end on one node and start on another."""

    profile: str
    from_: str
    to: str


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
    path: str = ""
    """Its file. Empty: it has none."""
    estimates_before: tuple[Foretold, ...] = ()
    """Of what runs now of these profiles, worked out in the same way."""
    fits: tuple[Fit, ...] = ()
    """Each replica that starts, against what is free where it goes."""
    moves: tuple[Move, ...] = ()
    interruption: Interruption | None = None
    """None: its service is never less than before and after."""
    downloads: tuple[Download, ...] = ()
    gives_way_to: str = ""
    """The model that it loses replicas to. Empty: none."""
    noticed: tuple[str, ...] = ()
    """What clients see of it."""
    unpinned: tuple[str, ...] = ()
    """What of its source is not fixed."""

    @property
    def empty(self) -> bool:
        """Whether nothing of it changes, moves or is held."""
        return self.action == "none" and not (self.starts or self.stops or self.fetches or self.held or self.frozen)


@dataclass(frozen=True, slots=True)
class Scene:
    """What passes would do about a change, looked at once for all models."""

    course: Course
    actions: Mapping[str, list[Action]]
    """By model, in order."""
    fits: Mapping[str, list[Fit]]
    interruptions: Mapping[str, Interruption]
    downloads: Mapping[str, list[Download]]
    left: tuple[Machine, ...]
    """The machines as they are in the end."""
    lines: Lines | None = None
    """Of the change's files."""
    purged: frozenset[str] = frozenset()
    """Models whose files are not kept."""

    @classmethod
    def of(
        cls,
        course: Course,
        *,
        downloads: Iterable[Download] = (),
        left: tuple[Machine, ...] = (),
        lines: Lines | None = None,
        purged: frozenset[str] = frozenset(),
        asked: Mapping[str, int] = MappingProxyType({}),
    ) -> Scene:
        """A course, looked at."""
        actions: dict[str, list[Action]] = defaultdict(list)
        for action in (a for step in course.steps for a in step.actions):
            actions[subject(action)].append(action)
        brought: dict[str, list[Download]] = defaultdict(list)
        for one in downloads:
            brought[one.model].append(one)
        return cls(course, actions, fits(course), interruptions(course, asked), brought, left, lines, purged)


def model_change(name: str, before: WantedModel | None, after: WantedModel | None, scene: Scene) -> ModelChange:
    """What becomes of one model.

    Args:
        name: of the model.
        before: as it is carried out now.
        after: as the change asks for it.
        scene: what passes would do about the whole change.
    """
    course, mine = scene.course, scene.actions.get(name, [])
    starts = tuple(a for a in mine if isinstance(a, Start))
    stops = tuple(a for a in mine if isinstance(a, Stop))
    fields = tuple(model_changes(before, after, scene.lines)) if before and after else ()
    action = "none"
    if (before is None) != (after is None):
        action = "create" if after else "remove"
    elif fields:
        action = "change"
    held = tuple(h for h in course.held if h.model == name)
    frozen = after.frozen if after else ""
    was, will = counts(before, {}), counts(after, {})
    plain = ModelChange(
        name,
        action,
        tuple(CountChange(p, was.get(p, 0), will.get(p, 0)) for p in sorted({*was, *will})),
        fields,
        starts,
        stops,
        tuple(public_fetch(a) for a in mine if isinstance(a, Fetch)),
        held,
        frozen,
    )
    if plain.empty:
        return plain
    entry = after or before
    estimates = tuple(expected(after, starts, course)) if after else ()
    return structs.replace(
        plain,
        estimates=estimates,
        notes=tuple(_notes(after, starts, estimates, scene) if after else _files(before, scene)),
        path=entry.path if entry else "",
        estimates_before=tuple(expected_now(before, estimates, course)) if before else (),
        fits=tuple(needing(scene.fits.get(name, ()), estimates)),
        moves=tuple(_moves(starts, stops)),
        interruption=scene.interruptions.get(name) if after and before else None,
        downloads=tuple(scene.downloads.get(name, ())),
        gives_way_to=course.gave_way.get(name, ""),
        noticed=noticed(before, after) if action != "none" else (),
        unpinned=unpinned(after) if after and action != "none" else (),
    )


def _notes(entry: WantedModel, starts: Iterable[Start], estimates: Iterable[Foretold], scene: Scene) -> Iterator[str]:
    yield from free_cards(entry, {split_id(a.id)[1] for a in starts}, scene.left)
    yield from too_little(estimates, scene.fits.get(entry.model.name, ()))


def _files(gone: WantedModel | None, scene: Scene) -> Iterator[str]:
    """What becomes of the files of a model that goes, and the line that changes it."""
    if gone is None or gone.model.source.is_path:
        return
    name = gone.model.name
    if name in scene.purged:
        yield "its files are freed as soon as its replicas have stopped"
    else:
        yield (
            "its files are kept for a while, so that bringing it back fetches nothing; to free them at once, "
            f"push a commit with the line `{PURGE}: {name}` at its end"
        )


def subject(action: Action) -> str:
    """The model that an action is about."""
    return action.name if isinstance(action, Fetch | Remove) else split_id(action.id)[0]


def public_fetch(action: Fetch) -> Fetch:
    """A fetch as it may be shown: a URL can carry what lets somebody in."""
    files = tuple(structs.replace(f, url=public_url(f.url)) for f in action.files)
    return structs.replace(action, source=public_url(action.source), files=files)


def _moves(starts: Iterable[Start], stops: Iterable[Stop]) -> Iterator[Move]:
    """Starts and stops of one profile on different nodes, paired in order of their ids."""
    left = sorted(stops, key=lambda s: s.id)
    here = {(split_id(s.id)[1], s.node) for s in starts}
    for start in sorted(starts, key=lambda s: s.id):
        profile = split_id(start.id)[1]
        gone = (s for s in left if split_id(s.id)[1] == profile and (profile, s.node) not in here)
        if stop := next(gone, None):
            left.remove(stop)
            yield Move(profile, stop.node, start.node)
