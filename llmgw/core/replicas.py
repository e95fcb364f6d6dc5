"""Step 1 of a pass: which nodes count, and which replicas are whose.

Reports and the placements remembered from the last pass are laid over each
other here, once, so that nothing after it has to ask whether a start that was
ordered has been seen yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct, structs

from llmgw.catalog.server import NodeEntry
from llmgw.core.memory import Memory, Placement
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import (
    SILENT_AFTER_S,
    Action,
    Claim,
    Dossier,
    Phase,
    Progress,
    ReplicaReport,
    split_id,
)

NO_CLAIM = Claim(memory_bytes=0, cpu_cores=0)
"""What is charged for a replica that says nothing of its claim: an older agent's."""


class Standing(StrEnum):
    """How far a node's last report can be relied on."""

    USABLE = "usable"
    SILENT = "silent"
    """Late, within its grace: what runs there holds its place."""
    LOST = "lost"
    """Past its grace: what ran there is replaced elsewhere."""
    UNKNOWN = "unknown"
    """Never reported since control started, and still within its grace."""


parts = lru_cache(maxsize=1 << 17)(split_id)
"""Model, profile and ordinal of a replica's id. Each pass asks them of the same ones."""

_ON_THE_WAY = (Phase.FETCHING, Phase.STARTING, Phase.READY)
_STANDING = (Standing.USABLE, Standing.SILENT)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of server.yaml with what is known of it."""

    entry: NodeEntry
    seen: NodeSeen
    standing: Standing

    @property
    def name(self) -> str:
        return self.entry.name

    def drains(self, devices: Iterable[str]) -> bool:
        """Whether what runs on these cards of it is to move off."""
        entry = self.entry
        return entry.drained or (bool(entry.cards_out) and not set(entry.cards_out).isdisjoint(devices))


class Replica(Struct, frozen=True, gc=False):
    """One replica, reported or ordered and not yet reported."""

    model: str
    profile: str
    ordinal: int
    id: str
    """The three above, joined."""
    generation: int
    node: str
    key: tuple[str, int, str]
    """Those three: what makes it this one and no other."""
    phase: Phase
    standing: Standing
    reported: bool
    """False: ordered, and the node has not answered yet."""
    leaving: bool
    """Draining, stopping or told to: it will not serve again."""
    fingerprint: str
    claim: Claim
    """What it takes of its node: what was placed, or what is measured where that is more."""
    devices: tuple[str, ...] = ()
    version: str = ""
    parallel: int = 0
    age_s: float = 0.0
    attempts: int = 0
    busy: int | None = None
    tps: float | None = None
    """Tokens a second of one answer, as measured. None: not yet."""
    progress: Progress | None = None
    dossier: Dossier | None = None
    known: bool = True
    """Whether control placed it, or took it up when it started. What else a node reports may be its mistake."""
    serves: bool = False
    """Whether it can be relied on to answer now. Follows from the others."""
    holds: bool = False
    """Whether it takes its place in the count: it serves, may serve, or is on its way to. Follows too."""

    def __lt__(self, other: Replica) -> bool:
        """As a person counts. What a replica is besides has no order."""
        mine = self.model, self.profile, self.ordinal, self.generation, self.node
        return mine < (other.model, other.profile, other.ordinal, other.generation, other.node)

    def __post_init__(self) -> None:
        # Asked several times of each replica in a pass, and never of most of the rest.
        if self.leaving or self.phase not in _ON_THE_WAY or self.standing not in _STANDING:
            return
        structs.force_setattr(self, "holds", True)
        if self.phase is Phase.READY and self.standing is Standing.USABLE:
            structs.force_setattr(self, "serves", True)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes and replicas, settled."""

    nodes: Mapping[str, Node]
    """By name, in order of names."""
    replicas: Mapping[str, tuple[Replica, ...]]
    """By model, each sorted. Every model that has any."""
    generations: Mapping[str, int]
    """The highest that was ever placed or reported, by replica id: of what has stopped too."""
    waiting_for: tuple[str, ...]
    """Nodes that keep this control from deciding anything yet. Empty: settled."""

    @property
    def settled(self) -> bool:
        return not self.waiting_for

    def of(self, model: str) -> tuple[Replica, ...]:
        """The model's replicas, sorted."""
        return self.replicas.get(model, ())


