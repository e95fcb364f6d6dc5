"""Step 8 of a pass: what is, in the terms people and programs read.

Every value here is stable, unless it stands under `now`: a status commit is made
only when something stable changes, and then carries the rest as it is.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

import msgspec
from msgspec import UNSET, Struct, structs

from llmgw.core.actions import Held, Plan, Start, Stop
from llmgw.core.condition import Condition, condition
from llmgw.core.mirror_status import HoldingStatus, MirrorStatus, mirror_status
from llmgw.core.model_status import ModelNow, ModelStatus, ProfileStatus, Shortage, model_status
from llmgw.core.node_status import NodeNow, NodeStatus, ReplicaStatus, node_status
from llmgw.core.observed import Observed
from llmgw.core.promise import Outcome
from llmgw.core.replicas import survey
from llmgw.core.wanted import Wanted
from llmgw.planning.learned import Estimates
from llmgw_agent.protocol import Action, split_id

__all__ = [
    "Condition",
    "FleetStatus",
    "HoldingStatus",
    "MirrorStatus",
    "ModelNow",
    "ModelStatus",
    "NodeNow",
    "NodeStatus",
    "ProfileStatus",
    "ReplicaStatus",
    "Shortage",
    "status",
]


class FleetStatus(Struct, frozen=True, omit_defaults=True):
    """Everything a status commit says."""

    cluster: str
    observed_commit: str
    """The newest commit that was read."""
    settled: bool
    models: tuple[ModelStatus, ...]
    nodes: tuple[NodeStatus, ...]
    mirror: MirrorStatus | None = None
    """None: server.yaml names none."""
    problems: tuple[str, ...] = ()
    """Of the catalog: file, line and column in each."""
    held: tuple[str, ...] = ()
    """Guards that keep a commit from being carried out, with what lifts them."""
    estimates: Estimates = Estimates()
    """What estimates turned out to be worth."""
    trouble: tuple[Condition, ...] = ()
    """Of control itself: the repository is away, a commit is not admitted, another control writes."""
    promise: Outcome | None = None
    """Whether what was done about the commit is what its plan had said. None: none has been taken up."""
    since: dict[str, int] = {}
    """When each problem was first written, UTC seconds, by its key: see `core.problems`."""

    @property
    def as_asked(self) -> bool:
        """Whether nothing is missing, under way, held or wrong."""
        quiet = all(m.state in ("ready", "idle", "stopped") and not m.frozen for m in self.models)
        return quiet and self.settled and not (self.problems or self.held or self.trouble)

    @property
    def digest(self) -> str:
        """Of everything stable: what decides whether there is something new to commit."""
        mirror = structs.replace(self.mirror, disk_free_gib=UNSET) if self.mirror else None
        nodes = tuple(structs.replace(n, now=UNSET) for n in self.nodes)
        stable = structs.replace(
            self, models=tuple(m.stable for m in self.models), nodes=nodes, mirror=mirror, since={}
        )
        return hashlib.sha256(msgspec.json.encode(stable)).hexdigest()[:16]


def status(wanted: Wanted, seen: Observed, plan: Plan, now: float) -> FleetStatus:
    """What is, as of this pass."""
    fleet = survey(wanted, seen, plan.memory, now)
    names = sorted(wanted.models.keys() | fleet.replicas.keys())
    doubts: dict[str, list[Condition]] = defaultdict(list)
    of_model: dict[str, list[Held]] = defaultdict(list)
    for held in plan.held:
        of_model[held.model].append(held)
        # What is held of a node while control settles is said by its standing.
        if held.subject in fleet.nodes and not held.model and plan.settled:
            doubts[held.subject].append(condition(held))
    moving = _moving(plan)
    versions = {entry.version_key for entry in wanted.models.values()}
    models = (model_status(n, wanted.models.get(n), fleet, plan, of_model[n], moving=n in moving) for n in names)
    return FleetStatus(
        cluster=wanted.server.cluster,
        observed_commit=wanted.commit,
        settled=plan.settled,
        models=tuple(models),
        nodes=tuple(node_status(n, doubts[n.name], versions) for n in fleet.nodes.values()),
        mirror=mirror_status(wanted, seen, plan),
        problems=tuple(p.line_form() for p in wanted.problems),
        held=wanted.held,
        estimates=plan.memory.learned.published,
        promise=plan.memory.promise.outcome if plan.memory.promise else None,
    )


def _moving(plan: Plan) -> set[str]:
    """Models of which something is being started or stopped."""
    leaving = (p.id for p in plan.placements if p.action is Action.DRAIN)
    moved = (a.id for a in plan.actions if isinstance(a, Start | Stop))
    return {split_id(i)[0] for i in (*leaving, *moved)}
