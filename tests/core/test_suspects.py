"""Nodes that fail in all they start, and cards with errors: nothing new, nothing taken away, and said."""

import pytest
from fleets import L40S, NOW, SETTLED, F, card, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.core.decide import decide
from llmgw.core.memory import Failures
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw_agent.protocol import Dossier

A, B, NEW = model("a", cpu=1), model("b", cpu=1), model("new", cpu=1)


def failed(of, cause="exited", **more):
    return replica(f"{of.name}/cpu/0", of, F, age_s=0.0, dossier=Dossier(cause, "it ended"), **more)


def test_a_node_on_which_two_models_fail_and_nothing_serves_is_tried_last_and_said():
    # It is the fullest that has room: without the suspicion it would be taken.
    seen = Observed((node("n1", failed(A), failed(B), memory_gib=4), node("n2")))

    plan = decide(wanting(A, B, NEW), seen, SETTLED, NOW)

    assert [(a.id, a.node) for a in plan.actions] == [("new/cpu/0", "n2")]
    assert "n1: everything it started failed (a/cpu, b/cpu), so it is tried last" in held(plan)


def test_a_suspect_node_is_still_tried_where_there_is_no_other():
    seen = Observed((node("n1", failed(A), failed(B)),))

    plan = decide(wanting(A, B, NEW, nodes=["n1"]), seen, SETTLED, NOW)

    assert moves(plan) == ["+new/cpu/0"]


@pytest.mark.parametrize(
    ("on_n1", "on_n2"),
    [
        pytest.param([failed(A)], [], id="one model that fails may be at fault itself"),
        pytest.param([failed(A), failed(B), replica("c/cpu/0", model("c", cpu=1))], [], id="something serves there"),
        pytest.param([failed(A, "bad_flags"), failed(B)], [], id="bad flags are bad everywhere"),
    ],
)
def test_what_is_no_sign_against_a_node_makes_it_no_suspect(on_n1, on_n2):
    seen = Observed((node("n1", *on_n1), node("n2", *on_n2)))

    plan = decide(wanting(A, B, model("c", cpu=1)), seen, SETTLED, NOW)

    assert not [line for line in held(plan) if line.startswith("n1:")]


def test_models_that_fail_wherever_they_go_make_no_node_suspect():
    failures = {
        name: Failures(wanting(m).models[m.name].outcomes["cpu"], 2, NOW, "exited", "", ("n1", "n2"))
        for name, m in (("a/cpu", A), ("b/cpu", B))
    }
    seen = Observed((node("n1", failed(A), failed(B)), node("n2")))

    plan = decide(wanting(A, B), seen, structs.replace(SETTLED, failures=failures), NOW)

    assert not [line for line in held(plan) if line.startswith("n")]


def test_a_lost_node_has_not_failed_in_anything():
    seen = Observed((node("n1", failed(A), failed(B), age_s=5000.0), node("n2")))

    plan = decide(wanting(A, B), seen, SETTLED, NOW)

    assert not [line for line in held(plan) if line.startswith("n1:")]


def test_a_replica_that_fails_on_one_node_and_works_on_others_names_the_node():
    of = model(cpu=3)
    ready = [replica(f"m/cpu/{n}", of) for n in (1, 2)]
    broken = replica("m/cpu/0", of, F, age_s=0.0)
    seen = Observed((node("n1", broken), node("n2", ready[0]), node("n3", ready[1])))

    plan = decide(wanting(of, nodes=["n1", "n2", "n3"]), seen, SETTLED, NOW)

    (said,) = plan.held
    assert said.detail == "in 5s; it fails on n1 and works on n2, n3"


def test_a_card_with_errors_gets_nothing_new_keeps_what_serves_and_is_said():
    of = model(profiles=[profile("gpu", gpu={"class": L40S}, replicas=2)])
    serving = replica("m/gpu/0", of, devices=("GPU-0",))
    bad = structs.replace(card(0), errors=("xid 79",))
    seen = Observed((node("n1", serving, cards=[bad, card(1)]),))

    plan = decide(wanting(of, nodes=["n1"]), seen, SETTLED, NOW)

    assert moves(plan) == ["+m/gpu/1"]
    assert plan.placements[1].devices == ("GPU-1",)
    (said,) = plan.held
    assert said.sentence == (
        "n1: GPU-0 is not well (xid 79): nothing new is put on it, and m/gpu/0 stays on it while it serves; "
        "move off what runs there: llmgw node drain n1 --card GPU-0, reset it (nvidia-smi -i GPU-0 --gpu-reset), "
        "and replace it if this comes again"
    )


def test_what_failed_on_a_card_with_errors_goes_elsewhere():
    of = model(profiles=[profile("gpu", gpu={"class": L40S})])
    broken = replica("m/gpu/0", of, F, devices=("GPU-0",))
    bad = structs.replace(card(0), errors=("uncorrectable ecc",))
    seen = Observed((node("n1", broken, cards=[bad]), node("n2", cards=[card(5)])))

    plan = decide(wanting(of), seen, SETTLED, NOW)

    assert [(a.id, a.node) for a in plan.actions] == [("m/gpu/0", "n2")]


