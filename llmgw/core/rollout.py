"""Steps 3 and 5 of a pass, for one model: what is missing, what is over, and what may go.

Nothing that serves is given up for something that might. What is over its count,
out of date, or on a node that is to be emptied goes on serving until enough
others do; only where there is no room for a successor beside it, and another
replica serves, does one make room in place.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from llmgw.catalog.model import Model
from llmgw.core.actions import Held, Stop
from llmgw.core.backoff import PARKED_AFTER, parked, wait_s
from llmgw.core.lastgood import Setbacks, form
from llmgw.core.memory import Failures, Scale
from llmgw.core.needs import Need
from llmgw.core.replicas import Fleet, Replica, Standing
from llmgw.core.seats import Seats, as_asked, keeping, seats_of
from llmgw.core.suspects import where_it_works
from llmgw.core.unplaced import Unplaced
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
    at: Container[str] | None = None,
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
        at: the nodes that have its weights; None: nothing has to be fetched.
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
        _missing(result, entry, seat, fleet, setbacks, now, at)
    _stops(result, seats, lonely, mine)
    return result


def _missing(
    result: Turn,
    entry: WantedModel | None,
    seat: Seats,
    fleet: Fleet,
    setbacks: Setbacks,
    now: float,
    at: Container[str] | None,
) -> None:
    """Add what the profile is short of, as far as its failures let it be tried."""
    assert entry is not None, "seats are made from an entry"
    key = f"{entry.model.name}/{seat.profile.name}"
    known = setbacks.failures.get(key)
    if seat.stays and not seat.waits:
        result.held.append(_left(key, entry.model.name, seat))
    serving_old, gaps = min(len(seat.old), seat.short), seat.gaps
    under_way = any(not r.serves for r in (*seat.kept, *seat.back))
    in_place = seat.way.strategy == "in_place" or not seat.way.max_surge
    replacing = min(serving_old, seat.way.max_surge) if not (gaps or under_way or in_place) else 0
    # What failed before and serves now, if only on a drained node, is seen to work.
    works = any(r.serves and r.fingerprint == seat.outcome for r in (*seat.kept, *seat.old))
    if in_place and serving_old and (not known or (works and not seat.failed)):
        _in_place(result, seat, at)
    if known:
        _set_back(result, key, seat, known, setbacks)
    if gaps and key in setbacks.returning:
        _come_back(result, entry.model, seat, setbacks, fleet, now)
        return
    count = gaps + replacing
    if not count:
        return
    if known and (held := _not_now(key, known, where_it_works(key, known, fleet), now)):
        result.held.append(held)
        return
    if known and (count > 1 or under_way):
        # One tries, so that not all of them fail again.
        count = 0 if under_way else 1
        result.held.append(Held(key, "the others wait until one is seen to work", model=entry.model.name))
    why = _why(seat, replacing=bool(replacing), known=known)
    like = Need(entry.sized, seat.profile, "", 0, why, replaces=bool(replacing))
    _need(result, key, like, seat.failed, known, count, fleet)


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
    taken = {r.id for r in fleet.of(result.model)} - set(retried)
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


def _in_place(result: Turn, seat: Seats, at: Container[str] | None) -> None:
    """Give up as many that serve as may be missing at a time, before their successors are there.

    What it is out of service for is a start: its node has the weights before.
    """
    missing = seat.wanted - sum(r.serves for r in (*seat.kept, *seat.old))
    may_go = max(1, seat.way.max_unavailable) - max(0, missing)
    for replica in sorted(seat.old, key=keeping, reverse=True)[: max(0, may_go)]:
        if at is None or replica.node in at:
            _stop(result, replica, "its successor starts in its place")
            seat.old.remove(replica)
        else:
            result.ahead.append(replica.node)
            why = f"it is {_fault(replica, seat.outcome)}, and stops once {replica.node} has its successor's weights"
            result.held.append(Held(replica.id, why, model=result.model))


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
        return f"takes the place of {first.id}, which is {_fault(first, seat.outcome)}"
    return f"{seat.profile.name} has {len(seat.kept) + min(len(seat.old), seat.short)} of {seat.wanted}"


def _fault(replica: Replica, outcome: str) -> str:
    return "out of date" if replica.fingerprint not in ("", outcome) else "on a drained node or card"


def _free_id(prefix: str, taken: set[str]) -> str:
    # The lowest free number, not a random name: a start that was sent and not seen
    # is sent again under the same id, and is recognised.
    ordinal = 0
    while (rid := f"{prefix}/{ordinal}") in taken:
        ordinal += 1
    return rid


def _stops(result: Turn, seats: Mapping[str, Seats], lonely: list[Replica], mine: tuple[Replica, ...]) -> None:
    """Stop what is over, as long as enough others serve; say what has to wait."""
    wanted = sum(s.wanted for s in seats.values())
    serving = sum(r.serves for r in mine)
    scaled, busy = {name: seat.scaled for name, seat in seats.items()}, set()
    for replica, why in _useless(seats, lonely):
        _stop(result, replica, why)
    for replica, why in _surplus(seats, lonely):
        if not replica.serves:
            _stop(result, replica, why)
        elif replica.busy and scaled.get(replica.profile):
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


def _useless(seats: Mapping[str, Seats], lonely: Iterable[Replica]) -> Iterable[tuple[Replica, str]]:
    for seat in seats.values():
        for replica in sorted(seat.useless):
            gone = "it failed, and is not tried again" if replica.phase is Phase.FAILED else "it is out of date"
            yield replica, gone
    for replica in lonely:
        if replica.phase is Phase.FAILED:
            yield replica, "it failed, and is not asked for any more"


def _surplus(seats: Mapping[str, Seats], lonely: Iterable[Replica]) -> Iterable[tuple[Replica, str]]:
    """What could go, in the order it should: over its count, replaced, and of a profile that is gone."""
    for seat in seats.values():
        for replica in sorted(seat.over, key=seat.order, reverse=True):
            yield replica, f"{seat.profile.name} has more than {seat.wanted}"
    for seat in seats.values():
        # One that serves is enough for one that is out of date, in its own profile.
        enough = len(seat.old) + sum(r.serves for r in seat.kept) - seat.wanted
        for n, replica in enumerate(sorted(seat.old, key=keeping, reverse=True)):
            if n < enough or not seat.wanted:
                yield replica, f"it is {_fault(replica, seat.outcome)}"
    for replica in sorted((r for r in lonely if r.holds), key=keeping, reverse=True):
        yield replica, "it is not asked for any more"


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


def no_node(need: Need, unplaced: Unplaced, gave_way: str) -> Held:
    """Why no node will do, and what to do about it.

    Args:
        need: what was to be placed.
        unplaced: what keeps it off each node.
        gave_way: the model that it lost its place to; empty: it did not.
    """
    why, do = _why_not(need, unplaced.furthest)
    why = f"it gave way to {gave_way}, and {why}" if gave_way else why
    name = need.model.name
    return Held(need.id, why, unplaced.words, do, model=name, stalled=True, reasons=unplaced.reasons)


def _why_not(need: Need, rule: str) -> tuple[str, str]:
    # In words that stay the same while the reason does.
    profile, path = need.profile, need.model.source.from_
    labels = ", ".join(f"{key}: {value}" for key, value in sorted(profile.node_selector.items()))
    return {
        "": ("server.yaml lists no nodes", "add one under nodes"),
        "reports": ("no node reports", "see that an agent runs: llmgw-agent"),
        "not drained": ("every node that reports is drained", "llmgw node undrain one"),
        "labels": (f"no node has its labels ({labels})", "give a node these labels, or change node_selector"),
        "engine": (f"no node has {profile.engine} for it", f"install {profile.engine} where it should run"),
        "weights": (
            f"no node may read {path}",
            f'allow it where it should run: `allow = ["path:{path}"]` in the agent\'s file, or llmgw up --allow-path',
        ),
    }.get(rule, ("no node has room for it", ""))


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
