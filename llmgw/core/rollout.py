"""Steps 3 and 5 of a pass, for one model: what is missing, what is over, and what may go.

Nothing that serves is given up for something that might. What is over its count,
out of date, or on a node that is to be emptied goes on serving until enough
others do; only where there is no room for a successor beside it, and another
replica serves, does one make room in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from llmgw.catalog.model import Model
from llmgw.core.actions import Held, Stop
from llmgw.core.backoff import PARKED_AFTER, parked, wait_s
from llmgw.core.lastgood import Setbacks, form
from llmgw.core.memory import Failures, Scale
from llmgw.core.needs import Need, Spot
from llmgw.core.replicas import Fleet, Replica, Standing
from llmgw.core.seats import Seats, as_asked, fault, keeping, seats_of, surplus, useless
from llmgw.core.suspects import where_it_works
from llmgw.core.wanted import WantedModel
from llmgw_agent.protocol import Phase


@dataclass(slots=True)
class Turn:
    """What one pass decides of one model, before anything is placed."""

    model: str
    needs: list[Need] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    spare: list[Replica] = field(default_factory=list)
    """Serving, and in nobody's way once enough others serve: what may make room in place."""
    old: dict[str, list[Replica]] = field(default_factory=dict)
    """By profile: serving out of date or on a drained node, the first to go first."""
    gave_way: str = ""
    """The model that some of its replicas are given up for."""
    given: int = 0
    """How many of them."""
    ahead: list[str] = field(default_factory=list)
    """Nodes that have to have the model's weights before something there stops for it."""


def turn(
    name: str,
    entry: WantedModel | None,
    fleet: Fleet,
    setbacks: Setbacks,
    scales: Mapping[str, Scale],
    now: float,
    left: Held | None = None,
) -> Turn:
    """What is missing and what may stop, of one model.

    Args:
        name: the model's.
        entry: what is wanted of it; None: it is not in the catalog any more.
        fleet: the settled fleet.
        setbacks: what failed, and what comes back in its place.
        scales: as updated in this pass, of scaled models.
        now: UTC seconds.
        left: why what runs of an earlier form is left as it is; None: it changes.
    """
    result = Turn(name)
    mine = fleet.of(name)
    if entry and as_asked(entry, mine, fleet, scales):
        return result
    waits = left is not None
    seats = seats_of(entry, mine, fleet, scales, waits=waits, good=setbacks.returning) if entry else {}
    if left and any(seat.stays for seat in seats.values()):
        result.held.append(left)
    lonely = [r for r in mine if r.profile not in seats]
    for seat in seats.values():
        result.old[seat.profile.name] = [r for r in sorted(seat.old, key=keeping, reverse=True) if r.serves]
        _missing(result, entry, seat, fleet, setbacks, now)
    _stops(result, seats, lonely, mine, scales[name].answering if name in scales else 0)
    return result


def _missing(
    result: Turn,
    entry: WantedModel | None,
    seat: Seats,
    fleet: Fleet,
    setbacks: Setbacks,
    now: float,
) -> None:
    """Add what the profile is short of, as far as its failures let it be tried."""
    assert entry is not None, "seats are made from an entry"
    key = f"{entry.model.name}/{seat.profile.name}"
    known = setbacks.failures.get(key)
    if seat.stays and not seat.waits:
        result.held.append(_left(key, entry.model.name, seat))
    serving_old, gaps = min(len(seat.old), seat.short), seat.gaps
    under_way = any(not r.serves for r in (*seat.kept, *seat.back))
    # What is short and finds no place must not keep a change from what serves.
    replacing = min(serving_old, seat.surge) if not (under_way or (known and gaps)) else 0
    # What failed before and serves now, if only on a drained node, is seen to work.
    works = any(r.serves and r.fingerprint == seat.outcome for r in (*seat.kept, *seat.old))
    like = Need(entry.sized, seat.profile, "", 0, "")
    if seat.in_place and serving_old > len(seat.moving) and (not known or (works and not seat.failed)):
        _in_place(result, key, seat, like, fleet)
    _wait_for_silent(result, seat)
    if known:
        _set_back(result, key, seat, known, setbacks)
    if gaps and key in setbacks.returning:
        _come_back(result, entry.model, seat, setbacks, fleet, now)
        return
    count = gaps + replacing
    if not count:
        return
    if works and not seat.failed and not gaps:
        known = None
    if known and (held := _not_now(key, known, where_it_works(key, known, fleet), now)):
        result.held.append(held)
        for replica in seat.moving:
            why = f"it is on a drained node or card, and goes on there: {held.why}"
            result.held.append(Held(replica.id, why, next=held.next, model=result.model, stalled=held.stalled))
        return
    if known and (count > 1 or under_way):
        # One tries, so that not all of them fail again.
        gaps, replacing = (0, 0) if under_way else (min(gaps, 1), min(replacing, 1))
        result.held.append(Held(key, "the others wait until one is seen to work", model=entry.model.name))
    short = replace(like, why=_why(seat, replacing=False, known=known))
    _need(result, key, short, seat.failed, known, gaps, fleet)
    successor = replace(like, why=_why(seat, replacing=True, known=known), replaces=True) if replacing else like
    _need(result, key, successor, seat.failed[gaps:], known, replacing, fleet)


