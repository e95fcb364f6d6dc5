"""Pains of other systems' users that concern the core, by their ids.

GS10 and KA4, a control that loses everything, are shown by tests/sim as well; DS1 and LS1
by test_rollout.py, GS1 by test_placement.py, KA2 by the fingerprint's tests.
"""

from __future__ import annotations

from fleets import L40S, NOW, SETTLED, F, R, S, card, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.core.decide import decide
from llmgw.core.memory import Memory
from llmgw.core.observed import DemandSeen, Load, Observed
from llmgw_agent.protocol import Claim, ForeignProcess, Phase

GIB = 1 << 30
ON_CARDS = {"class": L40S}


def on_demand(name, *, gib=4, **scaling):
    fields = {"min": 0, "max": 1, "window": 0, "target": {"slots": 1}, **scaling}
    return model(name, profiles=[profile(replicas=None, memory_gib=gib)], scaling=fields)


def test_gs1_a_card_that_a_foreign_process_holds_is_named_with_it_and_used_once_it_is_free():
    of = model(gpu=1)
    taken = structs.replace(card(0, used_gib=27), processes=(ForeignProcess(4711, 27 * GIB, "blender"),))

    short = decide(wanting(of, nodes=["n1"]), Observed((node("n1", cards=[taken]),)), SETTLED, NOW)
    freed = decide(wanting(of, nodes=["n1"]), Observed((node("n1", cards=[card(0)]),)), short.memory, NOW + 5)

    assert moves(short) == []
    assert "27.0 GiB of GPU-0 held by blender (pid 4711)" in short.held[0].detail
    assert moves(freed) == ["+m/gpu/0"]


def test_gs6_a_node_that_was_cut_off_while_its_model_was_removed_ends_it_when_it_is_back():
    gone = replica("gone/cpu/0", model("gone", cpu=1))

    cut = decide(wanting(nodes=["n1"]), Observed((node("n1", gone, age_s=300.0),)), SETTLED, NOW)
    back = decide(wanting(nodes=["n1"]), Observed((node("n1", gone),)), cut.memory, NOW + 300)

    assert (moves(cut), moves(back)) == ([], ["-gone/cpu/0"])


def test_gs10_ka4_a_control_that_forgot_everything_moves_nothing_and_takes_nothing_away_for_a_window():
    of = model("m", profiles=[profile(replicas=None)], scaling={"min": 1, "max": 3, "down_delay": 60})
    seen = Observed((node("n1", *(replica(f"m/cpu/{n}", of) for n in range(3))),), demand=DemandSeen({"m": Load()}))
    memory = Memory(started_at=NOW)

    for second in range(0, 600, 30):
        plan = decide(wanting(of, nodes=["n1"]), seen, memory, NOW + second)
        memory = plan.memory
        assert moves(plan) == [], second


def test_ls6_ls7_two_models_on_one_card_take_turns_of_a_minute_and_not_of_a_request():
    a, b = on_demand("a"), on_demand("b")
    memory, on, swaps = SETTLED, "a", 0
    of = {"a": a, "b": b}
    for second in range(0, 600, 5):
        asked = DemandSeen({name: Load(in_flight=1) if name == on else Load(waiting=1) for name in of})
        seen = Observed(
            (node("n1", replica(f"{on}/cpu/0", of[on], generation=swaps + 1, claim=Claim(4 * GIB, 1)), memory_gib=4),),
            demand=asked,
        )
        plan = decide(wanting(a, b, nodes=["n1"]), seen, memory, NOW + second)
        memory = structs.replace(plan.memory, placements=())  # what was ordered has come true at once
        if moves(plan) == [f"-{on}/cpu/0"]:
            on, swaps = "b" if on == "a" else "a", swaps + 1

    assert 5 <= swaps <= 10


