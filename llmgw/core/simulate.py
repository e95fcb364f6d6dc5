"""What passes would do one after another, in a world where everything ordered comes true.

It does not come true at once: what starts serves at the second look, and what stops
holds its room until then, as it does where engines really run.

`llmgw plan` is this: the same `decide`, on a fleet as it was seen, until nothing
is left to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct, structs

from llmgw.core.actions import Action, Fetch, Held, Plan, Remove, Start, Stop
from llmgw.core.backoff import LONGEST_S
from llmgw.core.decide import decide
from llmgw.core.filesystems import sharing
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.memory import Memory, Placement
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import HeldVersion, Phase, ReplicaReport, split_id

STEP_S = 20.0
"""Seconds that pass between two looks: long enough for a short wait to be over."""
MOST_STEPS = 500


class Step(Struct, frozen=True):
    """What one pass does, all of it at the same time."""

    actions: tuple[Action, ...]
    before: Observed = Observed()
    """The fleet when it begins."""
    after: Observed = Observed()
    """The fleet once all of it is done."""


class Course(Struct, frozen=True):
    """What would happen, and what would be left."""

    steps: tuple[Step, ...]
    held: tuple[Held, ...]
    """What is not done in the end, and why."""
    end: Observed
    memory: Memory
    settled: bool
    """Whether it came to rest within the steps that were looked at."""
    gave_way: dict[str, str] = {}
    """For which model each lost a replica on the way."""


def course(wanted: Wanted, seen: Observed, memory: Memory, now: float) -> Course:
    """Pass until nothing is left to do.

    Args:
        wanted: what the change would ask.
        seen: the fleet as it was seen.
        memory: of control, or a fresh one that is settled.
        now: UTC seconds.
    """
    steps: list[Step] = []
    gave_way: dict[str, str] = {}
    # What will be asked of the models meanwhile is nobody's to know.
    seen = structs.replace(seen, demand=structs.replace(seen.demand, whole=False, silent=()))
    # Nothing waits longer than a failed start, or the others of a change that many share.
    longest = max(LONGEST_S, wanted.server.policy.soak)
    plan = decide(wanted, seen, memory, now)
    for _ in range(MOST_STEPS):
        next_seen = after(wanted, seen, plan)
        gave_way |= plan.memory.gave_way
        if plan.actions:
            steps.append(Step(plan.actions, seen, next_seen))
        # What only waits for its time is given it before this is called rest.
        now += STEP_S if plan.actions or next_seen != seen else longest
        following = decide(wanted, next_seen, plan.memory, now)
        if not plan.actions and not following.actions and next_seen == seen:
            return Course(tuple(steps), plan.held, seen, plan.memory, True, gave_way)
        seen, plan = next_seen, following
    return Course(tuple(steps), plan.held, seen, plan.memory, False, gave_way)


def after(wanted: Wanted, seen: Observed, plan: Plan) -> Observed:
    """What would be seen next, had everything of a plan begun, and all that was under way come to its end."""
    starts = {(a.id, a.generation, a.node) for a in plan.actions if isinstance(a, Start)}
    gone = {(a.id, a.generation, a.node) for a in plan.actions if isinstance(a, Stop)}
    kept = {(p.id, p.generation, p.node) for p in plan.placements}
    started = [p for p in plan.placements if (p.id, p.generation, p.node) in starts]
    nodes = tuple(
        _stocked(_node(wanted, node, [p for p in started if p.node == node.name], gone, kept), plan)
        for node in seen.nodes
    )
    return Observed(tuple(_shared(seen.nodes, nodes)), _mirror(seen.mirror, plan), seen.demand)


def _shared(before: tuple[NodeSeen, ...], nodes: tuple[NodeSeen, ...]) -> Iterator[NodeSeen]:
    """With what others brought to the filesystem that a node shares with them."""
    groups = sharing(nodes)
    arrived: dict[str, dict[str, HeldVersion]] = defaultdict(dict)
    for was, node in zip(before, nodes, strict=True) if groups else ():
        had = {v.key for v in was.versions}
        for name in groups.get(node.name, ()):
            arrived[name] |= {v.key: v for v in node.versions if v.key not in had}
    for node in nodes:
        mine = {v.key for v in node.versions}
        more = tuple(v for key, v in sorted(arrived[node.name].items()) if key not in mine)
        yield structs.replace(node, versions=(*node.versions, *more)) if more else node


def _node(
    wanted: Wanted,
    node: NodeSeen,
    started: list[Placement],
    gone: set[tuple[str, int, str]],
    kept: set[tuple[str, int, str]],
) -> NodeSeen:
    if node.age_s is None:
        return node
    stay = [
        _moved_on(r, stops=(r.id, r.generation, node.name) in gone)
        for r in node.replicas
        if (r.id, r.generation, node.name) in kept
    ]
    stay = [r for r in stay if r.phase is not Phase.STOPPED]
    replicas = sorted([*stay, *(_starting(wanted, p) for p in started)], key=lambda r: (r.id, r.generation))
    here = {v.key for v in node.versions}
    fetched = {p.version for p in started if p.version} - here
    arrived = (HeldVersion(*key.partition("/")[::2], state="held") for key in sorted(fetched))
    versions = (*node.versions, *arrived)
    return structs.replace(node, replicas=tuple(replicas), versions=versions)


def _stocked(node: NodeSeen, plan: Plan) -> NodeSeen:
    """With what was fetched ahead, and without what had to go."""
    mine = {s.version: s.action for s in plan.stock if s.node == node.name and s.action != "spare"}
    if not mine:
        return node
    stay = tuple(v for v in node.versions if v.key not in mine)
    arrived = (HeldVersion(*key.partition("/")[::2], state="held") for key in sorted(mine) if mine[key] == "prefetch")
    return structs.replace(node, versions=(*stay, *arrived))


def _moved_on(replica: ReplicaReport, *, stops: bool) -> ReplicaReport:
    """What a replica comes to: ready, or gone; one that serves and is stopped takes until the next look."""
    if stops:
        return structs.replace(replica, phase=Phase.STOPPING if replica.phase is Phase.READY else Phase.STOPPED)
    if replica.phase in (Phase.FETCHING, Phase.STARTING):
        return structs.replace(replica, phase=Phase.READY)
    if replica.phase in (Phase.DRAINING, Phase.STOPPING):
        return structs.replace(replica, phase=Phase.STOPPED)
    return replica


def _starting(wanted: Wanted, placement: Placement) -> ReplicaReport:
    model, profile, _ = split_id(placement.id)
    parallel = next((p.parallel for p in wanted.models[model].model.profiles if p.name == profile), 1)
    return ReplicaReport(
        placement.id,
        placement.generation,
        Phase.STARTING,
        fingerprint=placement.fingerprint,
        parallel=parallel,
        version=placement.version,
        devices=placement.devices,
        claim=placement.claim,
    )


def _mirror(mirror: MirrorSeen | None, plan: Plan) -> MirrorSeen | None:
    if mirror is None:
        return None
    held = {h.key: h for h in mirror.holdings}
    for action in plan.actions:
        if isinstance(action, Fetch):
            fetched = Holding(action.name, action.version, HoldingState.PRESENT, from_=action.source)
            held[fetched.key] = fetched
        elif isinstance(action, Remove):
            held.pop(f"{action.name}/{action.version}", None)
    return structs.replace(mirror, holdings=tuple(held[k] for k in sorted(held)))