def _wait_for_silent(result: Turn, seat: Seats) -> None:
    """Say whose silence keeps what is out of date or drained from going."""
    silent = " and ".join(r.id for r in seat.kept if r.standing is Standing.SILENT)
    if silent and seat.short and seat.old:
        first = max(seat.old, key=keeping)
        why = f"it is {fault(first, seat.outcome)}, and goes on until {silent} is heard of again"
        result.held.append(Held(first.id, why, model=result.model))


def _set_back(result: Turn, key: str, seat: Seats, known: Failures, setbacks: Setbacks) -> None:
    """Say what runs in place of a form that does not come up, or why nothing does."""
    if not seat.short or (any(r.serves for r in seat.kept) and not seat.failed):
        return
    why, do = f"it does not come up in its new form ({known.words})", "change it once more, or take the change back"
    relapse = setbacks.relapses.get(key)
    if key in setbacks.returning:
        result.held.append(_stalled(key, f"{why}, and runs in its last good one, which is stale", do))
    elif relapse and relapse.cause:
        result.held.append(_stalled(key, f"{why}, nor in its last good one ({relapse.words})", do))
    elif any(r.fingerprint != seat.outcome for r in seat.old):
        result.held.append(_stalled(key, f"{why}, and what serves in an earlier one, which is stale, stays", do))
    elif seat.way.auto_return and key not in setbacks.good and any(r.generation > r.attempts for r in seat.failed):
        # It was started more often than it failed, so some form of it came up.
        why = "what served before does not come back: its last good form is not known any more"
        result.held.append(Held(key, why, model=result.model))


def _come_back(result: Turn, wanted: Model, seat: Seats, setbacks: Setbacks, fleet: Fleet, now: float) -> None:
    """Add what the profile is short of in its last good form. Whose it is and what it may displace is as wanted now."""
    key = f"{wanted.name}/{seat.profile.name}"
    known, relapse = setbacks.returning[key], setbacks.relapses.get(key)
    relapse = relapse if relapse and relapse.cause else None
    if relapse and (held := _not_now(key, relapse, where_it_works(key, relapse, fleet), now)):
        result.held.append(held)
        return
    model = form(known, seat.profile.name).model_copy(update={"class_": wanted.class_, "owner": wanted.owner})
    profile = next(p for p in model.profiles if p.name == seat.profile.name)
    failed = setbacks.failures.get(key)
    since = f"the new one does not come up: {failed.cause}" if failed else "the change to the new one waits"
    why = f"its last good form comes back, since {since}"
    like = Need(model, profile, "", 0, why, version=known.version, fingerprint=known.fingerprint)
    # Once it has failed as well one tries, as with any form.
    count = int(not seat.back) if relapse else seat.gaps
    _need(result, key, like, seat.lapsed, relapse, count, fleet)


def _need(
    result: Turn, key: str, like: Need, failed: Iterable[Replica], known: Failures | None, count: int, fleet: Fleet
) -> None:
    """Add so many needs, those of failed replicas first: each under its own number, or the lowest free one."""
    retried = [r.id for r in failed]
    taken = {r.id for r in fleet.of(result.model)} - set(retried) | {n.id for n in result.needs}
    for _ in range(count):
        rid = retried.pop(0) if retried else _free_id(key, taken)
        taken.add(rid)
        generation = 1 + fleet.generations.get(rid, 0)
        attempt, avoid = (known.count, known.nodes) if known else (0, ())
        result.needs.append(replace(like, id=rid, generation=generation, attempt=attempt, avoid=avoid))


