"""What an owner or a class may have in all."""

from __future__ import annotations

import pytest
from fleets import L40S, NOW, SETTLED, F, R, held, model, moves, node, profile, replica, wanting

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw_agent.protocol import Claim

GIB = 1 << 30


def owned(name: str, owner: str = "ana", *, replicas: int = 1, class_: str = "standard", gpu: int = 0):
    cards = {"gpu": {"class": L40S, "count": gpu}} if gpu else {}
    ways = [profile(replicas=replicas, memory_gib=2, **cards)]
    return model(name, owner=owner, profiles=ways, **{"class": class_})


def run(*models, quotas, running=()):
    seen = Observed((node("n1", *running),))
    return decide(wanting(*models, nodes=["n1"], policy={"quotas": quotas}), seen, SETTLED, NOW)


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        ({"replicas": 2}, "2 of 2 replicas are taken, and it takes 1"),
        ({"memory_gib": 5}, "4.0 GiB of 5.0 GiB are taken, and it takes 2.0 GiB"),
    ],
    ids=["replicas", "memory"],
)
def test_what_would_be_over_a_quota_is_held_with_whose_it_is_and_by_how_much(quota, said):
    plan = run(owned("m", replicas=3), quotas=[{"owner": "ana", **quota}])

    assert moves(plan) == ["+m/cpu/0", "+m/cpu/1"]
    assert [h.sentence for h in plan.held] == [
        f"m/cpu/2: the quota of the models of ana is full ({said}); "
        "raise it under policy.quotas, or stop something of theirs"
    ]
    assert plan.held[0].stalled


def test_cards_are_counted_as_each_replica_takes_them():
    plan = run(owned("m", replicas=3, gpu=2), quotas=[{"cards": 5}])

    assert moves(plan) == ["+m/cpu/0", "+m/cpu/1"]
    assert "4 of 5 cards are taken, and it takes 2" in plan.held[0].reason


def test_what_a_lost_node_had_is_replaced_within_the_same_quota():
    m = owned("m", replicas=2)
    claim = Claim(2 * GIB, 1)
    n1 = node("n1", replica("m/cpu/0", m, claim=claim), age_s=10_000)
    seen = Observed((n1, node("n2", replica("m/cpu/1", m, claim=claim))))
    quotas = [{"owner": "ana", "replicas": 2}]

    plan = decide(wanting(m, nodes=["n1", "n2"], policy={"quotas": quotas}), seen, SETTLED, NOW)

    assert ("n2" in {a.node for a in plan.actions}, plan.held) == (True, ())


def test_what_runs_counts_and_what_failed_does_not():
    m = owned("m", replicas=3)
    claim = Claim(2 * GIB, 1)
    running = [replica("m/cpu/0", m, claim=claim), replica("m/cpu/1", m, F, claim=claim, age_s=10_000)]

    plan = run(m, quotas=[{"owner": "ana", "replicas": 2}], running=running)

    assert moves(plan) == ["+m/cpu/1"]


def test_a_quota_is_its_owners_and_its_classs_alone():
    quotas = [{"owner": "ana", "class": "standard", "replicas": 0}]

    plan = run(owned("a"), owned("b", "bo"), owned("c", class_="guaranteed"), quotas=quotas)

    assert moves(plan) == ["+b/cpu/0", "+c/cpu/0"]
    assert held(plan) == ["a/cpu/0: the quota of the standard models of ana is full"]


def test_a_quota_for_everybody_goes_to_the_highest_class_first():
    plan = run(owned("a"), owned("b", class_="guaranteed"), quotas=[{"replicas": 1}])

    assert moves(plan) == ["+b/cpu/0"]
    assert held(plan) == ["a/cpu/0: the quota of all models is full"]


def test_what_runs_over_a_quota_that_was_lowered_goes_on():
    m = owned("m", replicas=2)

    plan = run(m, quotas=[{"replicas": 1}], running=[replica(f"m/cpu/{n}", m) for n in range(2)])

    assert moves(plan) == []


