"""How many more of each profile fit, with and without what would give way, and why not more."""

import pytest
from fleets import L40S, NOW, SETTLED, card, model, node, profile, replica, wanting
from msgspec import structs

from llmgw.core.decide import decide
from llmgw.core.headroom import Headroom, Left, headroom, left, why_not_more
from llmgw.core.observed import Observed
from llmgw.core.outlook import with_headroom
from llmgw.core.replicas import survey
from llmgw.core.rooms import Rooms
from llmgw.core.status import status
from llmgw.core.wanted import WantedModel


def entry(of):
    return WantedModel(of, "catalog/m.yaml", "c" * 40)


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

    (found,) = headroom([entry(of)], looked_at([of], *nodes), {})

    assert found == Headroom("m", asked["name"], more, more)


def test_as_many_fit_as_a_pass_would_place():
    nodes = (node("n1", memory_gib=13, cores=9, cards=3), node("n2", memory_gib=5, cores=64, cards=8))
    of = model(profiles=[profile("gpu", gpu={"class": L40S}, memory_gib=2, cpu_cores=2, replicas=100)])

    (found,) = headroom([entry(of)], looked_at([of], *nodes), {})

    plan = decide(wanting(of), Observed(nodes), SETTLED, NOW)
    assert len(plan.actions) == found.more == 5


def test_what_would_give_way_is_counted_apart():
    low = model("low", cpu=2, **{"class": "opportunistic"})
    high = model("high", profiles=[profile(memory_gib=2)], **{"class": "guaranteed"})
    running = [replica(f"low/cpu/{n}", low) for n in (0, 1)]
    rooms = looked_at([low, high], node("n1", *running, memory_gib=5))

    def freed(of):
        return rooms.without((r.id, r.generation, "n1") for r in running) if of is high else []

    assert headroom([entry(high), entry(low)], rooms, {}, freed) == (
        Headroom("high", "cpu", 1, 2),
        Headroom("low", "cpu", 3, 3),
    )


def test_weights_that_do_not_fit_the_disk_let_none_more_start_and_those_that_are_there_any_number():
    of = model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1"})
    nodes = [node("n1", disk_gib=10, memory_gib=3), node("n2", disk_gib=10, memory_gib=3, versions=["m/1"])]

    (found,) = headroom([entry(of)], looked_at([of], *nodes), {"m/1": 20 << 30})

    assert found.more == 3


def test_why_not_more_is_the_table_of_a_full_fleet():
    of = model(cpu=1)
    rooms = looked_at([of], node("n1", memory_gib=3.5), node("n2", engines=()))

    why = why_not_more(entry(of), "cpu", rooms, {})

    assert [(r.rule, r.nodes, r.nearest[0].node) for r in why.reasons] == [("engine", 1, "n2"), ("memory", 1, "n1")]
    assert why.would_fit == "it would fit on n1 with 0.5 GiB less memory"


def test_looking_changes_nothing():
    of = model(cpu=1)
    rooms = looked_at([of], node("n1", memory_gib=3.5))

    first = headroom([entry(of)], rooms, {})
    why_not_more(entry(of), "cpu", rooms, {})

    assert headroom([entry(of)], rooms, {}) == first


@pytest.mark.parametrize(
    ("asked", "there", "why"),
    [
        pytest.param(profile(memory_gib=2), {"memory_gib": 7}, "n1: 1.0 GiB of memory short", id="memory"),
        pytest.param(profile(cpu_cores=3), {"cores": 8}, "n1: 1 CPU cores short", id="cores"),
        pytest.param(profile(disk="4GiB"), {"disk_gib": 10}, "n1: 3.2 GB of disk short", id="disk"),
        pytest.param(
            profile("gpu", gpu={"class": L40S, "count": 2}), {"cards": 5}, "n1: 1 l40s-48g short of 2", id="cards"
        ),
    ],
)
def test_what_keeps_off_the_next_one_is_what_a_pass_would_say_of_it(asked, there, why):
    of = model(profiles=[asked])
    nodes = (node("n1", **there),)
    (counted,) = headroom([entry(of)], looked_at([of], *nodes), {})

    told = why_not_more(entry(of), asked["name"], looked_at([of], *nodes), {})

    assert told.words.startswith(why)
    more = model(profiles=[{**asked, "replicas": counted.more + 1}])
    plan = decide(wanting(more, nodes=["n1"]), Observed(nodes), SETTLED, NOW)
    assert len(plan.actions) == counted.more
    assert [h.detail for h in plan.held] == [told.words]