def _left(key: str, model: str, seat: Seats) -> Held:
    """What is out of date and stays: not done, and said."""
    field = "freeze is set" if seat.way.freeze else "strategy is keep"
    n = seat.stays
    why = f"{n} replica{'s' * (n > 1)} of an earlier form {'are' if n > 1 else 'is'} left to run: rollout.{field}"
    return Held(key, why, model=model)


def _in_place(result: Turn, key: str, seat: Seats, like: Need, fleet: Fleet) -> None:
    """Ask for successors of as many as may be missing at a time, each in the place of one that stops first.

    Only a file that says `in_place` gives up the last one that serves.
    """
    mine = fleet.of(result.model)
    serving = sum(r.serves for r in (*seat.kept, *seat.old))
    leaving = sum(r.leaving and r.profile == seat.profile.name for r in mine)
    # What is short with nothing on its way may find no place at all, and is not waited for.
    missing = max(0, seat.wanted - serving - max(0, seat.gaps - leaving))
    may_go = max(0, max(1, seat.way.max_unavailable) - missing)
    stale = [r for r in sorted(seat.old, key=keeping, reverse=True) if r not in seat.moving]
    if seat.way.strategy != "in_place" and may_go:
        others = sum(r.serves for r in mine) - 1
        may_go = 0 if seat.way.strategy == "surge" else min(may_go, others)
        if not may_go:
            why = "its strategy is surge" if others else "it is the only one that serves"
            do = "set rollout.max_surge to 1, or let it go first: `rollout.strategy: in_place`"
            why = f"it is out of date, and stays: rollout.max_surge is 0, and {why}"
            result.held.append(Held(stale[0].id, why, next=do, model=result.model, stalled=True))
    for replica in stale[:may_go]:
        why = f"takes the place of {replica.id}, which is out of date"
        _need(result, key, replace(like, why=why, replaces=True, after=replica.key), (), None, 1, fleet)


def go_first(result: Turn, replica: Replica, spot: Spot | None, nowhere: Held, *, lacks: bool) -> bool:
    """Whether a replica stops for a successor in its place. If not, it is said why it goes on.

    What it is out of service for is a start: the successor has a place, and its weights are there.

    Args:
        result: the model's turn.
        replica: what stops first.
        spot: where the successor goes then. None: nowhere.
        nowhere: why not.
        lacks: whether its weights have to be fetched first.
    """
    if spot is None:
        why = f"{nowhere.why}, and {replica.id}, which is out of date, is not given up for it"
        result.held.append(structs.replace(nowhere, why=why))
    elif lacks:
        result.ahead.append(spot.node)
        why = f"it is out of date, and stops once {spot.node} has its successor's weights"
        result.held.append(Held(replica.id, why, model=result.model))
    elif replica.key not in {(s.id, s.generation, s.node) for s in result.stops}:
        _stop(result, replica, "its successor starts in its place")
        return True
    return False


def _stalled(key: str, why: str, do: str) -> Held:
    return Held(key, why, next=do, model=key.rpartition("/")[0], stalled=True)


def _not_now(key: str, failures: Failures, where: str, now: float) -> Held | None:
    model = key.rpartition("/")[0]
    if parked(failures):
        return Held(
            key,
            f"it is parked after failing {failures.count} time{'s' * (failures.count > 1)}: {failures.words}",
            where,
            next="change what it runs with, or its source; the same is not tried again",
            model=model,
            stalled=True,
            kind="parked",
        )
    left = wait_s(failures, now)
    if left <= 0:
        return None
    detail = f"in {left:.0f}s" + (f"; {where}" if where else "")
    return Held(key, f"it failed, and is tried again: {failures.words}", detail, model=model)


def _why(seat: Seats, *, replacing: bool, known: Failures | None) -> str:
    if known:
        return f"try {known.count + 1} of {PARKED_AFTER}"
    if replacing:
        first = max(seat.old, key=keeping)
        return f"takes the place of {first.id}, which is {fault(first, seat.outcome)}"
    return f"{seat.profile.name} has {len(seat.kept) + min(len(seat.old), seat.short)} of {seat.wanted}"


def _free_id(prefix: str, taken: set[str]) -> str:
    # The lowest free number, not a random name: a start that was sent and not seen
    # is sent again under the same id, and is recognised.
    ordinal = 0
    while (rid := f"{prefix}/{ordinal}") in taken:
        ordinal += 1
    return rid


