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