def test_cards_of_two_kinds_are_filled_each_by_itself():
    of = model(profiles=[profile("gpu", gpu={"vendor": "nvidia", "count": 2})])
    cards = [card(n, card_class=L40S if n < 3 else "rtx-4090-24g") for n in range(6)]
    rooms = looked_at([of], node("n1", cards=cards))

    assert headroom([entry(of)], rooms, {})[0].more == 2
    assert why_not_more(entry(of), "gpu", rooms, {}).words.startswith("n1: 1 card (nvidia) short of 2")


def of_fleet(models, *nodes, **more):
    wanted = wanting(*models, nodes=[n.name for n in nodes])
    return left(wanted, survey(wanted, Observed(nodes), SETTLED, NOW), {}, **more)


def test_what_is_left_is_said_of_every_model_with_what_lower_ones_would_give():
    low = model("low", cpu=2, **{"class": "opportunistic"})
    high = model("high", profiles=[profile(memory_gib=2)], **{"class": "guaranteed"})
    running = [replica(f"low/cpu/{n}", low) for n in (0, 1)]

    found = of_fleet([low, high], node("n1", *running, memory_gib=5))

    assert [h.sentence for of in found.values() for h in of] == [
        "room for 1 more of cpu, 2 with preempting; not more because n1: 1.0 GiB of memory short; "
        "it would fit on n1 with 1.0 GiB less memory",
        "room for 3 more of cpu; not more because n1: 1.0 GiB of memory short; "
        "it would fit on n1 with 1.0 GiB less memory",
    ]


def test_of_a_model_whose_memory_nobody_knows_no_number_is_made_up():
    of = model(profiles=[profile(memory_gib=None)])

    assert [h.sentence for h in of_fleet([of], node("n1"))["m"]] == [
        "room for more of cpu is not known: its memory is not written and cannot be worked out; llmgw lock m"
    ]


def test_a_node_with_what_keeps_away_from_a_model_has_no_room_for_it():
    of, shy = model(cpu=1), model("shy", profiles=[profile(anti_affinity=["m"])])

    (found,) = of_fleet([of, shy], node("n1", replica("shy/cpu/0", shy)))["m"]

    assert found.more == 0


def test_a_stopped_model_has_no_room_to_speak_of():
    assert of_fleet([model(cpu=1, state="stopped")], node("n1")) == {}


def test_a_large_fleet_is_asked_as_far_as_the_looks_go_and_not_further():
    models = [model(name, cpu=1) for name in "abc"]

    assert list(of_fleet(models, node("n1"), node("n2"), looks=4)) == ["a", "b"]


def test_what_is_kept_within_a_rack_has_the_room_of_one():
    of = model(profiles=[profile(memory_gib=1, keep_within="rack")])
    racks = {"n1": "a", "n2": "b", "n3": "b"}
    entries = [{"name": n, "address": "10.0.0.1", "labels": {"rack": r}} for n, r in racks.items()]
    nodes = [node(n, memory_gib=2) for n in racks]

    found = left(
        wanting(of, nodes=entries), survey(wanting(of, nodes=entries), Observed(tuple(nodes)), SETTLED, NOW), {}
    )

    assert [h.more for h in found["m"]] == [4]


def test_a_status_says_it_and_is_no_other_for_it():
    of = model(cpu=1)
    wanted, seen = wanting(of, nodes=["n1"]), Observed((node("n1", replica("m/cpu/0", of), memory_gib=3.5),))
    now = status(wanted, seen, decide(wanted, seen, SETTLED, NOW), NOW)

    written = with_headroom(now, wanted, seen)

    assert written.digest == now.digest
    unsettled = structs.replace(now, settled=False)
    assert with_headroom(unsettled, wanted, seen) == unsettled
    (of_m,) = written.models
    assert of_m.now.headroom == (
        Left("cpu", 2, 2, "n1: 0.5 GiB of memory short; it would fit on n1 with 0.5 GiB less memory"),
    )
