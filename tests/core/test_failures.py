"""What failed is tried again later each time, and then not any more."""

import re
from pathlib import Path

import pytest
from fleets import NOW, SETTLED, F, R, S, held, model, moves, node, replica, wanting
from msgspec import structs

from llmgw.core.backoff import delay_s
from llmgw.core.decide import decide
from llmgw.core.memory import Memory, Placement
from llmgw.core.observed import Observed
from llmgw.units import GIB
from llmgw_agent.protocol import Action, Claim, Dossier


def run(of, *nodes, memory=SETTLED, now=NOW):
    return decide(wanting(of, nodes=[n.name for n in nodes]), Observed(nodes), memory, now)


@pytest.mark.parametrize(("round_", "seconds"), [(1, 5), (2, 10), (3, 20), (4, 40), (8, 600), (100, 600)])
def test_the_wait_doubles_from_five_seconds_to_ten_minutes(round_, seconds):
    assert delay_s(round_) == seconds


def test_a_failed_one_waits_its_time_and_says_how_long():
    of = model(cpu=1)
    failed = replica("m/cpu/0", of, F, age_s=2)

    early = run(of, node("n1", failed))
    late = run(of, node("n1", replica("m/cpu/0", of, F, age_s=6)))

    assert moves(early) == []
    assert [h.sentence for h in early.held] == ["m/cpu: it failed, and is tried again: exited: it ended (in 3s)"]
    assert moves(late) == ["+m/cpu/0"]
    assert late.actions[0].generation == 2
    assert late.actions[0].why == "try 2 of 5"


def test_the_failed_one_stays_on_its_node_with_its_dossier_until_it_is_tried_again():
    of = model(cpu=1)

    waiting = run(of, node("n1", replica("m/cpu/0", of, F, age_s=2)))
    trying = run(of, node("n1", replica("m/cpu/0", of, F, age_s=6)))

    assert [(p.generation, p.action) for p in waiting.placements] == [(1, "keep")]
    assert [(p.generation, p.action) for p in trying.placements] == [(2, "run")]


def test_another_node_is_tried_first():
    of = model(cpu=1)

    plan = run(of, node("n1", replica("m/cpu/0", of, F, age_s=60)), node("n2"))

    assert [(a.id, a.node) for a in plan.actions] == [("m/cpu/0", "n2")]


def test_after_five_rounds_it_is_parked_until_something_changes():
    of = model(cpu=1)

    plan = run(of, node("n1", replica("m/cpu/0", of, F, age_s=3600, attempts=5)))

    assert moves(plan) == []
    assert [h.sentence for h in plan.held] == [
        "m/cpu: it is parked after failing 5 times: exited: it ended; "
        "change what it runs with, or its source; the same is not tried again"
    ]


PARKS = ("out_of_memory", "bad_flags")
TRIED_AGAIN = (
    *("weights", "port", "timeout", "exited", "killed", "device", "engine_missing", "refused", "identity"),
    *("wedged", "stuck", "disk", "internal"),
)


@pytest.mark.parametrize("cause", [*PARKS, *TRIED_AGAIN])
def test_out_of_memory_and_bad_flags_park_at_once_and_every_other_cause_is_tried_again(cause):
    of = model(cpu=1)

    plan = run(of, node("n1", replica("m/cpu/0", of, F, age_s=3600, dossier=Dossier(cause, "said so"))))

    if cause in PARKS:
        assert moves(plan) == []
        assert held(plan) == [f"m/cpu: it is parked after failing 1 time: {cause}: said so"]
    else:
        assert moves(plan) == ["+m/cpu/0"]


def test_the_causes_here_are_all_that_an_agent_names():
    page = (Path(__file__).parents[2] / "docs/agent.md").read_text()
    table = page.partition("### Dossiers")[2].partition("\n\nThe message")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {*PARKS, *TRIED_AGAIN}


def test_a_lost_node_does_not_count_as_a_failure_of_what_ran_on_it():
    of = model(cpu=1)

    plan = run(of, node("n1", replica("m/cpu/0", of), age_s=5000.0), node("n2"))

    assert [(a.id, a.node, a.why) for a in plan.actions] == [("m/cpu/1", "n2", "cpu has 0 of 1")]
    assert plan.memory.failures == {}


def test_retrying_is_keyed_on_what_failed_and_never_on_the_commit():
    before = model(cpu=1)
    parked = run(before, node("n1", replica("m/cpu/0", before, F, attempts=5))).memory
    same, other = model(cpu=1, description="in other words", max_output=5), model(cpu=1, context_length=8192)
    failed = node("n1", replica("m/cpu/0", before, F, attempts=5, age_s=3600))

    assert moves(run(same, failed, memory=parked)) == []
    assert moves(run(other, failed, memory=parked)) == ["+m/cpu/1", "-m/cpu/0"]


@pytest.mark.parametrize("age_s", [-7200.0, -1.0], ids=["two hours", "a second"])
def test_the_clock_of_a_node_that_was_set_back_makes_no_wait_longer(age_s):
    of = model(cpu=1)
    seen = node("n1", replica("m/cpu/0", of, F, age_s=age_s))
    first = run(of, seen)

    assert moves(first) == []
    assert moves(run(of, seen, memory=first.memory, now=NOW + 6)) == ["+m/cpu/0"]


