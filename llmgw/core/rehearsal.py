"""What a fleet would do over some minutes, after a mishap or a change: the same decisions, on a clock of its own.

Where `simulate.course` asks what would come of a change in the end, this asks
when: a lost node is first silent, then past its grace, and only then replaced.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from msgspec import Struct, structs

from llmgw.core.actions import Fetch, Held, Plan, Remove, Start
from llmgw.core.decide import decide
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.replicas import survey
from llmgw.core.simulate import after
from llmgw.core.wanted import Wanted

LOOK_EVERY_S = 10.0


class Event(Struct, frozen=True, order=True):
    """One thing that happens."""

    at_s: float
    """Seconds from the start."""
    what: str


class Rehearsal(Struct, frozen=True):
    """What happens, when, and what is left."""

    minutes: float
    events: tuple[Event, ...]
    ready: dict[str, int]
    """Replicas that serve in the end, by model."""
    least: dict[str, int]
    """The fewest that served at any time, by model."""
    unplaced: tuple[Held, ...]
    """What finds no place in the end, and what else is not done, with why."""


def rehearse(
    wanted: Wanted, seen: Observed, memory: Memory, now: float, *, minutes: float, lost: Container[str] = frozenset()
) -> Rehearsal:
    """Let a fleet go on for some minutes.

    What is ordered comes true by the next look, ten seconds later: real starts and
    fetches take as long as they take.

    Args:
        wanted: what is asked from the start on.
        seen: the fleet as it was seen.
        memory: of control, or a fresh one that is settled.
        now: UTC seconds at the start.
        minutes: how long.
        lost: nodes that are never heard of again.
    """
    events: list[Event] = []
    least: dict[str, int] = {}
    held: set[tuple[str, str]] = set()
    at, plan = 0.0, None
    while at <= minutes * 60:
        seen = _aged(seen, lost, at)
        plan = decide(wanted, seen, memory, now + at)
        memory = plan.memory
        ready = _ready(wanted, seen, memory, now + at)
        least = {name: min(least.get(name, n), n) for name, n in ready.items()}
        events += (Event(at, text) for text in _done(plan))
        said = {(h.subject, h.why) for h in plan.held}
        events += (Event(at, f"held {subject}: {why}") for subject, why in sorted(said - held))
        held = said
        # What runs on a lost node is not seen to move any more.
        seen = _frozen(after(wanted, seen, plan), seen, lost)
        at += LOOK_EVERY_S
    assert plan is not None, "there is always a first look"
    return Rehearsal(minutes, tuple(events), _ready(wanted, seen, memory, now + at), least, plan.held)


def _aged(seen: Observed, lost: Container[str], at: float) -> Observed:
    nodes = (
        structs.replace(n, age_s=(n.age_s if at == 0 or n.age_s is None else n.age_s + LOOK_EVERY_S))
        if n.name in lost
        else n
        for n in seen.nodes
    )
    return structs.replace(seen, nodes=tuple(nodes))


def _frozen(after: Observed, before: Observed, lost: Container[str]) -> Observed:
    was = {n.name: n for n in before.nodes}
    return structs.replace(after, nodes=tuple(was[n.name] if n.name in lost else n for n in after.nodes))


def _ready(wanted: Wanted, seen: Observed, memory: Memory, now: float) -> dict[str, int]:
    fleet = survey(wanted, seen, memory, now)
    served: Mapping[str, int] = {name: sum(r.serves for r in rs) for name, rs in fleet.replicas.items()}
    return {name: served.get(name, 0) for name in sorted({*wanted.models, *served})}


def _done(plan: Plan) -> Iterator[str]:
    for action in plan.actions:
        if isinstance(action, Fetch | Remove):
            verb = "fetch" if isinstance(action, Fetch) else "remove"
            yield f"{verb} {action.name}/{action.version}: {action.why}"
        else:
            yield f"{'start' if isinstance(action, Start) else 'stop'} {action.id} on {action.node}: {action.why}"