def test_the_status_of_a_node_says_why_it_is_not_trusted():
    bad = structs.replace(card(0), errors=("lost",))
    wanted, seen = wanting(A), Observed((node("n1", cards=[bad]), node("n2")))

    now = status(wanted, seen, decide(wanted, seen, SETTLED, NOW), NOW)

    assert [[c.why for c in n.conditions] for n in now.nodes] == [
        ["GPU-0 is not well (lost): nothing new is put on it"],
        [],
    ]


@pytest.mark.parametrize(
    ("errors", "helps"),
    [
        (("lost",), "switch n1 off and on; if the card does not come back, put it into another slot or replace it"),
        (("row remapping failed", "xid 64"), "replace it; move off what runs there: llmgw node drain n1 --card GPU-0"),
        (("mig mode without slices",), "cut it into slices, or switch MIG off: nvidia-smi -i GPU-0 -mig 0"),
        (("reset required",), "move off what runs there: llmgw node drain n1 --card GPU-0, reset it"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_helps_a_card_is_said(errors, helps):
    bad = structs.replace(card(0), errors=errors)

    (said,) = decide(wanting(A, nodes=["n1"]), Observed((node("n1", cards=[bad]),)), SETTLED, NOW).held

    assert said.next.startswith(helps)


def test_a_card_that_is_cut_is_spoken_of_once_with_what_runs_on_its_slices():
    of = model(profiles=[profile("gpu", gpu={"class": L40S, "slice": "1g.10gb"}, replicas=2)])
    bad = structs.replace(card(0), errors=("xid 79",))
    parts = [structs.replace(bad, uuid=f"MIG-{n}", parent="GPU-0", slice="1g.10gb") for n in range(2)]
    running = [replica(f"m/gpu/{n}", of, devices=(f"MIG-{n}",)) for n in range(2)]

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", *running, cards=[bad, *parts]),)), SETTLED, NOW)

    assert held(plan) == [
        "n1: GPU-0 is not well (xid 79): nothing new is put on it, and m/gpu/0, m/gpu/1 stays on it while it serves"
    ]


def test_a_card_of_the_same_name_on_another_node_is_another_card():
    of = model(profiles=[profile("gpu", gpu={"class": L40S})])
    bad = structs.replace(card(0), errors=("lost",))
    seen = Observed((node("n1", cards=[bad]), node("n2", replica("m/gpu/0", of, devices=("GPU-0",)), cards=1)))

    assert held(decide(wanting(of), seen, SETTLED, NOW)) == ["n1: GPU-0 is not well (lost): nothing new is put on it"]


def test_a_card_that_returns_is_given_something_again():
    of = model(profiles=[profile("gpu", gpu={"class": L40S})])
    wanted = wanting(of, nodes=["n1"])
    gone = structs.replace(card(0), errors=("lost",))

    without = decide(wanted, Observed((node("n1", cards=[gone]),)), SETTLED, NOW)
    back = decide(wanted, Observed((node("n1", cards=[card(0)]),)), without.memory, NOW + 5)

    assert moves(without) == []
    assert moves(back) == ["+m/gpu/0"]


def test_while_a_driver_does_not_answer_its_cards_get_nothing_new_and_what_serves_goes_on():
    of = model(profiles=[profile("gpu", gpu={"class": L40S}, replicas=2)])
    hangs = node("n1", replica("m/gpu/0", of, devices=("GPU-0",)), cards=2)
    problem = "nvidia-smi does not answer within 20 s: the driver hangs, or a card does"
    hangs = structs.replace(hangs, inventory=structs.replace(hangs.inventory, card_problem=problem))

    plan = decide(wanting(of, nodes=["n1"]), Observed((hangs,)), SETTLED, NOW)

    assert moves(plan) == []
    assert [h.detail for h in plan.held] == [
        f"n1: 1 l40s-48g short of 1, {problem}; it would fit on n1 with 1 more free"
    ]


def test_without_room_elsewhere_the_reason_says_what_is_wrong_with_the_card():
    of = model(profiles=[profile("gpu", gpu={"class": L40S})])
    bad = structs.replace(card(0), errors=("xid 79",))

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", cards=[bad]),)), SETTLED, NOW)

    assert "n1: 1 l40s-48g short of 1, GPU-0 is not well (xid 79)" in " ".join(h.detail for h in plan.held)


def test_a_node_that_does_not_obey_is_said_to_with_why():
    of = model(cpu=1)
    told = structs.replace(node("n1", replica("m/cpu/0", of)), trouble="its disk is full, and orders are not written")

    plan = decide(wanting(of, nodes=["n1"]), Observed((told,)), SETTLED, NOW)

    assert [h.sentence for h in plan.held] == [
        "n1: it does not obey its orders: its disk is full, and orders are not written; "
        "see its agent's log; what runs there goes on"
    ]
    assert moves(plan) == []
