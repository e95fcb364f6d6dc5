"""Step 8 of a pass: what is, in the terms people and programs read.

Every value here is stable, unless it stands under `now`: a status commit is made
only when something stable changes, and then carries the rest as it is.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from llmgw.core.actions import Held, Plan, Start, Stop
from llmgw.core.headroom import Left
from llmgw.core.holdings import Failure, Holding, HoldingState
from llmgw.core.memory import LastGood, Memory
from llmgw.core.observed import Observed
from llmgw.core.replicas import Fleet, Node, survey
from llmgw.core.retention import version_key
from llmgw.core.seats import counts
from llmgw.core.unplaced import Reason
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.learned import Estimates
from llmgw.units import GIB
from llmgw_agent.protocol import Action, Card, Claim, HeldVersion, Inventory, Phase, ReplicaReport, WeightFile, split_id


class Condition(Struct, frozen=True, omit_defaults=True):
    """Why something is not as asked."""

    subject: str
    why: str
    next: str = ""
    stalled: bool = False


class ProfileStatus(Struct, frozen=True, omit_defaults=True):
    """One profile: how many, and where they are."""

    name: str
    wanted: int
    ready: int
    starting: int = 0
    failed: int = 0
    nodes: tuple[str, ...] = ()
    """Of the ready ones, sorted, one for each."""


class Shortage(Struct, frozen=True, omit_defaults=True):
    """Why replicas of one profile have no node."""

    profile: str
    detail: str
    """What is missing on the nearest nodes, and what would change that: a sentence."""
    reasons: tuple[Reason, ...]


class ModelNow(Struct, frozen=True, omit_defaults=True):
    """What of a model moves."""

    unplaced: tuple[Shortage, ...] = ()
    headroom: tuple[Left, ...] = ()
    """How many more would fit, by profile, as of when it was written. Empty: that was not worked out."""


class ModelStatus(Struct, frozen=True, omit_defaults=True):
    """One model."""

    name: str
    state: str
    """ready | idle | reconciling | stalled | stopped | leaving. One that is idle starts when it is asked."""
    path: str = ""
    commit: str = ""
    """The commit its spec is of."""
    frozen: str = ""
    """Why that is not the newest one."""
    profiles: tuple[ProfileStatus, ...] = ()
    version: str = ""
    conditions: tuple[Condition, ...] = ()
    good: dict[str, LastGood] = {}
    """By profile: the last form that served, where that is not the one that is wanted."""
    now: ModelNow | UnsetType = UNSET

    @property
    def stable(self) -> ModelStatus:
        """The same without what moves."""
        return self if self.now is UNSET else structs.replace(self, now=UNSET)


class ReplicaStatus(Struct, frozen=True, omit_defaults=True):
    """One replica on a node, without what moves and without its key."""

    id: str
    generation: int
    phase: Phase
    fingerprint: str = ""
    claim: Claim | None = None
    devices: tuple[str, ...] = ()
    parallel: int = 0
    version: str = ""
    attempts: int = 0
    cause: str = ""
    message: str = ""


class NodeNow(Struct, frozen=True, omit_defaults=True):
    """What of a node moves."""

    report_age_s: int | None = None
    memory_used_by_others_gib: int | None = None
    disk_free_gib: int | None = None
    cards_held_gib: dict[str, int] = {}
    """What others hold of cards, by UUID: those of which it is a GiB or more."""


class NodeStatus(Struct, frozen=True, omit_defaults=True):
    """One node: enough to plan on it without asking it."""

    name: str
    standing: str
    address: str = ""
    drained: bool = False
    agent_version: str = ""
    inventory: Inventory | None = None
    replicas: tuple[ReplicaStatus, ...] = ()
    versions: tuple[HeldVersion, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Why it, or a card of it, is not trusted with anything new."""
    now: NodeNow | UnsetType = UNSET

    @property
    def word(self) -> str:
        """How it is spoken of."""
        if self.drained:
            return "drained"
        return {"usable": "reporting", "unknown": "not reported yet"}.get(self.standing, self.standing)


class HoldingStatus(Struct, frozen=True, omit_defaults=True):
    """One version on the mirror."""

    name: str
    version: str
    state: HoldingState
    origin: str = "catalog"
    files: tuple[WeightFile, ...] = ()
    failure: Failure | None = None
    models: tuple[str, ...] = ()
    """Who refers to it."""
    unreferenced_since: int | None = None
    """UTC seconds."""
    retain_s: int | None = None
    """How long it is kept after that, where its model says so itself: the model may be gone when it counts."""


