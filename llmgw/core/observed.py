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
    trouble: str = ""
    """Why its agent does not obey its orders: a sentence. Empty: it does."""


class Load(Struct, frozen=True, omit_defaults=True):
    """What all gateways together are asked of one model."""

    waiting: int = 0
    in_flight: int = 0
    idle_for_s: float | None = None
    """Since the end of the last request. None: no request is known of."""
    rps: float | None = None
    """Requests a second, over the last minute. None: some gateway does not say."""


class DemandSeen(Struct, frozen=True, omit_defaults=True):
    """What the gateways of server.yaml are asked, summed."""

    loads: dict[str, Load] = {}
    """By model."""
    silent: tuple[str, ...] = ()
    """Gateways that have not spoken lately, and are not given up yet."""
    whole: bool = True
    """Whether this is all of it. If not, nothing is taken away for lack of demand."""


class Observed(Struct, frozen=True):
    """Everything seen at one moment."""

    nodes: tuple[NodeSeen, ...] = ()
    """Sorted by name. Every node of server.yaml is here, reported or not."""
    mirror: MirrorSeen | None = None
    """None is unknown: it cannot be reached, which is not an empty one."""
    demand: DemandSeen = DemandSeen()
