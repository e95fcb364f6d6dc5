"""Which nodes have their weights on one filesystem: what one of them fetches, all of them have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from llmgw.core.observed import NodeSeen


def sharing(nodes: Iterable[NodeSeen]) -> Mapping[str, tuple[str, ...]]:
    """For each node that shares its filesystem, all that share it, itself among them, sorted."""
    by_id: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.inventory and node.inventory.weights_id:
            by_id[node.inventory.weights_id].append(node.name)
    groups = (tuple(sorted(names)) for names in by_id.values() if len(names) > 1)
    return {name: group for group in groups for name in group}