def _stops(
    result: Turn, seats: Mapping[str, Seats], lonely: list[Replica], mine: tuple[Replica, ...], answering: int
) -> None:
    """Stop what is over, as long as enough others serve; say what has to wait."""
    # Requests that no replica is known to answer are answered by one of which it is not known.
    unexplained = answering > sum(r.busy or 0 for r in mine)
    wanted = sum(s.wanted for s in seats.values())
    serving = sum(r.serves for r in mine)
    scaled, busy = {name: seat.scaled for name, seat in seats.items()}, set()
    for replica, why in useless(seats, lonely):
        _stop(result, replica, why)
    for replica, why in surplus(seats, lonely):
        if not replica.serves:
            _stop(result, replica, why)
        elif (replica.busy or (replica.busy is None and unexplained)) and scaled.get(replica.profile):
            busy.add(replica.profile)
        elif serving > wanted:
            serving -= 1
            _stop(result, replica, why)
        else:
            result.spare.append(replica)
            result.held.append(Held(replica.id, f"{why}, and still needed until others serve", model=replica.model))
    for profile in sorted(busy):
        why = "fewer replicas are needed, and one that answers requests is not stopped"
        result.held.append(Held(f"{result.model}/{profile}", why, model=result.model))


def _stop(result: Turn, replica: Replica, why: str) -> None:
    if replica.standing is Standing.USABLE:
        result.stops.append(Stop(replica.id, replica.generation, replica.node, why))
    else:
        result.held.append(
            Held(replica.id, f"{why}, and nothing is asked of {replica.node} while it is silent", model=replica.model)
        )


def make_room(
    result: Turn,
    need: Need,
    nowhere: Held,
    mine: tuple[Replica, ...],
    fits: Callable[[Need, Replica], bool],
    lacks: Callable[[Need, str], bool],
) -> None:
    """Give up one serving replica in place for a need that found no room, or say why not.

    One at a time, only while another serves, nothing is under way and nothing has failed:
    a version that does not come up must not eat the one that serves.

    Args:
        result: the model's turn.
        need: its need.
        nowhere: why it found none, as it is said where none can be made.
        mine: the model's replicas.
        fits: whether the need would find room, were one of them gone.
        lacks: whether a node has to fetch its weights first.
    """
    in_place = need.replaces and need.model.rollout.strategy != "surge"
    candidates = [*result.spare, *(result.old[need.profile.name] if in_place else ())]
    making = next((r for r in candidates if fits(need, r)), None)
    why, do, stalled = nowhere.why, nowhere.next, True
    if making is not None and sum(r.serves for r in mine) < 2:
        why += f", and {making.id}, which would make some, is the only one that serves"
        do = f"free room for a second one, or set `state: stopped` on {result.model} for as long as it takes"
    elif making is not None and not need.attempt and not result.stops and all(map(_settled, mine)):
        if lacks(need, making.node):
            result.ahead.append(making.node)
            why = f"{making.id} makes room for it once {making.node} has fetched its weights"
            result.held.append(Held(need.id, why, model=result.model))
            return
        result.held = [h for h in result.held if h.subject != making.id]
        _stop(result, making, f"it makes room in place for {need.id}")
        why, stalled = f"it waits until {making.id} has made room", False
    elif making is not None and need.attempt:
        why += f", and {making.id}, which would make some, is not given up for what failed before"
    elif making is not None:
        why, stalled = f"{why}; {making.id} makes some once the others are ready", False
    elif need.replaces and need.model.rollout.strategy == "surge":
        do = do or "free room for one more, or let it go in place: `rollout.strategy: auto`"
    result.held.append(structs.replace(nowhere, why=why, next=do, stalled=stalled))


def give_way(result: Turn, replica: Replica, need: Need) -> None:
    """Give up a replica for another model's."""
    result.held = [h for h in result.held if h.subject != replica.id]
    result.spare = [r for r in result.spare if r is not replica]
    result.gave_way = need.model.name
    result.given += 1
    if replica.key not in {(s.id, s.generation, s.node) for s in result.stops}:
        _stop(result, replica, f"it gives way to {need.id}, whose class is {need.model.class_}")


def _settled(replica: Replica) -> bool:
    return replica.serves or replica.phase is Phase.FAILED
