"""Step 3 of a pass, for one profile: which of its replicas are as asked, too many, out of date, failed or of no use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from llmgw.catalog.profile import Profile
from llmgw.catalog.rollout import Rollout
from llmgw.core.memory import LastGood, Scale
from llmgw.core.replicas import Fleet, Replica
from llmgw.core.wanted import WantedModel
from llmgw_agent.protocol import Phase


@dataclass(slots=True)
class Seats:
    """One profile's replicas, sorted by what they are to its count."""

    profile: Profile
    wanted: int
    outcome: str
    """The fingerprint that is wanted."""
    scaled: bool
    """Whether the count follows demand: then the one that works least goes first."""
    way: Rollout
    """How its replicas change from one form to the next."""
    waits: bool
    """Whether they do not do so yet."""
    good: str = ""
    """The fingerprint that what is missing comes back in, since the wanted one failed. Empty: it does not."""
    kept: list[Replica] = field(default_factory=list)
    """As asked, on their way or serving: at most `wanted`."""
    over: list[Replica] = field(default_factory=list)
    """As asked, and more than `wanted`."""
    old: list[Replica] = field(default_factory=list)
    """Out of date, or on a drained node, and still serving or perhaps serving."""
    moving: list[Replica] = field(default_factory=list)
    """Of those, the ones on a drained node or card."""
    failed: list[Replica] = field(default_factory=list)
    """Failed as it is wanted now: each is a seat that is tried again."""
    back: list[Replica] = field(default_factory=list)
    """On their way back in the last good form."""
    lapsed: list[Replica] = field(default_factory=list)
    """Failed in it: each comes back once more."""
    useless: list[Replica] = field(default_factory=list)
    """Out of date and not serving, or failed and not asked for any more."""
    stays: int = 0
    """Of the kept ones, those that are out of date and are to be left as they are."""

    @property
    def short(self) -> int:
        return max(0, self.wanted - len(self.kept))

    @property
    def gaps(self) -> int:
        """Of those, the ones that nothing serves in place of, or is about to."""
        return max(0, self.short - len(self.old) - len(self.back))

    @property
    def in_place(self) -> bool:
        """Whether one that is out of date stops before its successor starts."""
        return self.way.strategy == "in_place" or not self.way.max_surge

    @property
    def surge(self) -> int:
        """Successors that may start beside the old ones: what leaves a drained node has one, whatever the file says."""
        return min(len(self.moving), max(1, self.way.max_surge)) if self.in_place else self.way.max_surge

    @property
    def order(self) -> Callable[[Replica], tuple[object, ...]]:
        """By what the replicas are sorted: the least is kept longest."""
        return _working if self.scaled else keeping


def counts(entry: WantedModel | None, scales: Mapping[str, Scale]) -> dict[str, int]:
    """Replicas wanted of each profile: none of a model that is stopped or gone.

    Args:
        entry: the model; None: it is gone.
        scales: what was decided of scaled ones, by model. One that is not among them has its least.
    """
    if entry is None:
        return {}
    model, scale = entry.model, scales.get(entry.model.name)
    counted = scale.counts if scale and model.scaling else model.counts()
    return {p.name: 0 if entry.stopped else counted.get(p.name, 0) for p in model.profiles}


def as_asked(entry: WantedModel, mine: Collection[Replica], fleet: Fleet, scales: Mapping[str, Scale]) -> bool:
    """Whether a model's replicas just fill their seats, as nearly all do in most passes: nothing is to be decided.

    Args:
        entry: what is wanted of it.
        mine: its replicas.
        fleet: the settled fleet.
        scales: what was decided of scaled models.
    """
    free, outcomes = counts(entry, scales), entry.outcomes
    for replica in mine:
        profile = replica.profile
        if profile not in free or not replica.holds or fleet.nodes[replica.node].drains(replica.devices):
            return False
        if replica.fingerprint and replica.fingerprint != outcomes[profile]:
            return False
        free[profile] -= 1
    # Two generations of one id are one too many.
    return not any(free.values()) and len({r.id for r in mine}) == len(mine)


def seats_of(
    entry: WantedModel,
    mine: Iterable[Replica],
    fleet: Fleet,
    scales: Mapping[str, Scale],
    *,
    waits: bool,
    good: Mapping[str, LastGood],
) -> dict[str, Seats]:
    """A model's replicas in their seats, by profile. Those of a profile that is gone have none.

    Args:
        entry: what is wanted of it.
        mine: its replicas.
        fleet: the settled fleet.
        scales: what was decided of scaled models.
        waits: whether what is out of date is left as it is for now.
        good: by model/profile, the forms that come back.
    """
    wanted = counts(entry, scales)
    by_profile: dict[str, list[Replica]] = defaultdict(list)
    for replica in mine:
        by_profile[replica.profile].append(replica)
    return {
        p.name: _seat(
            Seats(
                p,
                wanted[p.name],
                entry.outcomes[p.name],
                entry.model.scaling is not None,
                entry.model.rollout,
                waits,
                known.fingerprint if (known := good.get(f"{entry.model.name}/{p.name}")) else "",
            ),
            by_profile[p.name],
            fleet,
        )
        for p in entry.sized.profiles
    }