def test_a_reconciler_that_lost_its_memory_goes_on_from_the_attempts_that_are_reported():
    of = model(cpu=1)
    fresh = Memory(started_at=NOW - 1)

    plan = run(of, node("n1", replica("m/cpu/0", of, F, age_s=3600, attempts=5)), memory=fresh)

    assert moves(plan) == []
    assert plan.memory.failures["m/cpu"].count == 5


def test_many_that_fail_together_are_one_round_and_one_of_them_tries_first():
    of = model(cpu=3)
    failed = [replica(f"m/cpu/{i}", of, F, age_s=60) for i in range(3)]

    plan = run(of, node("n1", *failed))

    assert moves(plan) == ["+m/cpu/0"]
    assert plan.memory.failures["m/cpu"].count == 1


def test_while_one_tries_the_others_wait():
    of = model(cpu=2)

    plan = run(of, node("n1", replica("m/cpu/0", of, S, attempts=1), replica("m/cpu/1", of, F, age_s=60)))

    assert moves(plan) == []


def test_a_replica_ready_for_ten_minutes_has_made_up_for_what_failed_before():
    of = model(cpu=1)
    first = run(of, node("n1", replica("m/cpu/0", of, F, age_s=6)))
    assert first.memory.failures["m/cpu"].count == 1

    steady = run(of, node("n1", replica("m/cpu/0", of, R, generation=2, age_s=601)), memory=first.memory)

    assert steady.memory.failures == {}


def test_one_failed_of_many_leaves_the_others_alone():
    of = model(cpu=3)
    seen = [replica("m/cpu/0", of), replica("m/cpu/1", of), replica("m/cpu/2", of, F, age_s=1)]

    assert moves(run(of, node("n1", *seen))) == []


def test_two_failed_generations_of_one_replica_are_one_seat_and_the_older_is_cleared():
    of = model(cpu=1)
    failed = [replica("m/cpu/0", of, F, generation=g, age_s=60) for g in (1, 2)]

    plan = run(of, node("n1", *failed))

    assert [(a.id, a.generation) for a in plan.actions] == [("m/cpu/0", 3), ("m/cpu/0", 1)]
    assert [(p.generation, p.action) for p in plan.placements] == [(3, "run")]


def test_a_failed_generation_is_cleared_while_another_of_the_same_replica_lives():
    of = model(cpu=1)

    plan = run(of, node("n1", replica("m/cpu/0", of, F, age_s=60), replica("m/cpu/0", of, R, generation=2)))

    assert moves(plan) == ["-m/cpu/0"]
    assert [(p.generation, p.action) for p in plan.placements] == [(2, "run")]


def test_what_is_out_of_date_on_a_silent_node_waits_and_says_so():
    of = model(cpu=0)

    plan = run(of, node("n1", replica("m/cpu/0", of, F), age_s=100.0))

    assert moves(plan) == []
    assert held(plan) == ["m/cpu/0: it failed, and is not tried again, and nothing is asked of n1 while it is silent"]


def test_a_failed_replica_of_a_model_that_is_gone_is_cleared():
    gone = model("gone", cpu=1)

    plan = decide(wanting(nodes=["n1"]), Observed((node("n1", replica("gone/cpu/0", gone, F)),)), SETTLED, NOW)

    assert moves(plan) == ["-gone/cpu/0"]
    assert plan.placements == ()


def test_a_failed_one_that_its_node_lost_meanwhile_is_not_started_in_a_room_that_may_be_gone():
    # It held no memory once it had failed, so that its room was another's; only a start of its own finds it one.
    of = model(cpu=1)
    outcome = wanting(of).models["m"].outcomes["cpu"]
    kept = Placement("m/cpu/0", 1, "n1", Action.KEEP, outcome, Claim(GIB, 1), epoch=1, seq=5)
    memory = structs.replace(SETTLED, placements=(kept,))

    plan = run(of, node("n1", obeyed=(1, 4)), memory=memory)
    told = run(of, node("n1", obeyed=(1, 5)), memory=memory)

    assert [p.action for p in plan.placements] == [Action.KEEP]
    assert moves(told) == ["+m/cpu/0"]


@pytest.mark.parametrize("cause", PARKS)
def test_what_fails_on_one_node_and_serves_on_others_is_tried_on_another_before_it_is_parked(cause):
    of = model(cpu=3)
    failed = replica("m/cpu/0", of, F, age_s=60, dossier=Dossier(cause, "killed"))
    good = [node(f"n{n + 1}", replica(f"m/cpu/{n}", of)) for n in (1, 2)]

    free = run(of, node("n1", failed), *good, node("n4"))
    fifth = run(of, node("n1", structs.replace(failed, attempts=5)), *good, node("n4"))

    assert [(a.id, a.node) for a in free.actions] == [("m/cpu/0", "n4")]
    assert [moves(fifth), fifth.held[0].kind] == [[], "parked"]
