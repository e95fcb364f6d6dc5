"""Replicas counted per profile: so many on cards, so many on CPUs."""

import pytest
from fleets import NOW, SETTLED, F, R, S, fleet, held, model, moves, node, profile, replica, wanting

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw_agent.protocol import Dossier


@pytest.mark.parametrize(
    ("asked", "running", "expected"),
    [
        pytest.param({"gpu": 2, "cpu": 1}, {"gpu": [R, R], "cpu": [R]}, [], id="as asked, nothing moves"),
        pytest.param({"gpu": 2, "cpu": 1}, {}, ["+m/cpu/0", "+m/gpu/0", "+m/gpu/1"], id="an empty fleet starts all"),
        pytest.param(
            {"gpu": 1, "cpu": 2},
            {"gpu": [R, R], "cpu": [R]},
            ["+m/cpu/1"],
            id="the new one starts before the old one stops",
        ),
        pytest.param(
            {"gpu": 1, "cpu": 2}, {"gpu": [R, R], "cpu": [R, S]}, [], id="starting is not serving yet, so nothing stops"
        ),
        pytest.param(
            {"gpu": 1, "cpu": 2}, {"gpu": [R, R], "cpu": [R, R]}, ["-m/gpu/1"], id="once it serves, the one over stops"
        ),
        pytest.param({"gpu": 1}, {"gpu": [S, R]}, ["-m/gpu/0"], id="what serves is kept, what only starts is stopped"),
        pytest.param(
            {"gpu": 0, "cpu": 0}, {"gpu": [R], "cpu": [S]}, ["-m/cpu/0", "-m/gpu/0"], id="none asked, all stop"
        ),
        pytest.param({"gpu": 1}, {"gpu": [R, F]}, ["-m/gpu/1"], id="a failed one over its count is cleared away"),
        pytest.param(
            {"gpu": 1, "cpu": 0}, {"gpu": [F]}, ["+m/gpu/0"], id="a failed one is tried again under its own number"
        ),
    ],
)
def test_changing_the_split(asked, running, expected):
    of = model(**asked)

    plan = decide(wanting(of), fleet(of, "n1", "n2", **running), SETTLED, NOW)

    assert moves(plan) == expected


def test_a_silent_nodes_replicas_are_neither_replaced_nor_relied_on():
    # gpu/0 on n1 may be serving and may not: starting another could run two,
    # and stopping cpu/0 on the strength of it could leave none.
    of = model(gpu=1, cpu=0)

    plan = decide(wanting(of), fleet(of, "n1", "n2", silent=["n1"], gpu=[R], cpu=[R]), SETTLED, NOW)

    assert moves(plan) == []
    assert held(plan) == ["m/cpu/0: cpu has more than 0, and still needed until others serve"]


def test_what_is_over_on_a_silent_node_stays_and_is_said():
    of = model(cpu=1)
    seen = Observed((node("n1", replica("m/cpu/0", of)), node("n2", replica("m/cpu/1", of), age_s=100.0)))

    plan = decide(wanting(of), seen, SETTLED, NOW)

    assert moves(plan) == []
    assert held(plan) == ["m/cpu/1: cpu has more than 1, and nothing is asked of n2 while it is silent"]


@pytest.mark.parametrize(("age_s", "places"), [(45.0, 1), (46.0, 1), (600.0, 1), (600.5, 2)])
def test_a_node_keeps_its_replicas_places_to_the_end_of_its_grace(age_s, places):
    of = model(cpu=1)
    seen = Observed((node("n1", replica("m/cpu/0", of), age_s=age_s), node("n2")))

    assert len(decide(wanting(of), seen, SETTLED, NOW).placements) == places


def test_past_its_grace_a_nodes_replicas_are_replaced_under_new_numbers():
    # n1 may come back with gpu/0 still running, so that number is not given again.
    of = model(gpu=1)
    seen = Observed((node("n1", replica("m/gpu/0", of), age_s=601.0), node("n2")))

    plan = decide(wanting(of), seen, SETTLED, NOW)

    assert moves(plan) == ["+m/gpu/1"]
    assert plan.actions[0].node == "n2"


def test_a_node_that_comes_back_leaves_one_of_each():
    of = model(gpu=1)
    back = Observed((node("n1", replica("m/gpu/0", of)), node("n2", replica("m/gpu/1", of))))

    plan = decide(wanting(of), back, SETTLED, NOW)

    assert moves(plan) == ["-m/gpu/1"]


def test_of_two_generations_of_one_replica_the_one_that_serves_lives():
    of = model(gpu=1)
    twins = Observed(
        (node("n1", replica("m/gpu/0", of, generation=1)), node("n2", replica("m/gpu/0", of, S, generation=2)))
    )

    plan = decide(wanting(of), twins, SETTLED, NOW)

    assert [(a.id, a.generation) for a in plan.actions] == [("m/gpu/0", 2)]
    assert moves(plan) == ["-m/gpu/0"]


def test_replicas_of_a_profile_that_is_gone_serve_until_others_do():
    of = model(cpu=1)
    seen = Observed((node("n1", replica("m/old/0", of), cards=0),))

    starting = decide(wanting(of, nodes=["n1"]), seen, SETTLED, NOW)
    seen = Observed((node("n1", replica("m/old/0", of), replica("m/cpu/0", of), cards=0),))
    ready = decide(wanting(of, nodes=["n1"]), seen, SETTLED, NOW)

    assert moves(starting) == ["+m/cpu/0"]
    assert held(starting) == ["m/old/0: it is not asked for any more, and still needed until others serve"]
    assert moves(ready) == ["-m/old/0"]


