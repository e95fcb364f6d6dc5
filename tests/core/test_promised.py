"""Whether what was done about a commit is what its plan had said, and what is to blame where it is not."""

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, F, S, model, node, replica, wanting
from msgspec import structs

from llmgw.catalog.keys import ClientKey
from llmgw.core import promised
from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.core.promise import Outcome
from llmgw.core.promised import digest, followed, identity, taken_up
from llmgw.core.simulate import course
from llmgw.core.wanted import WantedKey

ONE = model(cpu=1)


def carried_out(wanted, *shown, memory=SETTLED, apart_s=30.0):
    """What the status says after a pass over each of these, and what control remembers."""
    now = NOW
    for seen in shown:
        plan = decide(wanted, seen, memory, now)
        memory = structs.replace(plan.memory, promise=followed(wanted, seen, memory, plan, now))
        now += apart_s
    return memory.promise.outcome, memory


def on(*nodes):
    return Observed(nodes)


EMPTY = on(node("n1"), node("n2"))
SERVES = on(node("n1", replica("m/cpu/0", ONE)), node("n2"))


def test_a_commit_that_does_what_was_planned_is_as_planned_by_the_digest_of_the_plan():
    wanted = wanting(ONE)
    plan = course(wanted, EMPTY, SETTLED, NOW)

    said, _ = carried_out(wanted, EMPTY, on(node("n1", replica("m/cpu/0", ONE, S)), node("n2")), SERVES)

    assert said.state == "as planned"
    assert said.digest == digest(identity(wanted), [step.actions for step in plan.steps])


def test_it_is_under_way_until_what_was_started_serves():
    said, _ = carried_out(wanting(ONE), EMPTY, on(node("n1", replica("m/cpu/0", ONE, S)), node("n2")))

    assert (said.state, said.differences) == ("under way", ())


@pytest.mark.parametrize(
    ("then", "sentences"),
    [
        pytest.param(
            [
                on(node("n1", age_s=1000.0), node("n2")),
                on(node("n1", age_s=1000.0), node("n2", replica("m/cpu/1", ONE))),
            ],
            ("m: planned was nothing, done start m/cpu on n2: n1 was not heard of",),
            id="a node was lost",
        ),
        pytest.param(
            [
                on(node("n1", replica("m/cpu/0", ONE, F)), node("n2")),
                on(node("n1", replica("m/cpu/0", ONE, F)), node("n2")),
                on(node("n1"), node("n2", replica("m/cpu/0", ONE, generation=2))),
            ],
            (
                "m: planned was nothing, done start m/cpu on n2: m/cpu failed on n1: exited: it ended",
                "m: planned was nothing, done stop m/cpu on n1: m/cpu failed on n1: exited: it ended",
            ),
            id="a start failed",
        ),
    ],
)
def test_what_went_otherwise_is_named_with_what_it_was_due_to(then, sentences):
    said, _ = carried_out(wanting(ONE), EMPTY, *then, apart_s=60.0)

    assert (said.state, said.differences) == ("differs", sentences)


def test_memory_that_others_took_meanwhile_is_to_blame_for_what_found_no_room():
    old, new = model(cpu=2), model(cpu=2, context_length=8192)
    first, second = replica("m/cpu/0", old), replica("m/cpu/1", old)
    after = replica("m/cpu/2", new)
    full = on(node("n1", first, second, after, memory_gib=8, used_gib=5))

    said, _ = carried_out(
        wanting(new, nodes=["n1"]), on(node("n1", first, second, memory_gib=8)), *[full] * 4, apart_s=400.0
    )

    assert said.state == "differs"
    assert all("others took 5 GiB more of n1" in difference for difference in said.differences), said


def test_what_happens_once_the_fleet_was_at_rest_is_not_held_against_the_plan():
    lost = on(node("n1", age_s=1000.0), node("n2"))

    before, memory = carried_out(wanting(ONE), EMPTY, SERVES)
    said, _ = carried_out(wanting(ONE), lost, memory=memory)

    assert said == before


def test_a_commit_that_asks_for_the_same_keeps_what_was_said_of_the_one_before():
    before, memory = carried_out(wanting(ONE), EMPTY, SERVES)

    said, memory = carried_out(replace(wanting(ONE), commit="d" * 40), SERVES, memory=memory)

    assert said == before
    assert memory.promise.commit == "d" * 40


def test_the_digest_is_of_what_is_wanted_and_done_and_of_who_planned_it_whatever_the_order(monkeypatch):
    wanted = identity(wanting(ONE, model("o", cpu=2)))
    (step,) = course(wanting(ONE, model("o", cpu=2)), EMPTY, SETTLED, NOW).steps
    first = digest(wanted, [step.actions])

    reasons = [structs.replace(a, why="another reason", generation=9) for a in reversed(step.actions)]
    assert digest(wanted, [[a] for a in reasons]) == first
    assert digest(wanted, [step.actions[1:]]) != first
    assert digest(identity(wanting(ONE)), [step.actions]) != first
    monkeypatch.setattr(promised, "__version__", "another")
    assert digest(wanted, [step.actions]) != first


def test_the_keys_of_clients_are_part_of_what_is_wanted_in_whatever_order_they_came():
    a, b = (WantedKey(ClientKey(name=n, sha256=n * 64), "keys/apps.yaml") for n in "ab")

    assert identity(replace(wanting(ONE), keys=(a, b))) == identity(replace(wanting(ONE), keys=(b, a)))
    assert identity(replace(wanting(ONE), keys=(a, b))) != identity(replace(wanting(ONE), keys=(a,)))


@pytest.mark.parametrize("state", ["as planned", "differs"])
def test_a_control_that_starts_anew_says_what_the_one_before_had_said(state):
    said = Outcome("0b7115b6c7e7", state, "1c0e", ("m: …",) if state == "differs" else ())

    assert taken_up(said, "c" * 40).outcome == said


def test_of_what_was_under_way_when_control_ended_it_is_said_that_nobody_knows():
    said = taken_up(Outcome("0b7115b6c7e7", "under way", "1c0e"), "c" * 40).outcome

    assert said.state == "differs"
    assert said.differences == ("control was started again while it was carried out: what had been done is not known",)
