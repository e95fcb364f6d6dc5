"""How few nodes a set of replicas needs, and how few any arrangement can need."""

from __future__ import annotations

from collections.abc import Sequence

from fleets import NOW, SETTLED, model, node, profile, wanting

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.units import GIB


def needed(sizes: Sequence[int], room: int) -> int:
    """The L2 bound of Martello and Toth: no packing of these sizes uses fewer rooms.

    For a threshold, what is larger than the rest of a room above it is alone, what is
    over half is one to a room, and the small ones fill what the middle ones leave.
    """
    best = 0
    for threshold in {0, *(s for s in sizes if s <= room // 2)}:
        alone = [s for s in sizes if s > room - threshold]
        halves = [s for s in sizes if room / 2 < s <= room - threshold]
        small = [s for s in sizes if threshold <= s <= room / 2]
        over = sum(small) - (len(halves) * room - sum(halves))
        best = max(best, len(alone) + len(halves) + max(0, -(-over // room)))
    return best


def nodes_for(sizes: Sequence[int], memory_bytes: int) -> int:
    """The fewest nodes of one size on which each of the replicas finds a place."""
    asked = [model(f"m{n:03}", profiles=[profile(memory_gib=size, cpu_cores=0)]) for n, size in enumerate(sizes)]
    count = needed(sizes, memory_bytes // GIB)
    while True:
        nodes = tuple(node(f"n{n:03}", memory_gib=memory_bytes / GIB, cards=0) for n in range(count))
        plan = decide(wanting(*asked, nodes=[n.name for n in nodes]), Observed(nodes), SETTLED, NOW)
        if len(plan.actions) == len(sizes):
            return count
        count += 1
