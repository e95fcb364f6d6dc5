"""The table gateways are given."""

import pytest
from fleets import NOW, SETTLED, R, S, model, node, profile, replica, wanting

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.core.serving import table
from llmgw_agent.protocol import Phase


def given(of, *nodes, **more):
    wanted = wanting(*of, nodes=[n.name for n in nodes], **more)
    seen = Observed(nodes)
    return table(wanted, seen, decide(wanted, seen, SETTLED, NOW), NOW)


def rows(found, name="m"):
    (entry,) = [m for m in found.models if m.name == name]
    return {r.id: r for r in entry.replicas}


@pytest.mark.parametrize(
    ("phase", "age_s", "state"),
    [(R, 1.0, "ready"), (S, 1.0, "starting"), (Phase.DRAINING, 1.0, "draining"), (R, 100.0, "silent")],
)
def test_a_replica_is_listed_with_what_may_be_done_with_it(phase, age_s, state):
    of = model(cpu=1)

    found = given([of], node("n1", replica("m/cpu/0", of, phase, port=7500, key="k"), age_s=age_s))

    (row,) = rows(found).values()
    assert (row.url, row.key, row.capacity, row.state) == ("http://10.0.0.1:7500", "k", 2, state)


@pytest.mark.parametrize("phase", [Phase.FETCHING, Phase.STOPPING, Phase.FAILED])
def test_one_that_has_nothing_to_answer_with_is_not_listed(phase):
    of = model(cpu=1)

    assert rows(given([of], node("n1", replica("m/cpu/0", of, phase)))) == {}


def test_one_that_is_told_to_stop_gets_nothing_new_from_that_moment():
    of = model(cpu=1)
    two = [replica(f"m/cpu/{i}", of, port=7500 + i) for i in range(2)]

    found = given([of], node("n1", *two))

    assert {i: r.state for i, r in rows(found).items()} == {"m/cpu/0": "ready", "m/cpu/1": "draining"}


def test_tier_and_weight_are_the_profiles_and_a_profile_that_is_gone_is_last():
    of = model(profiles=[profile("cpu", priority=10, weight=3)])
    seen = node("n1", replica("m/cpu/0", of, port=7500), replica("m/old/0", of, port=7501))

    found = rows(given([of], seen))

    assert (found["m/cpu/0"].tier, found["m/cpu/0"].weight) == (10, 3)
    assert found["m/old/0"].tier < 10


def test_an_engine_is_reached_where_it_was_started_though_its_node_has_another_address_now():
    of = model(cpu=1)

    found = given([of], node("n1", replica("m/cpu/0", of, port=7500, address="fd00::5")))

    assert rows(found)["m/cpu/0"].url == "http://[fd00::5]:7500"


def test_a_model_that_nothing_serves_says_why_and_one_that_is_served_does_not():
    of = model(cpu=1)
    nothing = given([of], node("n1", memory_gib=0.5))
    something = given([of], node("n1", replica("m/cpu/0", of, port=7500)))
    stopped = given([model(cpu=1, state="stopped")], node("n1"))

    assert nothing.models[0].why == "no node has room for it"
    assert something.models[0].why == ""
    assert (stopped.models[0].state, stopped.models[0].why) == ("stopped", "it is stopped")


def test_the_same_fleet_has_the_same_version_and_another_has_another():
    of = model(cpu=1)
    one = given([of], node("n1", replica("m/cpu/0", of, port=7500)))
    same = given([of], node("n1", replica("m/cpu/0", of, port=7500, busy=1), age_s=9.0))
    other = given([of], node("n1", replica("m/cpu/0", of, port=7501)))

    assert one.version == same.version != other.version