def _seat(seat: Seats, mine: list[Replica], fleet: Fleet) -> Seats:
    """Sort a profile's replicas into its seats."""
    wanted, outcome = seat.wanted, seat.outcome
    keeps = seat.waits or seat.way.freeze or seat.way.strategy == "keep"
    current: list[Replica] = []
    for replica in mine:
        drained = fleet.nodes[replica.node].drains(replica.devices)
        # An empty fingerprint is of an older agent's replica: unknown, which is not stale.
        as_asked = replica.fingerprint in ("", outcome)
        comes_back = bool(seat.good) and replica.fingerprint == seat.good and not drained
        if replica.phase is Phase.FAILED:
            (seat.failed if as_asked else seat.lapsed if comes_back else seat.useless).append(replica)
        elif not replica.holds:
            continue  # leaving, or on a lost node: it holds no place, and nothing is asked of it
        elif (as_asked or (keeps and replica.phase is Phase.READY)) and not drained:
            current.append(replica)
        elif replica.phase is Phase.READY:
            seat.old.append(replica)
            seat.moving += [replica] if drained else []
        else:
            (seat.back if comes_back else seat.useless).append(replica)
    current.sort(key=seat.order)
    # Of two generations of one id the better one lives, whatever the count says.
    first = {r.id: r for r in reversed(current)}
    twins = [r for r in current if first[r.id] is not r]
    current = [r for r in current if first[r.id] is r]
    seat.kept, seat.over = current[:wanted], current[wanted:] + twins
    seat.stays = sum(r.fingerprint not in ("", outcome) for r in seat.kept)
    room = max(0, seat.short - len(seat.old))
    seat.back.sort(key=keeping)
    seat.back, more = seat.back[:room], seat.back[room:]
    seat.useless += more
    held = {r.id for r in mine if r.phase is not Phase.FAILED}
    seat.failed = _seated(seat, seat.failed, held, seat.short)
    seat.lapsed = _seated(seat, seat.lapsed, held, seat.gaps)
    return seat


def _seated(seat: Seats, failed: list[Replica], held: set[str], room: int) -> list[Replica]:
    """The failed ones that keep their seats: no other generation of them is about. The rest are cleared."""
    ranked = sorted(failed, key=lambda r: (r.id, -r.generation))
    newest = {r.id: r for r in reversed(ranked)}
    seats = [r for r in ranked if r.id not in held and newest[r.id] is r][:room]
    seat.useless += [r for r in ranked if r not in seats]
    return seats


def keeping(replica: Replica) -> tuple[bool, bool, bool, int, int]:
    """Least is kept longest: what serves, then what may serve, then what was placed, then the lowest number."""
    serves, ready = replica.serves, replica.phase is Phase.READY
    return not serves, not ready, not replica.known, replica.ordinal, -replica.generation


def _working(replica: Replica) -> tuple[bool, bool, bool, int, int, int]:
    """The same, and of those that serve the one that works least goes first."""
    *kept, ordinal, generation = keeping(replica)
    serves, ready, known = kept
    # Of one that does not say it is not known: it comes after those that idle, and before those that work.
    works = 1 if replica.busy is None else 2 * replica.busy
    return serves, ready, known, -works, ordinal, generation


def fault(replica: Replica, outcome: str) -> str:
    """What is wrong with an old replica, in words."""
    return "out of date" if replica.fingerprint not in ("", outcome) else "on a drained node or card"


def useless(seats: Mapping[str, Seats], lonely: Iterable[Replica]) -> Iterable[tuple[Replica, str]]:
    """What goes at once, since it serves nobody, and why."""
    for seat in seats.values():
        for replica in sorted(seat.useless):
            gone = "it failed, and is not tried again" if replica.phase is Phase.FAILED else "it is out of date"
            yield replica, gone
    for replica in lonely:
        if replica.phase is Phase.FAILED:
            yield replica, "it failed, and is not asked for any more"


def surplus(seats: Mapping[str, Seats], lonely: Iterable[Replica]) -> Iterable[tuple[Replica, str]]:
    """What could go, in the order it should: over its count, replaced, and of a profile that is gone."""
    for seat in seats.values():
        for replica in sorted(seat.over, key=seat.order, reverse=True):
            yield replica, f"{seat.profile.name} has more than {seat.wanted}"
    for seat in seats.values():
        # One that serves is enough for one that is out of date, in its own profile.
        enough = len(seat.old) + sum(r.serves for r in seat.kept) - seat.wanted
        for n, replica in enumerate(sorted(seat.old, key=keeping, reverse=True)):
            if n < enough or not seat.wanted:
                yield replica, f"it is {fault(replica, seat.outcome)}"
    for replica in sorted((r for r in lonely if r.holds), key=keeping, reverse=True):
        yield replica, "it is not asked for any more"
