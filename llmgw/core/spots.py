"""Steps 4 and 5 of a pass: each replica that is missing gets its spot, waits for one, or is said to have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from llmgw.core import rollout
from llmgw.core.actions import Held
from llmgw.core.artifacts import Artifacts
from llmgw.core.fetching import Fetching
from llmgw.core.memory import Memory, Scale
from llmgw.core.needs import Need, Spot, shunners
from llmgw.core.nowhere import no_node
from llmgw.core.observed import DemandSeen
from llmgw.core.placement import place, spot_in
from llmgw.core.preempt import ONCE_MORE, Claims, Way
from llmgw.core.quotas import Quotas
from llmgw.core.replicas import Fleet, Replica
from llmgw.core.rooms import Room, Rooms
from llmgw.core.unplaced import Unplaced
from llmgw.core.wanted import Wanted
from llmgw.core.within import kept_within

Spots = dict[str, tuple[Need, Spot]]
"""What is placed, by replica id."""

Asking = tuple[rollout.Turn, Need]
"""A need, and the turn of its model."""


def find_spots(
    turns: Iterable[rollout.Turn],
    wanted: Wanted,
    fleet: Fleet,
    weights: Artifacts,
    demand: DemandSeen,
    memory: Memory,
    now: float,
    suspects: Collection[str],
    fetching: Fetching,
) -> Spots:
    """Place what the turns need, and add to them what is held and what makes room for it.

    Args:
        turns: of every model; changed.
        wanted: what the commit asks.
        fleet: the settled fleet.
        weights: whose can be had.
        demand: what gateways are asked: who idles gives way first.
        memory: of the last pass.
        now: UTC seconds.
        suspects: nodes that are tried last.
        fetching: who fetches weights at the same time; told of what is placed.
    """
    needs = list(_ready(turns, wanted, weights, memory.scales))
    spots: Spots = {}
    if not needs:
        return spots
    shunned = shunners(w.model for w in wanted.models.values())
    needs = [(turn, replace(n, shunned=shunned.get(turn.model, ()))) for turn, n in needs]

    def lacks(need: Need, node: str) -> bool:
        # What comes back has been there.
        at = None if need.fingerprint else weights.at[need.model.name]
        return at is not None and node not in at

    quotas = Quotas(wanted, fleet)
    needs, full = _within_quotas(needs, quotas, fleet)
    sizes = weights.sizes
    spare = frozenset(weights.kept.spare(weights.kept.unreferenced))
    rooms = Rooms(fleet, sizes=sizes, suspects=suspects, spare=spare)
    needs = list(zip([turn for turn, _ in needs], kept_within((n for _, n in needs), rooms), strict=True))
    in_place = [(turn, need) for turn, need in needs if need.after]
    needs = [(turn, need) for turn, need in needs if not need.after]
    found = place([n for _, n in needs], rooms)
    going = {(s.id, s.generation, s.node) for t in turns for s in t.stops}
    leaving = rooms.without(r.key for rs in fleet.replicas.values() for r in rs if r.leaving or r.key in going)
    by_model = {t.model: t for t in turns}
    claims = Claims(wanted, fleet, rooms, memory.scales, demand.loads, sizes, now)
    if full:
        homeless = [n for _, n in needs if not isinstance(found[n.id], Spot)]
        late, full = _let_late(full, quotas, [n for n in homeless if not _may_have_one(n, leaving, claims)])
        late = list(zip([turn for turn, _ in late], kept_within((n for _, n in late), rooms), strict=True))
        found |= place([n for _, n in late], rooms)
        needs += late
    placed = {n.id: (n, spot) for _, n in needs if isinstance(spot := found[n.id], Spot)}
    homes = _Homes(fleet, rooms, claims, quotas, leaving, by_model, memory.gave_way, lacks, placed)
    waits = fetching.queue((n, spot) for _, n in needs if isinstance(spot := found[n.id], Spot))
    for turn, need in sorted(needs, key=lambda n: (n[1].rank, n[1].order)):
        spot = found[need.id]
        if not isinstance(spot, Spot):
            homes.find(turn, need, spot)
        elif need.id in waits:
            turn.held.append(waits[need.id])
        elif need.id not in placed:
            turn.held.append(Held(need.id, homes.yields[need.id], model=turn.model))
        else:
            spots[need.id] = (need, spot)
    homes.coming |= {n.kind for _, n in needs if not n.replaces and isinstance(found[n.id], Spot)}
    homes.keep_out(full)
    for turn, need in in_place:
        homes.in_place(turn, need)
    homes.say_the_rest()
    return spots


def _ready(
    turns: Iterable[rollout.Turn], wanted: Wanted, weights: Artifacts, scales: Mapping[str, Scale]
) -> Iterable[tuple[rollout.Turn, Need]]:
    """What is needed of the models whose weights can be had."""
    sizes = weights.sizes if any(turn.needs for turn in turns) else {}
    for turn in turns:
        if (turn.needs or turn.ahead) and turn.model in weights.held:
            turn.held.append(weights.held[turn.model])
        since = scales[turn.model].unserved_since if turn.model in scales else 0.0
        for need in turn.needs:
            version = need.version if need.fingerprint else wanted.models[turn.model].version_key
            if need.fingerprint and version and version not in sizes:
                why = f"its last good form does not come back: nobody is known to have {version} any more"
                turn.held.append(Held(need.id, why, model=turn.model, stalled=True))
            elif need.fingerprint or turn.model not in weights.held:
                size = sizes.get(version, 0)
                yield turn, replace(need, version=version, weights_bytes=size, waited_since=since)


def _within_quotas(needs: Iterable[Asking], quotas: Quotas, fleet: Fleet) -> tuple[list[Asking], list[Asking]]:
    """Those that no quota keeps out, and the others."""
    let: list[Asking] = []
    full: list[Asking] = []
    for turn, need in sorted(needs, key=lambda n: (n[1].rank, n[1].order)):
        after = next((r for r in fleet.of(turn.model) if r.key == need.after), None)
        held = quotas.admit(need, after)
        if held and after:
            rollout.go_first(turn, after, None, held, lacks=False)
        else:
            (full if held else let).append((turn, need))
    return let, full


def _may_have_one(need: Need, leaving: Iterable[Room], claims: Claims) -> bool:
    """Whether a need that found no place gets one from what goes or may go."""
    return need.replaces or spot_in(need, leaving) is not None or claims.way(need) is not None


def _let_late(full: Iterable[Asking], quotas: Quotas, hopeless: Iterable[Need]) -> tuple[list[Asking], list[Asking]]:
    """Of those that were kept out the ones that are let through after all, and the others.

    What has no place, and is to get none, takes nothing of its owner's quota either.
    """
    kinds = set()
    for need in hopeless:
        quotas.release(need)
        kinds.add(need.kind)
    late: list[Asking] = []
    still: list[Asking] = []
    for turn, need in full:
        (still if need.kind in kinds or quotas.admit(need) else late).append((turn, need))
    return late, still


@dataclass(slots=True)
class _Homes:
    """How a place comes about for what found none."""

    fleet: Fleet
    rooms: Rooms
    claims: Claims
    quotas: Quotas
    leaving: list[Room]
    """Rooms as they are once what stops has gone."""
    by_model: Mapping[str, rollout.Turn]
    gave_way: Mapping[str, str]
    lacks: Callable[[Need, str], bool]
    placed: dict[str, tuple[Need, Spot]]
    """What found a place, by replica id, less what lets another go first."""
    yields: dict[str, str] = field(default_factory=dict)
    """Why it does so, by replica id."""
    homeless: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    """How many get no place in this pass, by model, profile, and whether something serves in their place."""
    coming: set[tuple[str, str]] = field(default_factory=set)
    """Models and profiles of which something that is short has its place, now or once what stops has gone."""

    def find(self, turn: rollout.Turn, need: Need, unplaced: Unplaced) -> None:
        """Make a place, or wait for one. What is true of one is true of all of its kind, and said once."""
        kind = (*need.kind, need.replaces)
        if self.homeless[kind]:
            self.wait(need)
            self.homeless[kind] += 1
        elif not self.make(turn, need, unplaced):
            self.homeless[kind] += 1

    def keep_out(self, full: Iterable[Asking]) -> None:
        """Say of each profile's first why it is kept out by a quota, or let it go in place, which stays within it."""
        said = set()
        for turn, need in full:
            if (kind := (*need.kind, need.replaces)) not in said:
                said.add(kind)
                held = self.quotas.full(need)
                assert held is not None, "it was found to be full"
                rollout.make_room(turn, need, held, self.fleet.of(turn.model), self._fits_quota, self.lacks)

    def _fits_quota(self, need: Need, gone: Replica) -> bool:
        """Whether a need would be within its quota and find room anywhere, were one replica gone."""
        rooms = [*self.rooms.without([gone.key]), *self.rooms.all.values()]
        return self.quotas.full(need, gone) is None and spot_in(need, rooms) is not None

    def in_place(self, turn: rollout.Turn, need: Need) -> None:
        """Stop one that serves for its successor, if that has a place then: where it stops, or anywhere."""
        if need.kind in self.coming:
            return  # what is short and has its place counts as missing from now on
        replica = next(r for r in self.fleet.of(turn.model) if r.key == need.after)
        spot = spot_in(need, [*self.rooms.without([replica.key]), *self.rooms.all.values()])
        nowhere = Held(need.id, "")
        if spot is None:
            unplaced = place([need], self.rooms)[need.id]
            assert not isinstance(unplaced, Spot), "it was found not to fit"
            nowhere = no_node(need, unplaced, "")
        lacks = spot is not None and self.lacks(need, spot.node)
        if rollout.go_first(turn, replica, spot, nowhere, lacks=lacks) and spot is not None:
            # Nobody else counts on the place.
            self.rooms.clear(replica)
            self.rooms.take(need, spot)

    def say_the_rest(self) -> None:
        """Say how many more have no place, where it was said of one."""
        for (model, profile, _), n in self.homeless.items():
            if n > 1:
                why = f"{n - 1:,} more replica{'s have' if n > 2 else ' has'} no place either"
                self.by_model[model].held.append(Held(f"{model}/{profile}", why, model=model))

    def make(self, turn: rollout.Turn, need: Need, unplaced: Unplaced) -> bool:
        """Whether others give way to a need. If not, it is said why it has no place."""
        if self.wait(need):
            turn.held.append(Held(need.id, "it waits until what is stopping has made room", model=turn.model))
            return False
        way = None if need.replaces else self.claims.way(need)
        if way is None or need.attempt > ONCE_MORE:
            nowhere = no_node(need, unplaced, self.gave_way.get(turn.model, ""))
            if way is not None:
                does = "does" if len(way.replicas) == 1 else "do"
                why = f"{way.names} {does} not give way to what failed {need.attempt} times"
                nowhere = structs.replace(nowhere, why=f"{nowhere.why}, and {why}")
            rollout.make_room(turn, need, nowhere, self.fleet.of(turn.model), self._fits, self.lacks)
            return False
        if self.lacks(need, way.spot.node):
            turn.ahead.append(way.spot.node)
            why = f"{way.names} will give way to it, and go on until {way.spot.node} has fetched its weights"
            turn.held.append(Held(need.id, why, model=turn.model))
            return False
        self._give_way(turn, need, way)
        return True

    def wait(self, need: Need) -> bool:
        """Whether a need has a place once what stops has gone: then nobody else counts on that."""
        spot = spot_in(need, self.leaving) or self._let_first(need)
        if spot is None:
            return False
        self.coming.add(need.kind)
        for room in self.leaving:
            if room.name == spot.node and room is not self.rooms.all[spot.node]:
                room.take((need.model.name, need.profile.name), spot.claim, spot.devices)
        self.rooms.take(need, spot)
        return True

    def _let_first(self, need: Need) -> Spot | None:
        """A need's place once what stops has gone, where what comes after it waits too.

        What stops goes one by one. The first to go would leave its place to a lower class, which would have
        to give way again.
        """
        for n, room in enumerate(self.leaving):
            here = (one for one in self.placed.values() if one[1].node == room.name and one[0].rank > need.rank)
            wider, waits = room.copy(), []
            for later, spot in sorted(here, key=lambda one: (one[0].rank, one[0].order), reverse=True):
                wider.give((later.model.name, later.profile.name), spot.claim, spot.devices)
                waits.append((later, spot))
                if found := spot_in(need, [wider]):
                    self.leaving[n] = wider
                    for other, its in waits:
                        self.rooms.give(other, its)
                        del self.placed[other.id]
                        self.yields[other.id] = f"it waits until {need.id} has its place on {room.name}"
                    return found
        return None

    def _fits(self, need: Need, gone: Replica) -> bool:
        """Whether a need would find a place, were one replica gone."""
        return spot_in(need, self.rooms.without([gone.key])) is not None

    def _give_way(self, turn: rollout.Turn, need: Need, way: Way) -> None:
        """Stop what gives way, and let nobody else have its room."""
        self.coming.add(need.kind)
        for replica in way.replicas:
            rollout.give_way(self.by_model[replica.model], replica, need)
            self.rooms.clear(replica)
        self.rooms.take(need, way.spot)
        # What is left there once it has, others may wait for.
        self.leaving.append(self.rooms.all[way.spot.node])
        why = f"it waits until {way.names} on {way.spot.node} gave way to it"
        turn.held.append(Held(need.id, why, model=turn.model))
