"""What a status says of one node: enough to plan on it without asking it."""

from __future__ import annotations

from collections.abc import Container, Iterable

from msgspec import UNSET, Struct, UnsetType, structs

from llmgw.core.condition import Condition
from llmgw.core.replicas import Node
from llmgw.units import GIB
from llmgw_agent.protocol import Card, Claim, HeldVersion, Inventory, Phase, ReplicaReport


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
    unwanted: tuple[str, ...] = ()
    """Of these, the whole ones that no model of the catalog refers to, as `name/version`."""
    conditions: tuple[Condition, ...] = ()
    """Why it, or a card of it, is not trusted with anything new."""
    now: NodeNow | UnsetType = UNSET

    @property
    def word(self) -> str:
        """How it is spoken of."""
        if self.drained:
            return "drained"
        return {"usable": "reporting", "unknown": "not reported yet"}.get(self.standing, self.standing)


def node_status(node: Node, conditions: Iterable[Condition], wanted: Container[str]) -> NodeStatus:
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
        unwanted=tuple(sorted(v.key for v in seen.versions if v.state == "held" and v.key not in wanted)),
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
