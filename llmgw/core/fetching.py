"""Which nodes fetch weights at the same time: a mirror that serves all of them serves each too slowly.

Of nodes that have their weights on one filesystem one fetches for all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from llmgw.core.actions import Held
from llmgw.core.filesystems import sharing
from llmgw.core.needs import RANK, Need, Spot
from llmgw.core.replicas import Fleet, Node, Standing
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import Phase


class Fetching:
    """The nodes that fetch now, and those that are let fetch in this pass."""

    def __init__(self, wanted: Wanted, fleet: Fleet) -> None:
        """Count who fetches: what arrives is reported, and what was ordered may not have begun."""
        mirror = wanted.server.mirror
        self._fleet = fleet
        self._most = mirror.parallel_nodes if mirror else 0
        self._held = {
            name: frozenset(v.key for v in node.seen.versions if v.state == "held")
            for name, node in fleet.nodes.items()
        }
        self._shared = sharing(node.seen for node in fleet.nodes.values())
        self._waiting = False
        """Whether something that is to run waits to be fetched."""
        ahead = {w.version_key for w in wanted.models.values() if w.model.source.prefetch}
        needed: dict[str, set[str]] = defaultdict(set)
        self._nodes: set[str] = set()
        self._brings: dict[tuple[str, str], str] = {}
        """Of a filesystem (by the first that shares it) and a version: who fetches it."""
        arriving = {
            name: keys
            for name, node in fleet.nodes.items()
            if (keys := {v.key for v in node.seen.versions if v.state == "arriving"})
        }
        for replicas in fleet.replicas.values():
            for replica in replicas:
                if replica.node in arriving:
                    needed[replica.node].add(replica.version)
                if replica.serves:
                    continue
                on_its_way = replica.phase is Phase.FETCHING or not replica.reported
                if on_its_way and replica.version and replica.version not in self._held.get(replica.node, ()):
                    self._fetches(replica.node, replica.version)
        for name, keys in arriving.items():
            node = fleet.nodes[name]
            # What is fetched ahead gives way to what is to run, and takes nobody's turn.
            if node.standing is Standing.USABLE and keys - (ahead - needed[name]):
                self._nodes.add(name)
            for key in keys:
                self._bring(node, key)

    def queue(self, placed: Iterable[tuple[Need, Spot]]) -> dict[str, Held]:
        """Let needs have their weights fetched to their nodes; by id, what those wait for that are not let.

        By class, and of one class the model first that has least: nothing ready, and nothing
        on its way. A node that fetches already may fetch more: it shares what it has of the line.
        """
        lacking = [(n, spot) for n, spot in placed if self._lacks(spot.node, n.version)]
        self._elect(lacking)
        have: Counter[str] = Counter()
        waits: dict[str, Held] = {}
        ranked = []
        for need, spot in sorted(lacking, key=lambda p: (p[0].rank, p[0].order)):
            name = need.model.name
            there = sum(r.holds for r in self._fleet.of(name)) + have[name]
            have[name] += 1
            ranked.append((RANK[need.model.class_], there, need.rank, need.order, need, spot))
        for *_, need, spot in sorted(ranked, key=lambda r: r[:4]):
            why = self._why_not(spot.node, need.version)
            if why:
                self._waiting = True
                waits[need.id] = Held(need.id, why, model=need.model.name)
            else:
                self._fetches(spot.node, need.version)
        return waits

    def before(self, node: str, version: str) -> bool:
        """Whether a node may fetch now what is to take the place of something that runs there."""
        if not self._lacks(node, version) or self._why_not(node, version):
            return False
        self._fetches(node, version)
        return True

    def ahead(self, node: str, version: str) -> bool:
        """Whether a node may fetch now what it does not need yet: only while nothing that is to run waits."""
        return not self._waiting and self.before(node, version)

    def elsewhere(self, node: str, version: str) -> bool:
        """Whether another node brings a version, or has brought it, to the filesystem that a node shares."""
        group = self._shared.get(node, ())
        has = any(self._usable(n) and version in self._held[n] for n in group)
        return has or (bool(group) and self._brings.get((group[0], version), node) != node)

    def _lacks(self, node: str, version: str) -> bool:
        return bool(self._most and version) and version not in self._held.get(node, ())

    def _why_not(self, node: str, version: str) -> str:
        """Why a node does not fetch a version now; empty: it may."""
        group = self._shared.get(node, ())
        holder = next((n for n in group if self._usable(n) and version in self._held[n]), "")
        if holder:
            return f"{holder} has its weights on the filesystem they share, and {node} has not seen them there yet"
        brings = self._brings.get((group[0], version), node) if group else node
        if brings != node:
            return f"{brings} fetches it for the shared filesystem"
        if node in self._nodes or len(self._nodes) < self._most:
            return ""
        who = f"{self._most} nodes fetch" if self._most > 1 else "another node fetches"
        return f"{who} weights, and it waits until one has them (mirror.parallel_nodes)"

    def _elect(self, lacking: Iterable[tuple[Need, Spot]]) -> None:
        """Of those that share a filesystem and need a version, the first by name, where none fetches it yet."""
        for node, version in sorted((spot.node, need.version) for need, spot in lacking):
            self._bring(self._fleet.nodes[node], version)

    def _fetches(self, node: str, version: str) -> None:
        self._nodes.add(node)
        if node in self._fleet.nodes:
            self._bring(self._fleet.nodes[node], version)

    def _bring(self, node: Node, version: str) -> None:
        group = self._shared.get(node.name, ())
        if group and node.standing is Standing.USABLE:
            self._brings.setdefault((group[0], version), node.name)

    def _usable(self, node: str) -> bool:
        return self._fleet.nodes[node].standing is Standing.USABLE