def survey(wanted: Wanted, seen: Observed, memory: Memory, now: float) -> Fleet:
    """The fleet as reports and memory together tell it."""
    reports = {n.name: n for n in seen.nodes}
    grace = wanted.server.node_grace
    nodes = {
        entry.name: Node(
            entry, node := reports.get(entry.name, NodeSeen(entry.name)), _standing(node, grace, memory, now)
        )
        for entry in sorted(wanted.server.nodes, key=lambda e: e.name)
    }
    waiting = () if memory.settled else tuple(n.name for n in nodes.values() if n.standing is Standing.UNKNOWN)
    placed = {(p.id, p.generation, p.node): p for p in memory.placements}
    replicas: dict[str, list[Replica]] = defaultdict(list)
    for replica in _all(nodes, placed, settled=memory.settled):
        replicas[replica.model].append(replica)
    by_model = {m: tuple(sorted(rs)) for m, rs in sorted(replicas.items())}
    return Fleet(nodes, by_model, _generations(nodes, memory), waiting)


def _generations(nodes: Mapping[str, Node], memory: Memory) -> dict[str, int]:
    found = dict(memory.generations)
    for node in nodes.values():
        for report in node.seen.replicas:
            if report.generation > found.get(report.id, 0):
                found[report.id] = report.generation
    return found


def _standing(node: NodeSeen, grace: float, memory: Memory, now: float) -> Standing:
    if node.age_s is None:
        return Standing.UNKNOWN if now - memory.started_at < grace else Standing.LOST
    if node.age_s <= SILENT_AFTER_S:
        return Standing.USABLE
    return Standing.SILENT if node.age_s <= grace else Standing.LOST


def _all(
    nodes: Mapping[str, Node], placed: Mapping[tuple[str, int, str], Placement], *, settled: bool
) -> Iterable[Replica]:
    missing = dict(placed)
    seen: set[tuple[str, int, str]] = set()
    for name, node in nodes.items():
        standing = node.standing
        for report in node.seen.replicas:
            key = (report.id, report.generation, name)
            placement = missing.pop(key, None)
            if report.phase is not Phase.STOPPED and key not in seen:
                seen.add(key)
                yield _seen(key, report, standing, placement, known=placement is not None or not settled)
    for key, placement in missing.items():
        where = nodes.get(placement.node)
        if where is not None and not _vanished(placement, where.seen):
            yield _ordered(key, placement, where)


def _vanished(placement: Placement, node: NodeSeen) -> bool:
    """Whether a node that has obeyed the orders carrying a placement does not have it.

    A drain that was obeyed has ended; a start that was obeyed and is not
    reported was lost with the agent's disk, and is decided again.
    """
    return placement.seq > 0 and node.age_s is not None and node.obeyed >= (placement.epoch, placement.seq)


def _seen(
    key: tuple[str, int, str], report: ReplicaReport, standing: Standing, placement: Placement | None, *, known: bool
) -> Replica:
    phase = report.phase
    claim = report.claim or (placement.claim if placement else None) or NO_CLAIM
    measured = report.memory_bytes or 0
    if measured > claim.memory_bytes:
        claim = Claim(measured, claim.cpu_cores, claim.cards)
    told_to = placement is not None and placement.action is Action.DRAIN
    rid, generation, node = key
    model, profile, ordinal = parts(rid)
    # In the order of the fields, and without their names: this is the most frequent line of a pass.
    return Replica(
        model,
        profile,
        ordinal,
        rid,
        generation,
        node,
        key,
        phase,
        standing,
        True,
        phase is Phase.DRAINING or phase is Phase.STOPPING or (told_to and phase is not Phase.FAILED),
        report.fingerprint,
        claim,
        report.devices or (placement.devices if placement else ()),
        report.version or (placement.version if placement else ""),
        report.parallel,
        report.age_s,
        report.attempts,
        report.busy,
        report.tps,
        report.progress,
        report.dossier,
        known,
    )


def _ordered(key: tuple[str, int, str], placement: Placement, node: Node) -> Replica:
    model, profile, ordinal = parts(placement.id)
    return Replica(
        model=model,
        profile=profile,
        ordinal=ordinal,
        id=placement.id,
        generation=placement.generation,
        node=node.name,
        key=key,
        phase=Phase.STARTING,
        standing=node.standing,
        reported=False,
        leaving=placement.action is Action.DRAIN,
        fingerprint=placement.fingerprint,
        claim=placement.claim or NO_CLAIM,
        devices=placement.devices,
        version=placement.version,
        attempts=placement.attempt,
    )
