"""How much of a model's service a course takes away on its way, and for how long."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median

from msgspec import Struct

from llmgw.core.actions import Start
from llmgw.core.observed import Observed
from llmgw.core.replicas import parts
from llmgw.core.simulate import Course, Step
from llmgw_agent.protocol import Phase


class Interruption(Struct, frozen=True):
    """Steps in which fewer replicas serve than before and after."""

    fewest: int
    """0: the model does not answer for a while."""
    normally: int
    """The lesser of how many serve before and how many are asked for after."""
    steps: int
    """How many are short of that."""
    seconds: float | None
    """Altogether, by how long starts of the model took. None: none was measured, or it does not end."""
    lasts: bool = False
    """Whether it is still so in the end."""


def interruptions(course: Course, asked: Mapping[str, int]) -> dict[str, Interruption]:
    """Of each model that has fewer replicas serving for a while than before and after.

    Args:
        course: what passes would do.
        asked: replicas that are asked for after, by model.
    """
    if not course.steps:
        return {}
    start = course.steps[0].before
    before, after = _serving(start), _serving(course.end)
    during = [_during(step) for step in course.steps]
    starting = [{parts(a.id)[0] for a in step.actions if isinstance(a, Start)} for step in course.steps]
    took = _starts(start)
    found = {}
    for name in sorted(before.keys() & asked.keys()):
        normally = min(before[name], asked[name])
        short = [at for at, counted in enumerate(during) if counted[name] < normally]
        if short:
            # What is stopped is gone as soon as it has finished; what starts is what is waited for.
            waits = sum(name in starting[at] for at in short)
            lasts = after[name] < normally
            seconds = waits * median(took[name]) if name in took and not lasts else None
            found[name] = Interruption(min(during[at][name] for at in short), normally, len(short), seconds, lasts)
    return found


def _during(step: Step) -> Counter[str]:
    """That serve while a step is under way, by model: what stops has gone, what starts is not there yet."""
    after = {(r.id, r.generation) for n in step.after.nodes for r in n.replicas if r.phase is Phase.READY}
    ready = (r for n in step.before.nodes for r in n.replicas if r.phase is Phase.READY)
    return Counter(parts(r.id)[0] for r in ready if (r.id, r.generation) in after)


def _serving(seen: Observed) -> Counter[str]:
    return Counter(parts(r.id)[0] for n in seen.nodes for r in n.replicas if r.phase is Phase.READY)


def _starts(seen: Observed) -> dict[str, list[float]]:
    """Seconds from the start of a process until it served, of each replica that says both; by model."""
    took: dict[str, list[float]] = defaultdict(list)
    for replica in (r for n in seen.nodes for r in n.replicas):
        if replica.phase is Phase.READY and replica.started_age_s is not None:
            took[parts(replica.id)[0]].append(max(0.0, replica.started_age_s - replica.age_s))
    return took
