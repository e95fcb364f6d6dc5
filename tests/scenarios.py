"""Kinds of simulated fleets: what goes on in each, and what is asked of all of them.

However it went, a fleet that is left in peace ends as asked, with nothing left behind, and
idle; and no pass on the way did what none may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from commits import RACKS, Commit, Repository, counted, sharing
from machine import Machine
from never import trouble
from world import World

CALM_PASSES = 70
"""The last of each fleet's, half a minute apart: longer than any wait."""


@dataclass(frozen=True)
class Scenario:
    """A kind of fleet, and what is asked of it."""

    name: str
    machines: Callable[[], list[Machine]]
    commits: Callable[[Random], Iterator[Commit]]
    """Without end."""
    last: Callable[[Random], Commit]
    """Its fingerprints are all new: what failed too often is parked until they are."""


def play(scenario: Scenario, seed: int, *, passes: int) -> World:
    """Let everything happen to one fleet, then nothing any more, and look what has come of it."""
    world, dice = World(seed, scenario.machines()), Random(seed)
    commits = scenario.commits(dice)
    commit = next(commits)
    for t in range(passes):
        if t == passes - CALM_PASSES:
            world.luck.calm, commit = True, scenario.last(dice)
        elif world.luck.odds(0.05):
            commit = next(commits)
        if world.luck.odds(0.015):
            world.lose_memory()
        world.asked = dict(commit.asked)
        plan = world.one_pass(commit.wanted)
        wrong = [*trouble(commit.wanted, world.seen, world.before, plan, world.now), *world.trouble()]
        assert wrong == [], f"{scenario.name}, seed {seed}, pass {t}: {wrong}"
        world.tick()
    last = world.one_pass(commit.wanted)
    where = f"{scenario.name}, seed {seed}: {[h.sentence for h in last.held]}"
    serve = Counter(r.rsplit("/", 1)[0] for r in world.ready())
    assert serve == +Counter(commit.serve), f"{where}, and what serves is {dict(serve)}"
    assert len(world.there()) == serve.total(), f"{where}, and something is left: {world.there()}"
    assert (last.actions, last.held) == ((), ()), f"{where}, settled and still busy: {last.actions}"
    return world


def _counts(dice: Random) -> Iterator[Commit]:
    yield counted(3, 2, context=4096)
    while True:
        context, other = dice.choice([4096, 8192]), dice.randint(0, 1)
        yield counted(dice.randint(0, 3), dice.randint(0, 4), context=context, other=other)


def _classes(dice: Random) -> Iterator[Commit]:
    yield sharing(0, context=4096)
    while True:
        yield sharing(dice.randint(0, 2), context=dice.choice([4096, 8192]), least=dice.choice([0, 0, 1]))


def _anything(dice: Random) -> Iterator[Commit]:
    repository = Repository()
    while True:
        yield repository.commit()
        repository = repository.changed(dice)


def _anything_last(dice: Random) -> Commit:
    return Repository(
        context=2048,
        embed=dice.randint(0, 2),
        embed_name=dice.choice(["embed", "vectors"]),
        asked=dice.choice([0, 4]),
        quota=dice.randint(6, 9),
        drained=dice.choice(["", "n5"]),
        card_out=dice.choice(["", "GPU-n3-0"]),
    ).commit()


COUNTS = Scenario(
    "counts",
    lambda: [Machine(name) for name in ("n1", "n2", "n3")],
    _counts,
    lambda _dice: counted(2, 3, context=2048),
)
CLASSES = Scenario(
    "classes",
    lambda: [Machine(name, memory_gib=5) for name in ("n1", "n2", "n3")],
    _classes,
    lambda dice: sharing(1, context=2048, asked=dice.choice([0, 4])),
)
ANYTHING = Scenario(
    "anything",
    lambda: [Machine(name, cards=2 if name in ("n1", "n2", "n3") else 0, disk_gib=16) for name in RACKS],
    _anything,
    _anything_last,
)
ALL = (COUNTS, CLASSES, ANYTHING)
