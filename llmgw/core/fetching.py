"""How many nodes fetch weights at the same time: a mirror that serves all of them serves each too slowly."""

from __future__ import annotations

from llmgw.core.actions import Held
from llmgw.core.needs import Need, Spot
from llmgw.core.replicas import Fleet, Standing
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import Phase


class Fetching:
    """The nodes that fetch now, and those that are let fetch in this pass."""

    def __init__(self, wanted: Wanted, fleet: Fleet) -> None:
        """Count who fetches: what arrives is reported, and what was ordered may not have begun."""
        mirror = wanted.server.mirror
        self._most = mirror.parallel_nodes if mirror else 0
        self._held = {
            name: frozenset(v.key for v in node.seen.versions if v.state == "held")
            for name, node in fleet.nodes.items()
        }
        self._nodes = {
            name
            for name, node in fleet.nodes.items()
            if node.standing is Standing.USABLE and any(v.state == "arriving" for v in node.seen.versions)
        }
        for replicas in fleet.replicas.values():
            for replica in replicas:
                on_its_way = replica.phase is Phase.FETCHING or not replica.reported
                if on_its_way and replica.version and replica.version not in self._held.get(replica.node, ()):
                    self._nodes.add(replica.node)

    def admit(self, need: Need, spot: Spot) -> Held | None:
        """Let a need have its weights fetched to its node, or say what it waits for.

        A node that fetches already may fetch more: it shares what it has of the line.
        """
        if not self._most or not need.version or need.version in self._held.get(spot.node, ()):
            return None
        if spot.node in self._nodes or len(self._nodes) < self._most:
            self._nodes.add(spot.node)
            return None
        why = f"{self._most} nodes fetch weights, and it waits until one has them (mirror.parallel_nodes)"
        return Held(need.id, why, model=need.model.name)
