"""Step 2 of a pass: how many replicas are wanted of a model that is scaled.

A model counted per profile says so itself. One that is scaled has a smallest and
a largest number, and what gateways are asked decides between them: more once more
has been needed for a while, fewer once fewer would have done for a longer one.
What was decided is remembered, so that two passes do not argue.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.catalog.scaling import Scaling
from llmgw.core.actions import Held, internal_error
from llmgw.core.backoff import parked
from llmgw.core.memory import Failures, Memory, Scale
from llmgw.core.observed import DemandSeen, Load
from llmgw.core.replicas import Fleet, Replica
from llmgw.core.schedule import bounds
from llmgw.core.wanted import Wanted, WantedModel

TRACE = 0.02
"""Of a replica: what is left of a load that has gone, and no reason to have one."""

QUIET_START_S = 600.0
"""After its start control takes nothing away for lack of demand, and not before it has seen a whole window of it."""

Room = Callable[[Model, Profile, int], int]
"""How many of so many more replicas of a profile would find a node."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """What one pass decides of numbers."""

    scales: dict[str, Scale]
    """By model: every one that is scaled and runs."""
    held: dict[str, Held]
    """By model: why a number is not what is needed."""


def scaled(
    wanted: Wanted,
    fleet: Fleet,
    demand: DemandSeen,
    memory: Memory,
    failures: Mapping[str, Failures],
    now: float,
    room: Room,
) -> Scaled:
    """Decide the number of replicas of every scaled model, and of which profiles they are.

    Args:
        wanted: what the commit asks.
        fleet: the settled fleet.
        demand: what gateways are asked, summed.
        memory: what was decided before.
        failures: of each profile, by model/profile.
        now: UTC seconds.
        room: asked only of a model that is short and could run in several ways.
    """
    scales: dict[str, Scale] = {}
    held: dict[str, Held] = {}
    for name, entry in wanted.models.items():
        if entry.model.scaling is None or entry.stopped or not entry.model.profiles:
            continue
        mine = [r for r in fleet.of(name) if r.holds]
        quiet = max(QUIET_START_S, entry.model.scaling.window)
        unsure = now - memory.started_at < quiet or not demand.whole
        before = memory.scales.get(name) or Scale(total=len({r.id for r in mine}), since=now, at=now)
        try:
            scales[name], why = _decided(entry, entry.model.scaling, before, mine, demand, failures, now, room, unsure)
        except Exception as e:  # noqa: BLE001  one model that cannot be decided must not keep the others from it
            scales[name], why = structs.replace(before, counts=dict(_running(mine))), internal_error(name, e)
        if why:
            held[name] = why
    return Scaled(scales, held)


def _decided(
    entry: WantedModel,
    scaling: Scaling,
    before: Scale,
    mine: list[Replica],
    demand: DemandSeen,
    failures: Mapping[str, Failures],
    now: float,
    room: Room,
    unsure: bool,
) -> tuple[Scale, Held | None]:
    """One model's number, and why it is not what is needed."""
    model, load = entry.sized, demand.loads.get(entry.model.name, Load())
    least, most = bounds(scaling, now)
    parallel = max(model.profiles, key=_first).parallel
    asked = _Asked(scaling, least, most, parallel, load, _averaged(before, load, scaling, now))
    scale = _next(asked, before, now, unsure=unsure)
    scale = structs.replace(
        scale,
        counts=_split(model, scale.total, mine, failures, room),
        on_demand=not least,
        active=asked.average.active,
        waiting=asked.average.waiting,
        answering=load.in_flight,
        at=now,
        unserved_since=_unserved(before, load, mine, now),
    )
    return scale, _why(model.name, asked, scale, demand)


def _running(mine: Iterable[Replica]) -> Counter[str]:
    """How many of each profile run. Two generations of one id are one seat."""
    return Counter({r.id: r.profile for r in mine}.values())


class _Average(NamedTuple):
    """Requests at the same time, over the window."""

    active: float
    waiting: float


def _averaged(before: Scale, load: Load, scaling: Scaling, now: float) -> _Average:
    """Both with what was before, whose weight fades over the window."""
    fresh = 1 - math.exp(-max(0.0, now - before.at) / scaling.window) if scaling.window else 1.0
    active = before.active + (load.in_flight + load.waiting - before.active) * fresh
    waiting = before.waiting + (load.waiting - before.waiting) * fresh
    return _Average(active, waiting)