def test_a_model_that_left_the_catalog_stops_and_one_that_is_stopped_keeps_nothing_running():
    gone, stopped = model("gone", cpu=1), model("stopped", cpu=1, state="stopped")
    seen = Observed((node("n1", replica("gone/cpu/0", gone), replica("stopped/cpu/0", stopped)),))

    plan = decide(wanting(stopped, nodes=["n1"]), seen, SETTLED, NOW)

    assert moves(plan) == ["-gone/cpu/0", "-stopped/cpu/0"]


def test_what_runs_and_cannot_be_explained_is_kept():
    # A file of the catalog cannot be read: it may be the one that asks for this model.
    gone = model("gone", cpu=1)
    seen = Observed((node("n1", replica("gone/cpu/0", gone)),))

    plan = decide(wanting(nodes=["n1"], complete=False), seen, SETTLED, NOW)

    assert moves(plan) == []
    assert held(plan) == ["gone: it runs, and a file of the catalog that cannot be read may ask for it"]
    assert [(p.id, p.action) for p in plan.placements] == [("gone/cpu/0", "keep")]


def test_nothing_is_moved_before_every_node_has_spoken():
    of = model(cpu=1)
    fresh = SETTLED.__class__(started_at=NOW - 5)
    seen = Observed((node("n1"), node("n2", age_s=None)))

    plan = decide(wanting(of), seen, fresh, NOW)

    assert not plan.settled
    assert moves(plan) == []
    assert plan.held[0].sentence == (
        "n2: it has not reported since control started; until it has, or its grace is over, nothing is moved "
        "(595s left); start its agent, or take it out of server.yaml"
    )


def test_a_node_that_never_speaks_is_waited_for_no_longer_than_its_grace():
    of = model(cpu=1)
    fresh = SETTLED.__class__(started_at=NOW - 601)

    plan = decide(wanting(of), Observed((node("n1", obeyed=(7, 3)), node("n2", age_s=None))), fresh, NOW)

    assert moves(plan) == ["+m/cpu/0"]
    assert plan.memory.settled
    assert plan.memory.epoch == 8, "higher than any a node has obeyed"


def test_of_two_that_both_serve_the_one_that_was_placed_lives_whatever_the_other_says_of_itself():
    # A node whose key is in wrong hands could else take any model over.
    of = model(cpu=1)
    placed = replica("m/cpu/0", of)
    first = decide(wanting(of), Observed((node("n1", placed), node("n2"))), SETTLED, NOW)
    stranger = replica("m/cpu/0", of, generation=99, fingerprint="")

    plan = decide(wanting(of), Observed((node("n1", placed), node("n2", stranger))), first.memory, NOW)

    assert [(a.id, a.generation, a.node) for a in plan.actions] == [("m/cpu/0", 99, "n2")]


def test_a_replica_that_a_node_reports_twice_is_one():
    of = model(cpu=1)
    twice = [replica("m/cpu/0", of, F, dossier=Dossier("exited", text)) for text in "ab"]

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", *twice),)), SETTLED, NOW)

    assert len(plan.placements) == 1


def test_what_may_serve_on_a_silent_node_is_kept_before_what_is_on_its_way():
    of = model(cpu=1)
    seen = Observed((node("n1", replica("m/cpu/0", of), age_s=100.0), node("n2", replica("m/cpu/1", of, S))))

    assert moves(decide(wanting(of), seen, SETTLED, NOW)) == ["-m/cpu/1"]


@pytest.mark.parametrize(("missing", "said"), [(2, "1 more replica has"), (3, "2 more replicas have")])
def test_what_is_true_of_one_without_a_place_is_said_once_for_all_of_its_kind(missing, said):
    of = model(cpu=missing)

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", memory_gib=0.5),)), SETTLED, NOW)

    assert held(plan) == [f"m/cpu: {said} no place either", "m/cpu/0: no node has room for it"]


def test_a_replica_that_is_gone_is_replaced_on_its_own_profile():
    of = model(gpu=1, cpu=2)
    lost = node("n1", replica("m/cpu/0", of), age_s=5000.0)
    left = node("n2", replica("m/gpu/0", of, devices=("GPU-0",)), replica("m/cpu/1", of))

    assert moves(decide(wanting(of), Observed((lost, left)), SETTLED, NOW)) == ["+m/cpu/2"]


def test_a_count_of_a_profile_that_is_gone_is_surplus_and_stopped_last():
    of = model(profiles=[profile("a", replicas=1), profile("b", replicas=1)])
    gone = replica("m/gone/0", of, fingerprint="of a profile that is gone")
    running = [replica("m/a/0", of), replica("m/a/1", of, fingerprint="old"), replica("m/b/0", of, S), gone]

    # Three serve where two are asked for: one may go, and that is not what serves of the profile that is gone.
    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", *running),)), SETTLED, NOW)

    assert moves(plan) == ["-m/a/1"]
    assert held(plan) == ["m/gone/0: it is not asked for any more, and still needed until others serve"]


def test_what_was_told_to_drain_is_told_once_before_its_node_says_that_it_does():
    m = model("m", cpu=1)
    wanted, seen = wanting(m, nodes=["n1"]), Observed((node("n1", *(replica(f"m/cpu/{n}", m) for n in range(3))),))

    first = decide(wanted, seen, SETTLED, NOW)
    second = decide(wanted, seen, first.memory, NOW + 1)

    assert (moves(first), moves(second)) == (["-m/cpu/1", "-m/cpu/2"], [])