def test_a_change_goes_in_place_where_one_more_would_be_over_the_quota():
    m = owned("m", replicas=2)
    running = [replica(f"m/cpu/{n}", m, R, fingerprint="old") for n in range(2)]

    plan = run(m, quotas=[{"replicas": 2}], running=running)

    assert moves(plan) == ["-m/cpu/1"]
    assert held(plan) == ["m/cpu/2: it waits until m/cpu/1 has made room"]


def test_a_full_quota_is_said_once_for_all_of_a_profile():
    plan = run(owned("m", replicas=5), quotas=[{"replicas": 2}])

    assert held(plan) == ["m/cpu/2: the quota of all models is full"]


CPU = {"claim": Claim(2 * GIB, 1), "fingerprint": "old"}


@pytest.mark.parametrize(
    ("after", "before", "quota", "nodes"),
    [
        pytest.param(owned("m", replicas=4), 4, {"replicas": 3}, {}, id="the quota was lowered"),
        pytest.param(
            model("m", owner="ana", profiles=[profile(replicas=2, memory_gib=3)]),
            2,
            {"memory_gib": 4},
            {},
            id="the new form takes more of it",
        ),
        pytest.param(
            model("m", owner="ana", profiles=[profile("gpu", gpu={"class": L40S}, replicas=2)]),
            2,
            {"cards": 0},
            {},
            id="it moves to what there is no quota for",
        ),
        pytest.param(owned("m", replicas=2), 2, {"replicas": 2}, {"engines": ()}, id="no node would take it"),
    ],
)
@pytest.mark.parametrize("strategy", ["auto", "in_place"])
def test_nothing_that_serves_is_given_up_for_what_a_quota_or_every_node_keeps_out_then_too(
    after, before, quota, nodes, strategy
):
    m = after.model_copy(update={"rollout": after.rollout.model_copy(update={"strategy": strategy})})
    running = [replica(f"m/cpu/{n}", m, R, **CPU) for n in range(before)]
    seen = Observed((node("n1", *running, **nodes),))

    plan = decide(wanting(m, nodes=["n1"], policy={"quotas": [{"owner": "ana", **quota}]}), seen, SETTLED, NOW)

    assert moves(plan) == []
    assert any(h.stalled for h in plan.held)


def test_what_has_no_place_takes_nothing_of_its_owners_quota():
    a = owned("a", class_="guaranteed", gpu=4)
    b = owned("b", gpu=1)
    seen = Observed((node("n1", cards=2),))

    plan = decide(wanting(a, b, nodes=["n1"], policy={"quotas": [{"owner": "ana", "cards": 4}]}), seen, SETTLED, NOW)

    assert moves(plan) == ["+b/cpu/0"]
    assert held(plan) == ["a/cpu/0: no node has room for it"]


def test_what_waits_until_another_has_gone_keeps_its_part_of_the_quota():
    gone = owned("gone", "bo", gpu=2)
    a, b = owned("a", class_="guaranteed", gpu=2), owned("b")
    cards = Claim(2 * GIB, 1, 2)
    seen = Observed((node("n1", replica("gone/cpu/0", gone, claim=cards, devices=("GPU-0", "GPU-1")), cards=2),))
    quotas = [{"owner": "ana", "replicas": 1}]

    plan = decide(wanting(a, b, nodes=["n1"], policy={"quotas": quotas}), seen, SETTLED, NOW)

    assert moves(plan) == ["-gone/cpu/0"]
    assert held(plan) == [
        "a/cpu/0: it waits until what is stopping has made room",
        "b/cpu/0: the quota of the models of ana is full",
    ]


def test_what_goes_in_place_counts_once_so_that_others_may_too():
    two = [
        model(name, owner="ana", profiles=[profile(replicas=1, memory_gib=2)], rollout={"strategy": "in_place"})
        for name in "mn"
    ]
    running = [replica(f"{m.name}/cpu/0", m, fingerprint="old", claim=Claim(2 * GIB, 1)) for m in two]

    plan = run(*two, quotas=[{"owner": "ana", "replicas": 2}], running=running)

    assert moves(plan) == ["-m/cpu/0", "-n/cpu/0"]
    assert not [h for h in plan.held if "quota" in h.why]
