"""What is seen: the last whole report of each node, and what the mirror holds."""

from __future__ import annotations

from msgspec import Struct

from llmgw.core.holdings import MirrorSeen
from llmgw_agent.protocol import HeldVersion, Inventory, ReplicaReport


class NodeSeen(Struct, frozen=True):
    """A node of server.yaml, as it last reported."""

    name: str
    age_s: float | None = None
    """Since its last report. None: it has not reported since control started."""
    boot: str = ""
    inventory: Inventory | None = None
    """None is unknown, not empty: from no report, and nothing in the status branch."""
    replicas: tuple[ReplicaReport, ...] = ()
    versions: tuple[HeldVersion, ...] = ()
    obeyed: tuple[int, int] = (0, 0)
    """Epoch and seq of the orders it has carried out."""
    agent_version: str = ""


class Observed(Struct, frozen=True):
    """Everything seen at one moment."""

    nodes: tuple[NodeSeen, ...] = ()
    """Sorted by name. Every node of server.yaml is here, reported or not."""
    mirror: MirrorSeen | None = None
    """None is unknown: it cannot be reached, which is not an empty one."""
