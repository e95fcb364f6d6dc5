"""Step 1 of a pass: which nodes count, and which replicas are whose.

Reports and the placements remembered from the last pass are laid over each
other here, once, so that nothing after it has to ask whether a start that was
ordered has been seen yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter

from msgspec import Struct

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


class Node(Struct, frozen=True):
    """One node of server.yaml with what is known of it."""

    name: str
    entry: NodeEntry
    seen: NodeSeen
    standing: Standing

    def drains(self, devices: Iterable[str]) -> bool:
        """Whether what runs on these cards of it is to move off."""
        entry, inventory = self.entry, self.seen.inventory
        if entry.drained or not entry.cards_out:
            return entry.drained
        out = set(entry.cards_out)
        # With a card go its slices.
        out.update(card.uuid for card in (inventory.cards if inventory else ()) if card.parent in out)
        return not out.isdisjoint(devices)


class Replica(Struct, frozen=True, order=True, gc=False):
    """One replica, reported or ordered and not yet reported.

    They are in order as a person counts; no two of a fleet are the same up to `key`.
    """

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
    holds: bool
    """Whether it takes its place in the count: it serves, may serve, or is on its way to."""
    serves: bool
    """Whether it can be relied on to answer now."""
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
    placement: Placement | None = None
    """As it was last decided. None: it is only reported."""


# Members by names of their own: to ask an enumeration for one takes a tenth of a microsecond, for every replica.
_READY, _STOPPED, _DRAIN = Phase.READY, Phase.STOPPED, Action.DRAIN
_LIVING = (Phase.READY, Phase.STARTING, Phase.FETCHING)
_ENDING = (Phase.DRAINING, Phase.STOPPING)
_USABLE = Standing.USABLE
_THERE = (Standing.USABLE, Standing.SILENT)


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
    nodes: dict[str, Node] = {}
    for entry in sorted(wanted.server.nodes, key=attrgetter("name")):
        node = reports.get(entry.name) or NodeSeen(entry.name)
        nodes[entry.name] = Node(entry.name, entry, node, _standing(node, grace, memory, now))
    waiting = () if memory.settled else tuple(n.name for n in nodes.values() if n.standing is Standing.UNKNOWN)
    placed = {(p.id, p.generation, p.node): p for p in memory.placements}
    replicas: dict[str, list[Replica]] = defaultdict(list)
    for replica in _all(nodes, placed, settled=memory.settled):
        replicas[replica.model].append(replica)
    by_model = {m: tuple(sorted(rs)) for m, rs in sorted(replicas.items())}
    return Fleet(nodes, by_model, _generations(nodes, memory), waiting)


def _generations(nodes: Mapping[str, Node], memory: Memory) -> Mapping[str, int]:
    known = memory.generations
    higher: dict[str, int] = {}
    for node in nodes.values():
        for report in node.seen.replicas:
            rid, generation = report.id, report.generation
            if generation > known.get(rid, 0) and generation > higher.get(rid, 0):
                higher[rid] = generation
    return {**known, **higher} if higher else known


def _standing(node: NodeSeen, grace: float, memory: Memory, now: float) -> Standing:
    if node.age_s is None:
        return Standing.UNKNOWN if now - memory.started_at < grace else Standing.LOST
    if node.age_s <= SILENT_AFTER_S:
        return _USABLE
    return Standing.SILENT if node.age_s <= grace else Standing.LOST


def _all(
    nodes: Mapping[str, Node], placed: dict[tuple[str, int, str], Placement], *, settled: bool
) -> Iterator[Replica]:
    """Each replica once: what is reported, then what is placed and left over."""
    for name, node in nodes.items():
        standing = node.standing
        seen = set()
        for report in node.seen.replicas:
            key = (report.id, report.generation, name)
            placement = placed.pop(key, None)
            if report.phase is not _STOPPED and key not in seen:
                seen.add(key)
                yield _seen(key, report, standing, placement, known=placement is not None or not settled)
    for key, placement in placed.items():
        where = nodes.get(placement.node)
        if where is not None and not _vanished(placement, where.seen):
            yield _ordered(key, placement, where)


def _vanished(placement: Placement, node: NodeSeen) -> bool:
    """Whether a node that has obeyed the orders carrying a placement does not have it.

    A drain that was obeyed has ended; a start that was obeyed and is not
    reported was lost with the agent's disk, and is decided again.
    """
    if node.age_s is None:
        return False
    if not placement.seq:
        # No orders carry what is only imagined, as in a plan: what stops there has ended once it is not seen.
        return placement.action is _DRAIN
    return node.obeyed >= (placement.epoch, placement.seq)


def _seen(
    key: tuple[str, int, str], report: ReplicaReport, standing: Standing, placement: Placement | None, *, known: bool
) -> Replica:
    phase, claim = report.phase, report.claim
    devices, version, told_to = report.devices, report.version, False
    if placement is not None:
        claim = claim or placement.claim
        devices = devices or placement.devices
        version = version or placement.version
        told_to = placement.action is _DRAIN and phase is not Phase.FAILED
    claim = claim or NO_CLAIM
    measured = report.memory_bytes or 0
    if measured > claim.memory_bytes:
        claim = Claim(measured, claim.cpu_cores, claim.cards)
    leaving = told_to or phase in _ENDING
    holds = not leaving and phase in _LIVING and standing in _THERE
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
        leaving,
        holds,
        holds and phase is _READY and standing is _USABLE,
        report.fingerprint,
        claim,
        devices,
        version,
        report.parallel,
        report.age_s,
        report.attempts,
        report.busy,
        report.tps,
        report.progress,
        report.dossier,
        known,
        placement,
    )


def _ordered(key: tuple[str, int, str], placement: Placement, node: Node) -> Replica:
    model, profile, ordinal = parts(placement.id)
    leaving = placement.action is Action.DRAIN
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
        leaving=leaving,
        holds=not leaving and node.standing in _THERE,
        serves=False,
        fingerprint=placement.fingerprint,
        claim=placement.claim or NO_CLAIM,
        devices=placement.devices,
        version=placement.version,
        attempts=placement.attempt,
        placement=placement,
    )
