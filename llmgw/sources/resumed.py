"""What a control that starts, and a plan in CI, take up of a status that was written: as if it were seen now."""

from __future__ import annotations

from msgspec import UNSET, structs

from llmgw.catalog.fields import YEAR_S
from llmgw.core import lastgood
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.memory import Memory
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.promised import taken_up
from llmgw.core.replicas import Standing, survey
from llmgw.core.status import FleetStatus, HoldingStatus, NodeStatus, ReplicaStatus
from llmgw.planning.learned import Learned
from llmgw.sources.status_files import Recorded
from llmgw.units import GIB
from llmgw_agent.protocol import SILENT_AFTER_S, ReplicaReport


def observed(recorded: Recorded) -> Observed:
    """What was seen when the status was written, as if it were seen now."""
    return seen_in(recorded.status)


def seen_in(status: FleetStatus) -> Observed:
    """What a status says was seen."""
    nodes = tuple(_node(n) for n in status.nodes)
    mirror = status.mirror
    seen = None
    if mirror is not None and mirror.reachable:
        free = None if mirror.disk_free_gib is UNSET else mirror.disk_free_gib * GIB
        seen = MirrorSeen(tuple(_holding(h) for h in mirror.holdings), free)
    return Observed(nodes, seen)


def remembered(recorded: Recorded, *, now: float) -> Memory:
    """What control takes up of an earlier one's memory: what nodes do not report themselves."""
    good = {f"{m.name}/{profile}": form for m in recorded.status.models for profile, form in m.good.items()}
    if recorded.wanted is not None:
        then = survey(recorded.wanted, observed(recorded), Memory(started_at=now), now)
        good = lastgood.learned(recorded.wanted, then, good)
    holdings = recorded.status.mirror.holdings if recorded.status.mirror else ()
    present = {f"{h.name}/{h.version}": h for h in holdings if h.state is HoldingState.PRESENT}
    return Memory(
        started_at=now,
        good=good,
        files={k: h.files for k, h in present.items() if h.files},
        # A time to come is of a clock that was wrong: taken as it is, retention might never end.
        unreferenced={
            k: float(max(0, min(h.unreferenced_since, int(now))))
            for k, h in present.items()
            if h.unreferenced_since is not None
        },
        retains={k: float(max(0, min(h.retain_s, YEAR_S))) for k, h in present.items() if h.retain_s is not None},
        learned=Learned(recorded.status.estimates.runs, recorded.status.estimates),
        promise=taken_up(said, recorded.summary.observed_commit) if (said := recorded.summary.plan) else None,
    )


def _node(node: NodeStatus) -> NodeSeen:
    inventory = node.inventory
    if inventory is not None and node.now is not UNSET:
        used, free = node.now.memory_used_by_others_gib, node.now.disk_free_gib
        inventory = structs.replace(
            inventory,
            memory_used_by_others_bytes=None if used is None else used * GIB,
            disk_free_bytes=None if free is None else free * GIB,
            cards=tuple(
                structs.replace(c, used_by_others_bytes=node.now.cards_held_gib.get(c.uuid, 0) * GIB)
                for c in inventory.cards
            ),
        )
    age = {Standing.USABLE: 0.0, Standing.SILENT: SILENT_AFTER_S + 1, Standing.LOST: float("inf")}
    return NodeSeen(
        node.name,
        age_s=age.get(Standing(node.standing)),
        inventory=inventory,
        replicas=tuple(_replica(r) for r in node.replicas),
        versions=node.versions,
        agent_version=node.agent_version,
    )


def _replica(replica: ReplicaStatus) -> ReplicaReport:
    return ReplicaReport(
        replica.id,
        replica.generation,
        replica.phase,
        fingerprint=replica.fingerprint,
        claim=replica.claim,
        devices=replica.devices,
        parallel=replica.parallel,
        version=replica.version,
        attempts=replica.attempts,
    )


def _holding(holding: HoldingStatus) -> Holding:
    return Holding(
        holding.name,
        holding.version,
        holding.state,
        origin=holding.origin,
        files=holding.files,
        total_bytes=sum(f.bytes for f in holding.files) or holding.bytes,
        failure=holding.failure,
    )