def test_ls8_the_least_that_makes_the_room_is_given_up_without_any_set_written_by_hand():
    small, large, asked = on_demand("small", gib=2), on_demand("large", gib=6), on_demand("asked", gib=5)
    running = (
        replica("small/cpu/0", small, claim=Claim(2 * GIB, 1)),
        replica("large/cpu/0", large, claim=Claim(6 * GIB, 1)),
    )
    loads = {"small": Load(idle_for_s=5.0), "large": Load(idle_for_s=50.0), "asked": Load(waiting=1)}
    seen = Observed((node("n1", *running, memory_gib=8),), demand=DemandSeen(loads))

    plan = decide(wanting(small, large, asked, nodes=["n1"]), seen, SETTLED, NOW)

    assert moves(plan) == ["-large/cpu/0"]


def test_ka1_one_name_runs_on_cards_and_on_cpus():
    of = model(gpu=7, cpu=4)

    plan = decide(wanting(of), Observed((node("n1"), node("n2", cards=0))), SETTLED, NOW)

    assert len([m for m in moves(plan) if m.startswith("+m/gpu/")]) == 7
    assert len([m for m in moves(plan) if m.startswith("+m/cpu/")]) == 4


def test_ka2_a_replica_on_cpus_is_given_no_card():
    plan = decide(wanting(model(cpu=1), nodes=["n1"]), Observed((node("n1"),)), SETTLED, NOW)

    assert [p.devices for p in plan.placements] == [()]


def test_ka6_a_model_that_fails_is_parked_and_nobody_who_gave_up_starts_it_again():
    of = on_demand("m")
    failed = replica("m/cpu/0", of, F, attempts=5)
    seen = Observed((node("n1", failed),), demand=DemandSeen({"m": Load(waiting=3)}))

    asked = decide(wanting(of, nodes=["n1"]), seen, SETTLED, NOW)
    given_up = structs.replace(seen, demand=DemandSeen({"m": Load(idle_for_s=2000.0)}))
    later = decide(wanting(of, nodes=["n1"]), given_up, asked.memory, NOW + 2000)

    assert [h for h in held(asked) if "it is parked after failing 5 times" in h]
    assert moves(later) == ["-m/cpu/0"]
    assert later.memory.scales["m"].total == 0


def test_ka7_what_is_missing_on_every_node_is_named():
    of = model(cpu=1, source={"from": "/mnt/models/m.gguf"})
    bare = node("n1")
    bare = structs.replace(bare, inventory=structs.replace(bare.inventory, allow=()))

    plan = decide(wanting(of, nodes=["n1"]), Observed((bare,)), SETTLED, NOW)

    assert held(plan) == ["m/cpu/0: no node may read /mnt/models/m.gguf"]


def test_ds1_one_of_several_that_fails_takes_none_of_the_others_down():
    of = model(cpu=3)
    mine = [replica(f"m/cpu/{n}", of, phase) for n, phase in enumerate((R, R, F))]

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", *mine),)), SETTLED, NOW)

    assert not [m for m in moves(plan) if m.startswith("-")]


def test_ds2_what_has_not_passed_its_probe_does_not_count_as_serving():
    of = model(cpu=1)
    old = replica("m/cpu/0", of, fingerprint="of the last commit")

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", old, replica("m/cpu/1", of, S)),)), SETTLED, NOW)

    assert moves(plan) == []


def test_ds6_a_node_that_is_silent_for_less_than_its_grace_comes_back_to_what_it_had():
    of = model(cpu=1)

    away = decide(wanting(of), Observed((node("n1", replica("m/cpu/0", of), age_s=300.0), node("n2"))), SETTLED, NOW)
    back = decide(wanting(of), Observed((node("n1", replica("m/cpu/0", of)), node("n2"))), away.memory, NOW + 1)

    assert (moves(away), moves(back)) == ([], [])


def test_ds10_a_node_that_hangs_keeps_no_other_from_its_start():
    plan = decide(wanting(model(cpu=1)), Observed((node("n1", age_s=None), node("n2", engines=None))), SETTLED, NOW)

    assert [(a.id, a.node) for a in plan.actions] == [("m/cpu/0", "n2")]


def test_an_alias_that_is_edited_while_a_replica_drains_or_serves_touches_neither():
    of = model(cpu=1, aliases=["other"])
    mine = [replica("m/cpu/0", model(cpu=1)), replica("m/cpu/1", model(cpu=1), Phase.DRAINING)]

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", *mine),)), SETTLED, NOW)

    assert moves(plan) == []
