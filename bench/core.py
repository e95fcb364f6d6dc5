"""Passes over large fleets: with nothing to do, after a loss, and from nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.row import Row, least, peak_gib

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fleets import L40S, NOW, SETTLED, model, node, profile, replica, wanting
from packing import needed, nodes_for

from llmgw.core.actions import Start
from llmgw.core.decide import decide
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.wanted import Wanted
from llmgw.units import GIB
from llmgw_agent.protocol import ReplicaReport

LARGE = (10_000, 2_000, 25)
"""Nodes, models, and replicas of each."""


def rows() -> Iterator[Row]:
    idle = {}
    for nodes, models, each, must in ((100, 50, 10, None), (1000, 500, 10, 60), (*LARGE, 1000)):
        wanted, seen = fleet(nodes, models, each)
        memory = settled(wanted, seen)
        spent = least(lambda w=wanted, s=seen, m=memory: decide(w, s, m, NOW), times=5) * 1000
        idle[nodes] = spent / (models * each)
        words = f"{nodes:,} nodes, {models:,} models, {models * each:,} replicas"
        yield Row(f"core: an idle pass, {words}", spent, "ms CPU", must=must)
        if nodes == 1000:
            yield Row(
                f"core: a tenth of the nodes past its grace, {words}", lost(wanted, seen, memory), "ms CPU", must=500
            )
    grown = idle[LARGE[0]] / idle[1000]
    # A cache holds less of ten times as much: that much above a line is the machine's.
    yield Row("core: an idle pass, a replica of 50,000 over one of 5,000", grown, "times", must=1.5)
    yield from cold()
    yield Row("core: packing, nodes needed over the L2 bound", packing(), "times", must=1.03)


def fleet(nodes: int, models: int, each: int) -> tuple[Wanted, Observed]:
    """So many replicas of each model, laid over the nodes in turn."""
    asked = [model(f"m{n}", profiles=[profile(replicas=each)]) for n in range(models)]
    on: dict[int, list[ReplicaReport]] = {n: [] for n in range(nodes)}
    at = 0
    for of in asked:
        for ordinal in range(each):
            on[at % nodes].append(replica(f"{of.name}/cpu/{ordinal}", of))
            at += 1
    seen = Observed(tuple(node(f"n{n}", *on[n], cards=0) for n in range(nodes)))
    return wanting(*asked, nodes=[f"n{n}" for n in range(nodes)]), seen


def settled(wanted: Wanted, seen: Observed) -> Memory:
    """What control remembers of a fleet that is as asked."""
    plan = decide(wanted, seen, SETTLED, NOW)
    assert plan.empty, plan.actions[:3]
    return plan.memory


def lost(wanted: Wanted, seen: Observed, memory: Memory) -> float:
    """Milliseconds of the pass that replaces what ran on every tenth node."""
    nodes = tuple(
        node(n.name, *n.replicas, age_s=1000.0, cards=0) if i % 10 == 0 else n for i, n in enumerate(seen.nodes)
    )
    gone = Observed(nodes)
    starts = [a for a in decide(wanted, gone, memory, NOW).actions if isinstance(a, Start)]
    assert len(starts) == sum(len(n.replicas) for n in nodes[::10])
    return least(lambda: decide(wanted, gone, memory, NOW), times=5) * 1000


def cold() -> Iterator[Row]:
    """Everything at once, of forty sizes, on cards and without, over a hundred racks."""
    nodes, models, each = LARGE
    entries = [{"name": f"n{n}", "address": "10.0.0.1", "labels": {"rack": f"r{n % 100}"}} for n in range(nodes)]
    asked = [
        model(
            f"m{n}",
            profiles=[profile(replicas=each, memory_gib=1 + n % 40, gpu={"class": L40S} if n % 2 else None)],
        )
        for n in range(models)
    ]
    wanted = wanting(*asked, nodes=entries)
    seen = Observed(tuple(node(f"n{n}", cards=8 if n % 2 else 0) for n in range(nodes)))
    plan = decide(wanted, seen, SETTLED, NOW)
    assert len(plan.actions) == models * each
    words = f"{nodes:,} nodes, {models:,} models, {models * each:,} replicas"
    spent = least(lambda: decide(wanted, seen, SETTLED, NOW), times=1)
    yield Row(f"core: a cold start of everything, {words}", spent, "s CPU", must=60)
    yield Row("core: memory of the process that did all of this", peak_gib(), "GiB", must=4)


def packing() -> float:
    """Nodes that sets of replicas need, over what no arrangement can do with less than; the worst of ten sets."""
    dice = Random(1)
    worst = 0.0
    for _ in range(10):
        sizes = [dice.randint(10, 70) for _ in range(120)]
        worst = max(worst, nodes_for(sizes, 100 * GIB) / needed(sizes, 100))
    return worst
