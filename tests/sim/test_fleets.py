"""Simulated fleets: however it went, a calm fleet ends as asked, with nothing left behind, and idle.

`make soak` plays many more of each kind, and longer.
"""

from collections import Counter

import pytest
from commits import MIRROR, counted, sharing
from fleets import model, wanting
from machine import Machine
from scenarios import ANYTHING, CLASSES, COUNTS, play
from world import World


def calm(*names, memory_gib=8, seed=1):
    """A world in which nothing goes wrong."""
    world = World(seed, [Machine(name, memory_gib) for name in names or ("n1", "n2", "n3")])
    world.luck.calm = True
    return world


def passes(world, wanted, times):
    for _ in range(times):
        world.one_pass(wanted)
        world.tick()


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(60))
def test_however_it_went_a_calm_fleet_ends_as_asked(seed):
    play(COUNTS, seed, passes=120)


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(12))
def test_models_that_share_too_little_room_end_as_asked_by_class_and_demand(seed):
    play(CLASSES, seed, passes=120)


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(8, 20))
def test_whatever_commits_came_on_the_way_the_last_one_is_what_runs(seed):
    play(ANYTHING, seed, passes=120)


@pytest.mark.sim
def test_when_nobody_asks_any_more_the_last_one_on_demand_stops_and_nothing_else_moves():
    world, asked = calm(memory_gib=5), sharing(1, context=4096)
    world.asked = {"asked": 4}
    passes(world, asked.wanted, 30)
    served = Counter(r.rsplit("/", 1)[0] for r in world.ready())
    others = [r for r in world.there() if not r.startswith("asked/")]

    world.asked = {"asked": 0}
    passes(world, asked.wanted, 30)

    assert served == {"always/cpu": 2, "other/cpu": 1, "first/cpu": 1, "asked/cpu": 2}
    assert world.there() == others


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(10))
def test_control_that_loses_its_memory_again_and_again_moves_nothing_that_serves(seed):
    world, asked = calm(seed=seed), counted(2, 2, context=4096).wanted
    passes(world, asked, 20)
    before = world.there()

    for _ in range(10):
        world.lose_memory()
        passes(world, asked, 5)

    assert world.there() == before, f"seed {seed}"


@pytest.mark.sim
def test_a_model_that_is_removed_and_brought_back_fetches_nothing():
    world = calm()
    asked, without = counted(2, 0, context=4096).wanted, wanting(model("o", cpu=1), nodes=world.machines, mirror=MIRROR)

    for wanted in (asked, without, asked):
        passes(world, wanted, 20)

    assert world.removed == []
    assert Counter(r.rsplit("/", 1)[0] for r in world.ready()) == {"m/big": 2, "o/cpu": 1}


@pytest.mark.sim
def test_what_nothing_refers_to_is_removed_when_its_retention_is_over():
    world = calm()
    passes(world, counted(1, 0, context=4096).wanted, 20)

    passes(world, wanting(model("o", cpu=1), nodes=world.machines, mirror=MIRROR), 60)

    assert world.removed == ["m/1"]
    assert {name: m.versions for name, m in world.machines.items()} == {"n1": set(), "n2": set(), "n3": set()}
