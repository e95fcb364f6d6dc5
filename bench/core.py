"""A pass over a large fleet with nothing to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.row import Row, least

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fleets import NOW, SETTLED, model, node, profile, replica, wanting

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import ReplicaReport


def rows() -> Iterator[Row]:
    for nodes, models, must in ((100, 50, None), (1000, 500, None)):
        wanted, seen = fleet(nodes, models)
        plan = decide(wanted, seen, SETTLED, NOW)
        assert plan.empty, plan.actions[:3]
        spent = least(lambda w=wanted, s=seen, m=plan.memory: decide(w, s, m, NOW), times=5) * 1000
        name = f"core: an idle pass, {nodes:,} nodes, {models} models, {models * 10:,} replicas"
        yield Row(name, spent, "ms CPU", must=must)


def fleet(nodes: int, models: int) -> tuple[Wanted, Observed]:
    """Ten replicas of each model, laid over the nodes in turn."""
    asked = [model(f"m{n}", profiles=[profile(replicas=10)]) for n in range(models)]
    on: dict[int, list[ReplicaReport]] = {n: [] for n in range(nodes)}
    at = 0
    for of in asked:
        for ordinal in range(10):
            on[at % nodes].append(replica(f"{of.name}/cpu/{ordinal}", of))
            at += 1
    seen = Observed(tuple(node(f"n{n}", *on[n], cards=0) for n in range(nodes)))
    return wanting(*asked, nodes=[f"n{n}" for n in range(nodes)]), seen
