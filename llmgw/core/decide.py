"""The reconciler: what is wanted and what is seen in, what will be done out.

A function. It looks at no clock and touches nothing; the running control, `llmgw
plan`, the simulations and the property tests all call this one. It plans the
whole difference in one pass, and what it does not do it says.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.core import backoff, lastgood, rollout
from llmgw.core.actions import Held, Plan, Start, Stop, internal_error
from llmgw.core.artifacts import Artifacts, artifacts
from llmgw.core.demand import TRACE, Room, Scaled, scaled
from llmgw.core.fetching import Fetching
from llmgw.core.headroom import headroom
from llmgw.core.learning import taught
from llmgw.core.leftout import culprits, without
from llmgw.core.memory import Failures, Memory, Placement, Scale
from llmgw.core.needs import Need, Spot
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.replicas import Fleet, Replica, survey
from llmgw.core.rooms import Rooms
from llmgw.core.seats import counts
from llmgw.core.spots import find_spots
from llmgw.core.stock import stock
from llmgw.core.suspects import disobeying, faulty_cards, suspect_nodes
from llmgw.core.wanted import Wanted
from llmgw.core.waves import take_turns
from llmgw_agent.protocol import Action, Phase, split_id

# Members by names of their own: to ask an enumeration for one takes a tenth of a microsecond, for every replica.
_FAILED, _RUN = Phase.FAILED, Action.RUN


def decide(wanted: Wanted, seen: Observed, memory: Memory, now: float) -> Plan:
    """One pass.

    A model that it fails for is left out and said, and what runs of it is kept.

    Args:
        wanted: what the last good commit asks.
        seen: the last whole report of each node, and the mirror's holdings.
        memory: what the last pass returned.
        now: UTC seconds, of control's clock.
    """
    try:
        return _decided(wanted, seen, memory, now)
    except Exception as e:  # whatever it is: one model must not keep the others from their pass
        odd = culprits(lambda some: _decided(some, seen, memory, now), wanted)
        if not odd:
            raise  # none can be singled out, and orders stay as they were sent
        plan = _decided(without(wanted, odd), seen, memory, now)
        held = {h for h in plan.held if h.model not in odd} | {internal_error(name, e) for name in odd}
        return structs.replace(plan, held=tuple(sorted(held)))


def _decided(wanted: Wanted, seen: Observed, memory: Memory, now: float) -> Plan:
    # 1. Settle: which nodes count, and which replicas are whose.
    fleet = survey(wanted, seen, memory, now)
    wanted = taught(wanted, memory.learned.published)
    if not fleet.settled:
        return _waiting(wanted, fleet, memory, now)
    memory = structs.replace(memory, settled=True, epoch=_epoch(seen, memory))

    # 6. Artifacts come early, since a replica is placed only when its weights can be had.
    weights = artifacts(wanted, seen, fleet, memory, now)

    # 2. How many of each: counted in the catalog, or decided by what is asked.
    scaling = scaled(wanted, fleet, seen.demand, memory, memory.failures, now, _room(wanted, fleet, weights))
    memory = structs.replace(memory, scales=scaling.scales)

    # 3. What each model is short of, and what it has too much of; 7. what failed waits its time.
    failures = _failures(wanted, fleet, memory, now)
    setbacks = lastgood.setbacks(wanted, fleet, failures, memory, now)
    shared = take_turns(wanted, fleet, failures, memory, now)
    setbacks = lastgood.waiting(setbacks, wanted, shared.held)
    memory = structs.replace(memory, waves=shared.waves)
    turns = [
        _guarded_turn(name, wanted, fleet, setbacks, scaling, shared.held.get(name), now)
        for name in sorted(wanted.models.keys() | fleet.replicas.keys())
    ]

    # 4. A node for each replica that is missing, and 5. room in place where there is none.
    # A node that fails in everything it starts is tried last.
    suspects = suspect_nodes(fleet, failures)
    fetching = Fetching(wanted, fleet)
    spots = find_spots(turns, wanted, fleet, weights, seen.demand, memory, now, suspects, fetching)

    # 6. again: what is to run has had its turn, and other weights are fetched ahead or go.
    stocked, not_ahead = stock(wanted, fleet, turns, spots, weights, fetching, now)

    # 8. The whole that should be, and why.
    doubts = (*suspects.values(), *faulty_cards(fleet), *disobeying(fleet), *not_ahead)
    memory = structs.replace(memory, failures=failures, good=setbacks.good, relapses=setbacks.relapses)
    return structs.replace(_plan(wanted, fleet, turns, spots, weights, memory, doubts), stock=stocked)


def _waiting(wanted: Wanted, fleet: Fleet, memory: Memory, now: float) -> Plan:
    """Nothing is decided until every node has spoken or is past its grace: what runs there is not known."""
    left = max(0.0, memory.started_at + wanted.server.node_grace - now)
    held = tuple(
        Held(
            name,
            "it has not reported since control started; until it has, or its grace is over, nothing is moved",
            f"{left:.0f}s left",
            "start its agent, or take it out of server.yaml",
        )
        for name in fleet.waiting_for
    )
    return Plan((), held, memory.placements, memory, settled=False)


def _epoch(seen: Observed, memory: Memory) -> int:
    """Of all orders from now on. It is raised where a node has obeyed what this control never said.

    A node that was lost while control started may have heard a later control than any that
    reported then: it refuses what is before that, and takes the same numbers for obeyed.
    """

    def ahead(node: NodeSeen) -> bool:
        sent = memory.sent.get(node.name)
        return node.obeyed > (memory.epoch, sent.seq if sent else node.obeyed[1])

    if memory.epoch and not any(map(ahead, seen.nodes)):
        return memory.epoch
    return 1 + max((n.obeyed[0] for n in seen.nodes), default=0)


def _failures(wanted: Wanted, fleet: Fleet, memory: Memory, now: float) -> dict[str, Failures]:
    """Of the profiles where something failed, or had before it came up."""
    tried = {r.model for rs in fleet.replicas.values() for r in rs if r.attempts or r.phase is _FAILED}
    tried |= {key.partition("/")[0] for key in memory.failures}
    found: dict[str, Failures] = {}
    for name in sorted(tried & wanted.models.keys()):
        entry = wanted.models[name]
        asked = counts(entry, memory.scales)
        for profile in entry.model.profiles:
            key = f"{name}/{profile.name}"
            mine = [r for r in fleet.of(name) if r.profile == profile.name]
            outcome = entry.outcomes[profile.name]
            if asked[profile.name] and (kept := backoff.updated(memory.failures.get(key), mine, outcome, now)):
                found[key] = kept
    return found


def _room(wanted: Wanted, fleet: Fleet, weights: Artifacts) -> Room:
    """How many more of a profile would fit: looked at once a model asks."""
    sizes = weights.sizes
    rooms: list[Rooms] = []

    def more(model: Model, profile: Profile, count: int) -> int:
        if not rooms:
            rooms.append(Rooms(fleet, sizes=sizes))
        entry = wanted.models[model.name]
        return next(min(count, h.more) for h in headroom([entry], rooms[0], sizes) if h.profile == profile.name)

    return more


def _guarded_turn(
    name: str,
    wanted: Wanted,
    fleet: Fleet,
    setbacks: lastgood.Setbacks,
    scaling: Scaled,
    left: Held | None,
    now: float,
) -> rollout.Turn:
    entry = wanted.models.get(name)
    if entry is None and not wanted.complete:
        # What runs and cannot be explained is kept: the file that explains it may be the one that is broken.
        held = Held(name, "it runs, and a file of the catalog that cannot be read may ask for it", model=name)
        return rollout.Turn(name, held=[held])
    try:
        turn = rollout.turn(name, entry, fleet, setbacks, scaling.scales, now, left)
        turn.held += [scaling.held[name]] if name in scaling.held else []
        return turn  # noqa: TRY300 - what is added to it may fail as well
    except Exception as e:  # noqa: BLE001  one model that cannot be decided must not keep the others from it
        return rollout.Turn(name, held=[internal_error(name, e)])


@dataclass(slots=True)
class _Whole:
    """What should be on the nodes after this pass."""

    placements: list[Placement] = field(default_factory=list)
    generations: dict[str, int] = field(default_factory=dict)


def _plan(
    wanted: Wanted,
    fleet: Fleet,
    turns: Iterable[rollout.Turn],
    spots: Mapping[str, tuple[Need, Spot]],
    weights: Artifacts,
    memory: Memory,
    doubts: Iterable[Held],
) -> Plan:
    turns = list(turns)
    stops = sorted((s for t in turns for s in t.stops), key=_in_order)
    starts = sorted((Start(n.id, n.generation, spot.node, n.why) for n, spot in spots.values()), key=_in_order)
    whole = _whole(wanted, fleet, stops, spots, memory)
    placements = tuple(sorted(whole.placements))
    return Plan(
        actions=(*starts, *stops, *weights.actions),
        held=tuple(sorted({*doubts, *(h for t in turns for h in t.held)})),
        placements=placements,
        memory=structs.replace(
            memory,
            placements=placements,
            generations=whole.generations,
            scales=_after_giving(turns, memory.scales),
            gave_way=_gave_way(turns, spots, memory.gave_way),
            fetches=weights.fetches,
            files=weights.files,
            unreferenced=weights.kept.unreferenced,
            retains=weights.kept.retains,
            purges=weights.purges,
        ),
    )


def _after_giving(turns: Iterable[rollout.Turn], scales: Mapping[str, Scale]) -> dict[str, Scale]:
    """The numbers of scaled models, less what an idle one gave up: it has it back when it is asked."""
    given = {t.model: t.given for t in turns if t.given}
    return {
        name: structs.replace(scale, total=max(0, scale.total - given.get(name, 0)))
        if scale.on_demand and not scale.active > TRACE
        else scale
        for name, scale in scales.items()
    }


def _in_order(action: Start | Stop) -> tuple[tuple[str, str, int], int, str]:
    """As a person counts: the tenth replica comes after the ninth."""
    return split_id(action.id), action.generation, action.node


def _gave_way(turns: Iterable[rollout.Turn], spots: Container[str], before: Mapping[str, str]) -> dict[str, str]:
    """For which model each lost a replica, until it misses none any more."""
    found: dict[str, str] = {}
    for turn in turns:
        missing = any(n.id not in spots for n in turn.needs)
        if turn.gave_way or (missing and turn.model in before):
            found[turn.model] = turn.gave_way or before[turn.model]
    return found


def _whole(
    wanted: Wanted, fleet: Fleet, stops: Iterable[Stop], spots: Mapping[str, tuple[Need, Spot]], memory: Memory
) -> _Whole:
    whole = _Whole()
    stopping = {(s.id, s.generation, s.node) for s in stops}
    for name, replicas in fleet.replicas.items():
        entry = wanted.models.get(name)
        outcomes = entry.outcomes if entry else {}
        for replica in replicas:
            outcome = outcomes.get(replica.profile, "")
            if replica.fingerprint != outcome and (good := memory.good.get(f"{name}/{replica.profile}")):
                # What is known of its form is enough to order it in full.
                outcome = good.fingerprint
            action = _action(replica, stopping, outcome, retried=replica.id in spots)
            if action is not None:
                whole.placements.append(_kept(replica, action))
    for need, spot in spots.values():
        whole.placements.append(
            Placement(
                need.id,
                need.generation,
                spot.node,
                Action.RUN,
                need.fingerprint or wanted.models[need.model.name].outcomes[need.profile.name],
                spot.claim,
                spot.devices,
                need.version,
                need.attempt,
            )
        )
    generations = {**fleet.generations, **{need.id: need.generation for need, _ in spots.values()}}
    known = wanted.models.keys() | fleet.replicas.keys()
    whole.generations = {rid: generations[rid] for rid in sorted(generations) if rid[: rid.index("/")] in known}
    return whole


def _action(replica: Replica, stopping: set[tuple[str, int, str]], outcome: str, *, retried: bool) -> Action | None:
    """What its node is to be told of a replica; None: nothing, so that the node forgets it."""
    if replica.phase is _FAILED:
        # Kept, with its dossier, until it is tried again or not asked for any more.
        return None if retried or replica.key in stopping else Action.KEEP
    if replica.leaving or replica.key in stopping:
        return Action.DRAIN
    if not replica.reported and replica.placement and replica.placement.action is Action.KEEP:
        # It may have failed, and its room been given away: where it is not there any more it is not started again.
        return Action.KEEP
    return _RUN if replica.fingerprint and replica.fingerprint == outcome else Action.KEEP


def _kept(replica: Replica, action: Action) -> Placement:
    before = replica.placement
    if before is not None:
        return before if before.action is action else structs.replace(before, action=action)
    return Placement(
        replica.id,
        replica.generation,
        replica.node,
        action,
        replica.fingerprint,
        replica.claim,
        replica.devices,
        replica.version,
        replica.attempts,
    )
