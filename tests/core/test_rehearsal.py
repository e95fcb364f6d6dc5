"""What happens to a fleet, and when, on a clock of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import L40S, NOW, SETTLED, R, fleet, model, node, profile, replica, wanting

from llmgw.core.observed import Observed
from llmgw.core.rehearsal import Rehearsal, rehearse
from llmgw.core.simulate import course
from llmgw_agent.protocol import Claim

GIB = 1 << 30


def happened(result: Rehearsal) -> list[tuple[float, str]]:
    return [(e.at_s, e.what.split(":")[0]) for e in result.events]


def test_a_settled_fleet_does_nothing():
    m = model(cpu=2)

    result = rehearse(wanting(m), fleet(m, "n1", "n2", cpu=[R, R]), SETTLED, NOW, minutes=30)

    assert result.events == ()
    assert result.ready == result.least == {"m": 2}
    assert result.unplaced == ()


def test_a_lost_node_is_replaced_once_its_grace_is_over_and_not_before():
    m = model(cpu=2)
    seen = Observed((node("n1", replica("m/cpu/0", m), age_s=0.0), node("n2", replica("m/cpu/1", m), age_s=0.0)))

    result = rehearse(wanting(m), seen, SETTLED, NOW, minutes=15, lost={"n1"})

    assert happened(result) == [(610.0, "start m/cpu/2 on n2")]
    assert (result.ready, result.least) == ({"m": 2}, {"m": 1})


def test_what_no_longer_fits_is_said_in_the_end():
    m = model(profiles=[profile(replicas=2, memory_gib=6)])
    at = [replica(f"m/cpu/{n}", m, claim=Claim(6 * GIB, 1)) for n in range(2)]
    seen = Observed((node("n1", at[0], memory_gib=8), node("n2", at[1], memory_gib=8)))

    result = rehearse(wanting(m), seen, SETTLED, NOW, minutes=15, lost={"n1"})

    assert result.ready == {"m": 1}
    assert [h.subject for h in result.unplaced] == ["m/cpu/2"]
    assert "no node has room for it" in result.unplaced[0].why


def test_a_change_is_carried_out_in_its_steps():
    m = model(cpu=3)
    seen = fleet(m, "n1", "n2", cpu=[R])

    result = rehearse(wanting(m), seen, SETTLED, NOW, minutes=1)

    assert happened(result) == [(0.0, "start m/cpu/1 on n2"), (0.0, "start m/cpu/2 on n1")]
    assert result.least == {"m": 1}
    assert result.ready == {"m": 3}


def test_a_node_that_was_lost_already_stays_so():
    m = model(cpu=1)
    seen = Observed((node("n1", replica("m/cpu/0", m), age_s=None), node("n2")))

    result = rehearse(wanting(m), seen, SETTLED, NOW, minutes=1, lost={"n1"})

    assert happened(result) == [(0.0, "start m/cpu/1 on n2")]


def sharing(**policy):
    """Two models that a change of server.yaml makes out of date, and the node that they run on."""
    models = [model(name, cpu=1) for name in "ab"]
    wanted = wanting(*models, nodes=["n1"], policy=policy)
    entries = {n: replace(w, shared="the change of defaults in 1a2b3c4d") for n, w in wanted.models.items()}
    old = (replica(f"{m.name}/cpu/0", m, fingerprint="old") for m in models)
    return replace(wanted, models=entries), Observed((node("n1", *old),))


def test_a_change_that_is_shared_takes_its_time_from_the_first_model_to_the_next():
    wanted, seen = sharing(soak=900)

    result = rehearse(wanted, seen, SETTLED, NOW, minutes=20)

    # The first is seen to be through at 30 s, and the other begins 900 s after that.
    assert [(at, what) for at, what in happened(result) if not what.startswith("held")] == [
        (0.0, "start a/cpu/1 on n1"),
        (20.0, "stop a/cpu/0 on n1"),
        (930.0, "start b/cpu/1 on n1"),
        (950.0, "stop b/cpu/0 on n1"),
    ]


@pytest.mark.parametrize("soak", [600, 601, 86_400])
def test_a_plan_goes_on_to_the_end_of_a_change_that_is_shared_however_long_the_others_wait(soak):
    wanted, seen = sharing(soak=soak)

    ended = course(wanted, seen, SETTLED, NOW)

    assert ended.settled
    assert ended.held == ()
    assert [len(step.actions) for step in ended.steps] == [1, 1, 1, 1]


@pytest.mark.parametrize("class_", ["standard", "opportunistic"])
def test_what_stops_leaves_its_room_in_a_plan_as_it_does_where_engines_run(class_):
    card = [profile("gpu", gpu={"class": L40S}, replicas=1)]
    a, b = model("a", profiles=card), model("b", profiles=card, **{"class": class_})
    seen = Observed((node("n1", replica("a/gpu/0", a, devices=("GPU-0",)), cards=1),))

    end = course(wanting(b, nodes=["n1"]), seen, SETTLED, NOW)

    assert [[(type(x).__name__, x.id) for x in s.actions] for s in end.steps] == [
        [("Stop", "a/gpu/0")],
        [("Start", "b/gpu/0")],
    ]
    assert (end.settled, end.held) == (True, ())


def test_a_change_in_place_comes_to_its_end_in_a_plan():
    m = model(profiles=[profile("gpu", gpu={"class": L40S}, replicas=2)], rollout={"strategy": "in_place"})
    old = [replica(f"m/gpu/{n}", m, devices=(f"GPU-{n}",), fingerprint="old") for n in range(2)]

    end = course(wanting(m, nodes=["n1"]), Observed((node("n1", *old, cards=2),)), SETTLED, NOW)

    assert [r.fingerprint != "old" for n in end.end.nodes for r in n.replicas] == [True, True]
    assert (end.settled, end.held) == (True, ())