def _unserved(before: Scale, load: Load, mine: Iterable[Replica], now: float) -> float:
    if not load.waiting or any(r.serves for r in mine):
        return 0.0
    return before.unserved_since or now


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of one model, and within what it may answer."""

    scaling: Scaling
    least: int
    most: int
    parallel: int
    load: Load
    average: _Average

    @property
    def unbounded(self) -> int:
        """Replicas that the load of the last while needs, whatever the limits."""
        target, (active, waiting) = self.scaling.target, self.average
        needs = [active / (self.parallel * target.slots)]
        if target.concurrency:
            needs.append(active / target.concurrency)
        if target.queue:
            needs.append(waiting / target.queue)
        if target.rps and self.load.rps is not None:
            needs.append(self.load.rps / target.rps)
        # What is left of a request that ended long ago is nothing.
        needed = max(math.ceil(n - TRACE) for n in needs)
        return max(needed, int(self.load.in_flight + self.load.waiting > 0))

    def needed(self, before: Scale, now: float) -> int:
        """The same within the limits; the last one that idles is needed until its time is over."""
        needed = self.unbounded
        if not needed and before.total:
            # Counted from the end of the last request, and never from before the replica was asked for.
            idle = now - before.since
            idle = min(idle, self.load.idle_for_s) if self.load.idle_for_s is not None else idle
            needed = int(idle < self.scaling.idle_timeout)
        return min(max(needed + self.scaling.warm, self.least), self.most)


def _next(asked: _Asked, before: Scale, now: float, *, unsure: bool) -> Scale:
    """The number after this look.

    Args:
        asked: what is asked.
        before: what was decided.
        now: UTC seconds.
        unsure: whether too little has been seen to take something away.
    """
    scaling = asked.scaling
    # A limit that was changed counts at once.
    total = min(max(before.total, asked.least), asked.most)
    since = now if total > before.total else before.since
    needed = asked.needed(before, now)
    if needed > total:
        more = before.more_since or now
        # Nothing to go on with meanwhile is no time to wait and see.
        if not total or now - more >= scaling.up_delay:
            return Scale(total=needed, since=now)
        return Scale(total=total, since=since, more_since=more)
    if needed < total:
        fewer, peak = before.fewer_since or now, max(before.peak, needed)
        # An idle timeout that is over has been waited for already.
        if not unsure and (not needed or now - fewer >= scaling.down_delay):
            return Scale(total=peak if needed else 0, since=since)
        return Scale(total=total, since=since, fewer_since=fewer, peak=peak)
    return Scale(total=total, since=since)


def _why(name: str, asked: _Asked, scale: Scale, demand: DemandSeen) -> Held | None:
    if asked.unbounded > asked.most == scale.total:
        why = f"more is asked of it than its max of {asked.most} replicas serves"
        return Held(name, why, f"{asked.load.waiting} wait", "raise scaling.max", model=name)
    if scale.fewer_since and demand.silent:
        silent = ", ".join(demand.silent)
        why = f"fewer replicas would do, and none is stopped while gateway {silent} is not heard of"
        return Held(name, why, model=name)
    return None


def _first(profile: Profile) -> tuple[int, str]:
    """Largest is filled first."""
    return profile.priority, profile.name


def _split(
    model: Model, total: int, mine: Iterable[Replica], failures: Mapping[str, Failures], room: Room
) -> dict[str, int]:
    """Which profiles the total is made of: those that run stay, the highest priority is filled first."""
    ranked = sorted(model.profiles, key=_first, reverse=True)
    running = _running(mine)
    counts: dict[str, int] = {p.name: 0 for p in model.profiles}
    left = total
    for profile in ranked:
        counts[profile.name] = min(left, running[profile.name])
        left -= counts[profile.name]
    for profile in ranked if len(ranked) > 1 else ():
        if left and not ((known := failures.get(f"{model.name}/{profile.name}")) and parked(known)):
            more = room(model, profile, left)
            counts[profile.name] += more
            left -= more
    # What finds no room anywhere is missing where it is wanted most.
    counts[ranked[0].name] += left
    return counts
