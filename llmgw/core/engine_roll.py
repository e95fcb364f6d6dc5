"""What another version of an engine comes to: who has it, and in which order models take it up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from llmgw.core.actions import Start
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.simulate import Course
from llmgw.core.wanted import WantedModel
from llmgw_agent.protocol import split_id

NEWEST = "the newest on each node"
"""What a profile without a version asks for."""


class EngineRoll(Struct, frozen=True):
    """The change of one engine from one version to another, of all profiles that make it."""

    engine: str
    before: str
    after: str
    nodes_with: tuple[str, ...]
    """That have it, sorted."""
    nodes_without: tuple[str, ...]
    """That have other versions, or none of this engine: nothing of it is placed there."""
    nodes_unknown: tuple[str, ...]
    """That do not say what they have."""
    models: tuple[str, ...]
    """In the order in which they roll; those that do not, last."""
    flags: str
    """What is known of flags that it drops or renames."""


def engine_rolls(
    before: Mapping[str, WantedModel], after: Mapping[str, WantedModel], course: Course
) -> tuple[EngineRoll, ...]:
    """Every engine whose version is changed for a model, by name and version."""
    found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for name in before.keys() & after.keys():
        was = {p.name: p for p in before[name].model.profiles}
        for profile in after[name].model.profiles:
            old = was.get(profile.name)
            if old and old.engine == profile.engine and old.engine_version != profile.engine_version:
                found[profile.engine, old.engine_version or NEWEST, profile.engine_version or NEWEST].add(name)
    order = {name: at for at, name in enumerate(_order(course))}
    return tuple(
        EngineRoll(
            engine,
            old,
            new,
            _nodes(course.end, engine, new, has=True),
            _nodes(course.end, engine, new, has=False),
            _nodes(course.end, engine, new, has=None),
            tuple(sorted(names, key=lambda n: (order.get(n, len(order)), n))),
            f"which flags {engine} {new} drops or renames is not known here: a start that fails for one says so",
        )
        for (engine, old, new), names in sorted(found.items())
    )


def _nodes(seen: Observed, engine: str, version: str, *, has: bool | None) -> tuple[str, ...]:
    return tuple(sorted(node.name for node in seen.nodes if _has(node, engine, version) is has))


def _has(node: NodeSeen, engine: str, version: str) -> bool | None:
    """Whether a node has a version of an engine. None: it does not say."""
    there = node.inventory.engines if node.inventory else None
    if there is None:
        return None
    mine = {e.version for e in there if e.name == engine}
    if version in mine or (mine and version == NEWEST):
        return True
    # An engine that does not say its version may be this one.
    return None if "" in mine else False


def _order(course: Course) -> Iterable[str]:
    """Models by when they first start something."""
    first: dict[str, None] = {}
    for step in course.steps:
        for action in step.actions:
            if isinstance(action, Start):
                first.setdefault(split_id(action.id)[0])
    return first
