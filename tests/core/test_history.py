"""Lines of history: from one observation of a replica to the next, what is written down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, F, R, S, model, node, replica, wanting
from msgspec import structs

from llmgw.core.actions import Plan, Start, Stop
from llmgw.core.decide import decide
from llmgw.core.history import FOUND, GONE, UNSEEN, Known, Line, record, taken_up
from llmgw.core.memory import Placement
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw_agent.protocol import Action, Dossier, Phase, WeightFile

M = model(cpu=1)
WANTED = wanting(M)
NOTHING = Plan((), (), (), SETTLED)
FETCHING, DRAINING, STOPPING, STOPPED = Phase.FETCHING, Phase.DRAINING, Phase.STOPPING, Phase.STOPPED


def seen(phase=None, *, name="n1", age_s=1.0, **fields):
    """One node, with one replica in this phase or none."""
    mine = () if phase is None else (replica("m/cpu/0", M, phase, **{"age_s": 10, **fields}),)
    return Observed((node(name, *mine, age_s=age_s),))


def told(*looks, known=None, plan=NOTHING):
    """What is written of these looks, one after the other, as `kind`s."""
    known, found = known or Known(), []
    for look in looks:
        lines, known = record(known, WANTED, look, plan, NOW)
        found += lines
    return found, known


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        pytest.param([FETCHING, S, R], ["start", "ready"], id="weights and engine are one start"),
        pytest.param([R, R, R], ["start", "ready"], id="nothing new is nothing written"),
        pytest.param([S, R, None], ["start", "ready", "stop"], id="gone is stopped"),
        pytest.param([S, R, DRAINING, STOPPING, None], ["start", "ready", "stop"], id="it serves until it is gone"),
        pytest.param([S, R, DRAINING, STOPPED, None], ["start", "ready", "stop"], id="stopped and gone is one stop"),
        pytest.param([S, F, None], ["start", "failed"], id="a failed one that is cleared away had ended before"),
        pytest.param([S, F, S, R], ["start", "failed", "start", "ready"], id="a retry is a start"),
        pytest.param([S, F, R], ["start", "failed", "start", "ready"], id="a retry that was quicker than the looks"),
        pytest.param([R, F, None, S], ["start", "ready", "failed", "start"], id="one that served and failed"),
        pytest.param([F], ["start", "failed"], id="failed before anybody looked"),
        pytest.param([S, None], ["start", "stop"], id="taken back before it served"),
        pytest.param([STOPPED, None], [], id="what had ended before it was known began nothing here"),
        pytest.param([DRAINING, None], ["start", "stop"], id="found on its way out"),
    ],
)
def test_what_becomes_lines(phases, expected):
    lines, _ = told(*map(seen, phases))

    assert [line.kind for line in lines] == expected


def test_a_failure_between_two_looks_is_told_by_its_attempts():
    lines, _ = told(seen(F, attempts=1), seen(F, attempts=1), seen(F, attempts=3))

    assert [(line.kind, line.attempts) for line in lines] == [
        ("start", 1),
        ("failed", 1),
        ("start", 3),
        ("failed", 3),
    ]


@pytest.mark.parametrize(("phase", "kinds"), [(S, ["failed", "start"]), (R, ["failed", "start", "ready"])])
def test_a_failure_that_was_over_before_anybody_looked_is_written(phase, kinds):
    _, known = told(seen(phase))

    lines, _ = told(seen(phase, attempts=1), known=known)

    assert [line.kind for line in lines] == kinds
    assert [line.reason for line in lines][:2] == [UNSEEN, "tried again"]


def test_a_silent_or_an_unknown_node_ends_nothing():
    _, known = told(seen(R))

    assert told(seen(R, age_s=1e6), known=known)[0] == []
    assert told(seen(None, age_s=None), known=known)[0] == []


def test_a_node_that_is_taken_out_of_the_fleet_ends_what_was_known_of_it():
    _, known = told(seen(R))

    (line,), known = told(seen(name="n2"), known=known)

    assert (line.kind, line.node) == ("stop", "n1")
    assert line.reason == "n1 is no node of this fleet any more: what it does now is not known"
    assert told(seen(name="n2"), known=known)[0] == []


def test_a_line_says_all_that_is_known_by_itself():
    wanted = wanting(model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1"}))
    entry = wanted.models["m"]
    wanted.models["m"] = entry.__class__(**{**vars(entry), "author": "Ana <ana@lab>"})
    look = Observed(
        (
            node(
                "n1",
                replica(
                    "m/cpu/0",
                    entry.model,
                    R,
                    generation=3,
                    age_s=5,
                    started_age_s=9,
                    version="m/1",
                    engine="llamacpp",
                    engine_version="b1",
                    devices=("GPU-0",),
                ),
            ),
        )
    )
    held = structs.replace(SETTLED, files={"m/1": (WeightFile("m.gguf", 100, "a" * 64),)})
    plan = Plan((Start("m/cpu/0", 3, "n1", "cpu has 0 of 1"),), (), (), held)

    lines, _ = record(Known(), wanted, look, plan, NOW)

    first = Line(
        int(NOW) - 9,
        "start",
        "m/cpu/0",
        3,
        "n1",
        cards=("GPU-0",),
        version="m/1",
        digest="sha256:" + "a" * 64,
        engine="llamacpp",
        build="b1",
        fingerprint=entry.outcomes["cpu"],
        commit="c" * 40,
        author="Ana <ana@lab>",
        reason="cpu has 0 of 1",
    )
    assert lines == (first, structs.replace(first, at=int(NOW) - 5, kind="ready", reason=""))


def test_several_files_have_the_digest_that_sha256sum_would_give_their_list():
    files = (WeightFile("b", 1, "b" * 64), WeightFile("a", 1, "a" * 64))
    plan = Plan((), (), (), structs.replace(SETTLED, files={"m/1": files}))

    (line,), _ = record(Known(), WANTED, seen(S, version="m/1"), plan, NOW)

    # printf '%s  a\n%s  b\n' … | sha256sum
    assert line.digest == "sha256:484bcbb7d16ffcba78a16ecc948318c2f39b3bebb677b643fad91391750add89"


def test_the_reason_of_a_stop_is_the_one_it_was_decided_for_however_long_it_drains():
    _, known = told(seen(R))
    drained = (Placement("m/cpu/0", 1, "n1", Action.DRAIN),)
    decided = Plan((Stop("m/cpu/0", 1, "n1", "cpu has 1 of 0"),), (), drained, SETTLED)
    _, known = told(seen(R), known=known, plan=decided)
    _, known = told(seen(DRAINING), seen(STOPPING), known=known)

    (line,), known = told(seen(None), known=known)

    assert (line.kind, line.reason) == ("stop", "cpu has 1 of 0")
    assert known == Known(), "what is over is not kept"


def test_what_nobody_asked_for_says_that_its_reason_is_not_known():
    (start, _, stop), _ = told(seen(R), seen(None))

    assert (start.reason, stop.reason) == (FOUND, GONE)


def test_a_failures_reason_is_one_line_whatever_the_engine_wrote():
    (_, line), _ = told(seen(F, dossier=Dossier("exited", "no\nroom \x1b[31m" + "x" * 1000)))

    assert line.reason.startswith("exited: no room ")
    assert "\n" not in line.reason
    assert len(line.reason) == 300


def test_what_a_node_makes_up_is_cut_or_left_out():
    made_up = {"engine": "x" * 500, "engine_version": "y" * 500, "devices": tuple(map(str, range(500)))}
    long = Observed((node("n1", replica("m" * 300 + "/cpu/0", M, S)),))

    (line,), _ = told(seen(S, **made_up))

    assert (len(line.engine), len(line.build), len(line.cards)) == (100, 100, 32)
    assert told(long)[0] == []


def test_another_form_than_is_wanted_is_of_a_commit_that_is_not_known():
    (line,), _ = told(seen(S, fingerprint="older"))

    assert (line.commit, line.author) == ("", "")


def test_a_life_is_of_the_commit_that_asked_for_it_whatever_is_committed_while_it_lasts():
    _, known = record(Known(), WANTED, seen(R), NOTHING, NOW)
    later = wanting(M)
    later.models["m"] = replace(later.models["m"], commit="d" * 40)

    (line,), _ = record(known, later, seen(F), NOTHING, NOW)

    assert (line.kind, line.commit) == ("failed", "c" * 40)


def restarted(look, lines, then=None):
    """What a control that starts writes of `then`, where `look` was in the status and `lines` in the history."""
    was = status(WANTED, look, decide(WANTED, look, SETTLED, NOW), NOW)
    return told(then or look, known=taken_up(was, lines))[0]


def test_a_restart_repeats_nothing():
    lines, _ = told(seen(R))

    assert restarted(seen(R), lines) == []
    assert restarted(seen(S), lines, seen(R)) == [], "the lines are as young as the status, or younger"


def test_a_restart_writes_what_happened_meanwhile():
    lines, _ = told(seen(S))

    assert [line.kind for line in restarted(seen(S), lines, seen(R))] == ["ready"]
    assert [line.kind for line in restarted(seen(S), lines, seen(None))] == ["stop"]


def test_what_runs_for_longer_than_is_read_back_is_known_by_the_status():
    others, _ = told(Observed((node("n2", replica("m/cpu/7", M, R)),)))
    both = Observed((*seen(R).nodes, node("n2", replica("m/cpu/7", M, R))))

    assert restarted(both, others) == []


def test_a_branch_without_a_history_begins_one_with_what_runs():
    assert [line.kind for line in restarted(seen(R), [])] == ["start", "ready"]


def test_a_life_that_ended_in_the_lines_is_over_whatever_an_older_status_says():
    lines, _ = told(seen(R), seen(None))

    assert restarted(seen(R), lines, seen(None)) == []


def test_what_a_status_calls_stopped_is_not_stopped_once_more():
    others, _ = told(Observed((node("n2", replica("m/cpu/7", M, R)),)))
    n2 = node("n2", replica("m/cpu/7", M, R))

    assert restarted(Observed((*seen(STOPPED).nodes, n2)), others, Observed((*seen(None).nodes, n2))) == []


def test_a_retry_that_failed_unseen_before_it_started_again_is_one_start():
    _, known = told(seen(F, attempts=1))

    assert [line.kind for line in told(seen(S, attempts=2), known=known)[0]] == ["start"]


def test_lines_of_a_replica_are_in_the_order_in_which_it_lived_whatever_ages_say():
    # A start that is younger than the readiness after it, and a readiness that is older than the start before.
    def lasting(phase, **ages):
        return Observed((node("n1", replica("m/cpu/0", M, phase, **ages)),))

    (start, ready), _ = told(lasting(R, age_s=50, started_age_s=10))
    (first,), known = told(lasting(S, age_s=5))
    (second,), _ = told(lasting(R, age_s=500), known=known)

    assert (start.kind, ready.kind) == ("start", "ready")
    assert first.at <= second.at


def test_another_form_under_the_same_number_is_not_of_the_commit_of_the_one_before():
    _, known = told(seen(R))

    (line,), _ = told(seen(S, fingerprint="older"), known=known)

    assert (line.kind, line.commit) == ("start", "")
