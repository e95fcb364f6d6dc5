"""What a replica finds around it on its node, and what it may ask of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from llmgw_agent import in_place
from llmgw_agent.dossier import Fault
from llmgw_agent.engines.base import Adapter
from llmgw_agent.logs import Logs
from llmgw_agent.protocol import InstalledEngine, ReplicaOrder, VersionOrder
from llmgw_agent.records import Key, Records
from llmgw_agent.settings import Settings
from llmgw_agent.weights import Weights


@dataclass(frozen=True)
class Surroundings:
    """One node, as its replicas see it. The last seven are the node's own answers."""

    settings: Settings
    boot: str
    owner: str
    """This agent's id: every marker of its engines begins with it."""
    records: Records
    logs: Logs
    weights: Weights
    adapters: dict[str, Adapter]
    installed: Callable[[], Awaitable[tuple[InstalledEngine, ...]]]
    """The engines of this node, once it has looked for them."""
    address: Callable[[], str]
    """Where engines listen."""
    ordered: Callable[[Key], ReplicaOrder | None]
    """What was last ordered of a replica, if anything was."""
    version: Callable[[str], VersionOrder]
    """The order for a version, by its key."""
    ports: Callable[[], set[int]]
    """Those our engines have."""
    on_cards: Callable[[Collection[int]], int | None]
    """Bytes that processes of ours hold on cards, at the last look. None is unknown."""
    room: Callable[[Key, ReplicaOrder], Awaitable[None]]
    """Back once nothing that is going away still has what this order needs."""
    changed: Callable[[], None]
    """There is something new to report."""

    def adapter(self, engine: str) -> Adapter:
        """The adapter for an engine. Raises Fault when this agent has none for it."""
        if engine not in self.adapters:
            known = ", ".join(sorted(self.adapters))
            why = f"this agent starts {known}, and not {engine}"
            raise Fault("engine_missing", "the engine was not started", why=why, do="update the agent, or the profile")
        return self.adapters[engine]

    async def weights_of(self, order: ReplicaOrder) -> Path:
        """Where the weights of an order are, fetched first when they must be. Raises Fault."""
        if order.path:
            return in_place.allowed(order.path, self.settings.allow)
        if not order.version:
            why = "its order names neither a version nor a path"
            raise Fault("weights", f"{order.id} was not started", why=why, do="give the model a source")
        return await self.weights.folder(self.version(order.version))