class MirrorStatus(Struct, frozen=True, omit_defaults=True):
    """The mirror. `reachable: false` is not an empty one."""

    reachable: bool
    holdings: tuple[HoldingStatus, ...] = ()
    purges: tuple[str, ...] = ()
    """What has become of each version of a purged model, on the mirror and on every node: a sentence each."""
    disk_free_gib: int | UnsetType = UNSET
    """Moves."""


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

    @property
    def as_asked(self) -> bool:
        """Whether nothing is missing, under way, held or wrong."""
        quiet = all(m.state in ("ready", "idle", "stopped") and not m.frozen for m in self.models)
        return quiet and self.settled and not self.problems and not self.held

    @property
    def digest(self) -> str:
        """Of everything stable: what decides whether there is something new to commit."""
        mirror = structs.replace(self.mirror, disk_free_gib=UNSET) if self.mirror else None
        nodes = tuple(structs.replace(n, now=UNSET) for n in self.nodes)
        stable = structs.replace(self, models=tuple(m.stable for m in self.models), nodes=nodes, mirror=mirror)
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
            doubts[held.subject].append(_condition(held))
    moving = _moving(plan)
    models = (_model(n, wanted.models.get(n), fleet, plan, of_model[n], moving=n in moving) for n in names)
    return FleetStatus(
        cluster=wanted.server.cluster,
        observed_commit=wanted.commit,
        settled=plan.settled,
        models=tuple(models),
        nodes=tuple(_node(n, doubts[n.name]) for n in fleet.nodes.values()),
        mirror=_mirror(wanted, seen, plan),
        problems=tuple(p.line_form() for p in wanted.problems),
        held=wanted.held,
        estimates=plan.memory.learned.published,
    )


def _model(
    name: str, entry: WantedModel | None, fleet: Fleet, plan: Plan, held: Iterable[Held], *, moving: bool
) -> ModelStatus:
    asked = counts(entry, plan.memory.scales)
    mine = fleet.of(name)
    profiles = []
    for profile in sorted({*asked, *(r.profile for r in mine)}):
        of_profile = [r for r in mine if r.profile == profile]
        ready = [r.node for r in of_profile if r.serves]
        profiles.append(
            ProfileStatus(
                profile,
                asked.get(profile, 0),
                len(ready),
                starting=sum(r.phase in (Phase.FETCHING, Phase.STARTING) for r in of_profile),
                failed=sum(r.phase is Phase.FAILED for r in of_profile),
                nodes=tuple(sorted(ready)),
            )
        )
    conditions = tuple(map(_condition, held))
    return ModelStatus(
        name,
        _state(entry, profiles, conditions, moving=moving),
        path=entry.path if entry else "",
        commit=entry.commit if entry else "",
        frozen=entry.frozen if entry else "",
        profiles=tuple(profiles),
        version=version_key(entry.model) if entry else "",
        conditions=conditions,
        good=_good(entry, plan.memory) if entry else {},
        now=_shortages(held),
    )


def _good(entry: WantedModel, memory: Memory) -> dict[str, LastGood]:
    known = ((p, memory.good.get(f"{entry.model.name}/{p}"), outcome) for p, outcome in entry.outcomes.items())
    return {profile: good for profile, good, outcome in known if good and good.fingerprint != outcome}


def _shortages(held: Iterable[Held]) -> ModelNow | UnsetType:
    """One table for each profile: its replicas ask the same, and it is said of one of them."""
    tables = tuple(Shortage(split_id(h.subject)[1], h.detail, h.reasons) for h in held if h.reasons)
    return ModelNow(tables) if tables else UNSET


def _state(
    entry: WantedModel | None, profiles: Iterable[ProfileStatus], conditions: Iterable[Condition], *, moving: bool
) -> str:
    if entry is None:
        return "leaving"
    if any(c.stalled for c in conditions):
        return "stalled"
    if moving or any(p.ready != p.wanted or p.starting or p.failed for p in profiles):
        return "reconciling"
    if any(p.wanted for p in profiles):
        return "ready"
    return "idle" if entry.model.scaling and not entry.stopped else "stopped"


