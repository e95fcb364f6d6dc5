"""How many more of each profile fit, with and without what would give way, and why not more."""

import pytest
from fleets import L40S, NOW, SETTLED, card, model, node, profile, replica, wanting

from llmgw.core.decide import decide
from llmgw.core.headroom import Headroom, headroom, why_not_more
from llmgw.core.observed import Observed
from llmgw.core.replicas import survey
from llmgw.core.rooms import Rooms


def looked_at(of, *nodes, **server):
    wanted = wanting(*of, nodes=[n.name for n in nodes], **server)
    return Rooms(survey(wanted, Observed(nodes), SETTLED, NOW))


@pytest.mark.parametrize(
    ("asked", "nodes", "more"),
    [
        pytest.param(profile(memory_gib=2), [node("n1", memory_gib=7)], 3, id="memory"),
        pytest.param(profile(cpu_cores=3), [node("n1", cores=8)], 2, id="cores"),
        pytest.param(profile(cpu_cores=0, memory_gib=1), [node("n1", memory_gib=5, cores=1)], 5, id="no cores"),
        pytest.param(profile(cpu_cores=None), [node("n1", cores=8)], 2, id="half the node's cores each"),
        pytest.param(
            profile("gpu", gpu={"class": L40S, "count": 2}), [node("n1", cards=5), node("n2", cards=2)], 3, id="cards"
        ),
        pytest.param(
            profile("gpu", gpu={"class": L40S}), [node("n1", cards=[card(0, used_gib=40), card(1)])], 1, id="GS1 others"
        ),
        pytest.param(profile(), [node("n1", age_s=100.0)], 0, id="a silent node has room for none"),
        pytest.param(profile(engine="vllm"), [node("n1")], 0, id="none where a rule keeps it off"),
    ],
)
def test_how_many_more_fit(asked, nodes, more):
    of = model(profiles=[asked])

    (found,) = headroom([of], looked_at([of], *nodes), {})

    assert found == Headroom("m", asked["name"], more, more)


def test_as_many_fit_as_a_pass_would_place():
    nodes = (node("n1", memory_gib=13, cores=9, cards=3), node("n2", memory_gib=5, cores=64, cards=8))
    of = model(profiles=[profile("gpu", gpu={"class": L40S}, memory_gib=2, cpu_cores=2, replicas=100)])

    (found,) = headroom([of], looked_at([of], *nodes), {})

    plan = decide(wanting(of), Observed(nodes), SETTLED, NOW)
    assert len(plan.actions) == found.more == 5


def test_what_would_give_way_is_counted_apart():
    low = model("low", cpu=2, **{"class": "opportunistic"})
    high = model("high", profiles=[profile(memory_gib=2)], **{"class": "guaranteed"})
    running = [replica(f"low/cpu/{n}", low) for n in (0, 1)]
    rooms = looked_at([low, high], node("n1", *running, memory_gib=5))

    def lower(of):
        return [(r.id, r.generation, "n1") for r in running] if of is high else []

    assert headroom([high, low], rooms, {}, lower) == (Headroom("high", "cpu", 1, 2), Headroom("low", "cpu", 3, 3))


def test_weights_that_do_not_fit_the_disk_let_none_more_start_and_those_that_are_there_any_number():
    of = model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1"})
    nodes = [node("n1", disk_gib=10, memory_gib=3), node("n2", disk_gib=10, memory_gib=3, versions=["m/1"])]

    (found,) = headroom([of], looked_at([of], *nodes), {"m/1": 20 << 30})

    assert found.more == 3


def test_why_not_more_is_the_table_of_a_full_fleet():
    of = model(cpu=1)
    rooms = looked_at([of], node("n1", memory_gib=3.5), node("n2", engines=()))

    why = why_not_more(of, "cpu", rooms, {})

    assert [(r.rule, r.nodes, r.nearest[0].node) for r in why.reasons] == [("engine", 1, "n2"), ("memory", 1, "n1")]
    assert why.would_fit == "it would fit on n1 with 0.5 GiB less memory"


def test_looking_changes_nothing():
    of = model(cpu=1)
    rooms = looked_at([of], node("n1", memory_gib=3.5))

    first = headroom([of], rooms, {})
    why_not_more(of, "cpu", rooms, {})

    assert headroom([of], rooms, {}) == first
