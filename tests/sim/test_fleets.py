"""Simulated fleets: however it went, a calm fleet ends as asked, with nothing left behind, and idle."""

from collections import Counter
from dataclasses import replace

import pytest
from fleets import model, profile, wanting
from world import World

NODES = ("n1", "n2", "n3")
MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082", "retain": "1h"}
SOURCE = {"from": "https://hub.example/m.gguf", "version": "1"}


def asking(big, small, *, context=4096, other=1):
    """Two models, one of them in two profiles, as a commit would ask for them."""
    of = model(
        "m",
        profiles=[
            profile("big", replicas=big, memory_gib=2, priority=100),
            profile("small", replicas=small, memory_gib=1, priority=10),
        ],
        context_length=context,
        source=SOURCE,
    )
    return wanting(of, model("o", cpu=other), nodes=NODES, mirror=MIRROR, node_grace="5m")


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(60))
def test_however_it_went_a_calm_fleet_ends_as_asked(seed):
    w = World(seed, NODES)
    asked = asking(3, 2)
    for t in range(260):
        if t == 40:
            asked = asking(1, 4)
        if t == 60:
            asked = asking(2, 3, context=8192)
        if t == 70 and seed % 2:
            w.lose_memory()
        w.calm = t >= 110
        if t == 110:
            # What failed too often for its fingerprint stays parked until a commit changes it: one does.
            asked = asking(2, 3, context=2048)
        w.one_pass(asked)
        assert w.overfull() == [], f"seed {seed}, pass {t}"
        w.tick()

    said = [h.sentence for h in w.plan.held]
    assert Counter(r.rsplit("/", 1)[0] for r in w.ready()) == {"m/big": 2, "m/small": 3, "o/cpu": 1}, (
        f"seed {seed}: {said}"
    )
    assert len(w.there()) == 6, f"seed {seed}: {w.there()}"
    assert w.one_pass(asked).empty, f"seed {seed}: settled, and still busy"
    assert said == [], f"seed {seed}"


def sharing(*, context=4096, guaranteed=0, least=0):
    """Models of three classes that do not all fit, one of them on demand, two with a change in common."""
    always = model("always", profiles=[profile(replicas=2, memory_gib=2)], context_length=context)
    other = model("other", profiles=[profile(replicas=1, memory_gib=1)], context_length=context)
    first = model("first", profiles=[profile(replicas=guaranteed, memory_gib=4)], **{"class": "guaranteed"})
    scaling = {"min": least, "max": 3, "window": 0, "target": {"slots": 1}, "down_delay": 60, "idle_timeout": 120}
    asked = model("asked", profiles=[profile(replicas=None, memory_gib=2)], scaling=scaling)
    policy = {"soak": 60, "quotas": [{"class": "opportunistic", "replicas": 2}]}
    wanted = wanting(always, other, first, asked, nodes=NODES, node_grace="5m", policy=policy)
    shared = {n: replace(w, shared=f"context {context}") for n, w in wanted.models.items() if n in ("always", "other")}
    return replace(wanted, models={**wanted.models, **shared})


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(12))
def test_models_that_share_too_little_room_end_as_asked_by_class_and_demand(seed):
    w = World(seed, NODES, memory_gib=5)
    w.asked = {"asked": 4}
    asked = sharing()
    for t in range(330):
        if t == 40:
            asked = sharing(guaranteed=1)
        if t == 60:
            asked = sharing(guaranteed=1, context=8192)
        if t == 70 and seed % 2:
            w.lose_memory()
        w.calm = t >= 110
        if t == 110:
            asked = sharing(guaranteed=1, context=2048)
        w.one_pass(asked)
        assert w.overfull() == [], f"seed {seed}, pass {t}"
        w.tick()

    said = [h.sentence for h in w.plan.held]
    assert Counter(r.rsplit("/", 1)[0] for r in w.ready()) == {
        "always/cpu": 2,
        "other/cpu": 1,
        "first/cpu": 1,
        "asked/cpu": 2,
    }, f"seed {seed}: {said}"
    assert len(w.there()) == 6, f"seed {seed}: {w.there()}"
    assert w.one_pass(asked).empty, f"seed {seed}: settled, and still busy"
    assert said == [], f"seed {seed}"

    # Nobody asks any more: the last one stops, and nothing else moves.
    w.asked = {"asked": 0}
    for _ in range(80):
        w.one_pass(asked)
        w.tick()
    assert not any(r.startswith("asked/") for r in w.ready()), f"seed {seed}"
    assert len(w.there()) == 4, f"seed {seed}: {w.there()}"


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(10))
def test_control_that_loses_its_memory_again_and_again_moves_nothing_that_serves(seed):
    w = World(seed, NODES)
    w.calm = True
    asked = asking(2, 2)
    for _ in range(40):
        w.one_pass(asked)
        w.tick()
    before = w.there()

    for _ in range(10):
        w.lose_memory()
        for _ in range(5):
            w.one_pass(asked)
            w.tick()

    assert w.there() == before, f"seed {seed}"


@pytest.mark.sim
def test_a_model_that_is_removed_and_brought_back_fetches_nothing():
    w = World(1, NODES)
    w.calm = True
    asked, without = asking(2, 0), wanting(model("o", cpu=1), nodes=NODES, mirror=MIRROR)
    for wanted in (asked, without, asked):
        for _ in range(30):
            w.one_pass(wanted)
            w.tick()

    assert w.removed == []
    assert Counter(r.rsplit("/", 1)[0] for r in w.ready()) == {"m/big": 2, "o/cpu": 1}


@pytest.mark.sim
def test_what_nothing_refers_to_is_removed_when_its_retention_is_over():
    w = World(1, NODES)
    w.calm = True
    for wanted, passes in ((asking(1, 0), 30), (wanting(model("o", cpu=1), nodes=NODES, mirror=MIRROR), 760)):
        for _ in range(passes):
            w.one_pass(wanted)
            w.tick()

    assert w.removed == ["m/1"]