def _moving(plan: Plan) -> set[str]:
    """Models of which something is being started or stopped."""
    leaving = (p.id for p in plan.placements if p.action is Action.DRAIN)
    moved = (a.id for a in plan.actions if isinstance(a, Start | Stop))
    return {split_id(i)[0] for i in (*leaving, *moved)}


def _condition(held: Held) -> Condition:
    return Condition(held.subject, held.why, held.next, held.stalled)


def _node(node: Node, conditions: Iterable[Condition]) -> NodeStatus:
    seen, inventory = node.seen, node.seen.inventory
    moving = NodeNow(
        report_age_s=None if seen.age_s is None else round(seen.age_s),
        memory_used_by_others_gib=_gib(inventory.memory_used_by_others_bytes) if inventory else None,
        disk_free_gib=_gib(inventory.disk_free_bytes) if inventory else None,
        cards_held_gib=_held_of(inventory.cards) if inventory else {},
    )
    if inventory:
        inventory = structs.replace(
            inventory,
            memory_used_by_others_bytes=None,
            disk_free_bytes=None,
            processes=(),
            cards=tuple(structs.replace(c, used_by_others_bytes=None, processes=()) for c in inventory.cards),
        )
    return NodeStatus(
        node.name,
        str(node.standing),
        address=node.entry.address,
        drained=node.entry.drained,
        agent_version=seen.agent_version,
        inventory=inventory,
        replicas=tuple(sorted((_replica(r) for r in seen.replicas), key=lambda r: (r.id, r.generation))),
        versions=tuple(sorted((_held(v) for v in seen.versions), key=lambda v: v.key)),
        conditions=tuple(conditions),
        now=moving,
    )


def _gib(n: int | None) -> int | None:
    return None if n is None else round(n / GIB)


def _held_of(cards: Iterable[Card]) -> dict[str, int]:
    return {c.uuid: held for c in cards if (held := _gib(c.used_by_others_bytes))}


def _held(version: HeldVersion) -> HeldVersion:
    return version if version.state != "arriving" else structs.replace(version, bytes=0)


def _replica(report: ReplicaReport) -> ReplicaStatus:
    return ReplicaStatus(
        report.id,
        report.generation,
        report.phase,
        fingerprint=report.fingerprint,
        claim=report.claim,
        devices=report.devices,
        parallel=report.parallel,
        version=report.version,
        attempts=report.attempts,
        cause=report.dossier.cause if report.dossier else "",
        message=report.dossier.message if report.dossier else "",
    )


def _mirror(wanted: Wanted, seen: Observed, plan: Plan) -> MirrorStatus | None:
    if wanted.server.mirror is None:
        return None
    users: dict[str, list[str]] = {}
    for name, entry in wanted.models.items():
        users.setdefault(version_key(entry.model), []).append(name)
    if seen.mirror is None:
        # What it held when it was last seen is still worth saying.
        held = tuple(_holding(_remembered(k, files), users, plan) for k, files in sorted(plan.memory.files.items()))
        return MirrorStatus(reachable=False, holdings=held, purges=_purges(plan))
    free = seen.mirror.disk_free_bytes
    return MirrorStatus(
        reachable=True,
        holdings=tuple(_holding(h, users, plan) for h in sorted(seen.mirror.holdings, key=lambda h: h.key)),
        purges=_purges(plan),
        disk_free_gib=UNSET if free is None else round(free / GIB),
    )


def _purges(plan: Plan) -> tuple[str, ...]:
    return tuple(purge.sentence for purge in plan.memory.purges)


def _remembered(key: str, files: tuple[WeightFile, ...]) -> Holding:
    name, version = key.split("/", 1)
    return Holding(name, version, HoldingState.PRESENT, files=files)


def _holding(holding: Holding, users: dict[str, list[str]], plan: Plan) -> HoldingStatus:
    since, retain = plan.memory.unreferenced.get(holding.key), plan.memory.retains.get(holding.key)
    return HoldingStatus(
        holding.name,
        holding.version,
        holding.state,
        origin=holding.origin,
        files=holding.files if holding.state is HoldingState.PRESENT else (),
        failure=holding.failure,
        models=tuple(users.get(holding.key, ())),
        unreferenced_since=None if since is None else int(since),
        retain_s=None if retain is None else round(retain),
    )
