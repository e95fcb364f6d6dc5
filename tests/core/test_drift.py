"""What differs from the commit: from the reconciler's own decisions, with since when and by whom."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, F, R, S, fleet, model, node, profile, replica, wanting
from msgspec import structs

from llmgw.core.decide import decide
from llmgw.core.drift import differences, edited
from llmgw.core.history import Kind, Line
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw.core.status import status

M = model(cpu=2)
FAILED = Line(int(NOW) - 60, Kind.FAILED, "m/cpu/1", 1, "n2", reason="exited: it ended")


def of(seen, *, wanted=None, lines=()):
    """What differs, as values."""
    wanted = wanted or wanting(M)
    plan = decide(wanted, seen, SETTLED, NOW)
    return differences(wanted, seen, plan, status(wanted, seen, plan, NOW), lines)


def told(*args, **more):
    return [f"{d.kind} {d.subject}: {d.what}" for d in of(*args, **more)]


def test_a_fleet_that_is_as_asked_differs_in_nothing():
    assert of(fleet(M, "n1", "n2", cpu=[R, R])) == ()


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([R], ["missing m/cpu: 1 of 2 are ready"]),
        ([R, S], ["missing m/cpu: 1 of 2 are ready"]),
        ([R, F], ["missing m/cpu: 1 of 2 are ready"]),
        ([R, R, R], ["too_much m/cpu: 3 run, and 2 asked for"]),
    ],
)
def test_counts_that_are_not_as_asked_differ(phases, expected):
    assert told(fleet(M, "n1", "n2", cpu=phases)) == expected


def test_what_is_done_about_it_is_said_as_control_would():
    (short,) = of(fleet(M, "n1", "n2", cpu=[R]))
    (over,) = of(fleet(M, "n1", "n2", cpu=[R, R, R]))

    assert short.why == "cpu has 1 of 2"
    assert over.why == "cpu has more than 2"


def test_what_only_a_change_can_help_is_the_reason_before_what_waits():
    huge = model(gpu=3, profiles=[profile("gpu", gpu={"class": "l40s-48g", "count": 16}, replicas=3)])

    (short,) = of(fleet(huge, "n1", "n2", gpu=[R, F]), wanted=wanting(huge))

    assert short.why == "no node has room for it"


def test_since_when_is_since_the_last_one_ended_or_the_commit_if_that_came_later():
    wanted = wanting(M)
    later = replace(wanted, models={"m": replace(wanted.models["m"], since=int(NOW) - 5, author="Ana <a@lab>")})
    seen = fleet(M, "n1", "n2", cpu=[R])

    (ended,) = of(seen, lines=[FAILED])
    (asked,) = of(seen, wanted=later, lines=[FAILED])

    assert (ended.since, ended.by) == (FAILED.at, "m/cpu/1 failed: exited: it ended")
    assert (asked.since, asked.by) == (int(NOW) - 5, "Ana <a@lab>")


def test_a_replica_of_an_older_form_differs_while_it_waits_for_its_turn_too():
    seen = fleet(model(cpu=2, context_length=8192), "n1", "n2", cpu=[R, R])

    assert told(seen) == [
        "older_form m/cpu/0: on n1 it runs another form than catalog/m.yaml asks for",
        "older_form m/cpu/1: on n2 it runs another form than catalog/m.yaml asks for",
    ]


def test_what_runs_and_no_file_asks_for_differs():
    both = Observed((node("n1", replica("m/cpu/0", M), replica("m/cpu/1", M), replica("old/cpu/0", M)), node("n2")))

    assert told(both) == ["too_much old/cpu: 1 runs, and no file of the catalog asks for any"]


def test_a_node_that_is_silent_or_does_not_obey_differs():
    silent = fleet(M, "n1", "n2", silent=["n2"], cpu=[R, R])
    n1, n2 = fleet(M, "n1", "n2", cpu=[R, R]).nodes
    deaf = Observed((n1, structs.replace(n2, trouble="these orders are of an older control")))

    assert "node node n2: it is silent: what runs there is not known" in told(silent)
    assert "node node n2: it does not obey: these orders are of an older control" in told(deaf)


def test_what_somebody_brought_to_the_mirror_differs_and_an_unreachable_one_is_not_empty():
    wanted = wanting(M, mirror={"base": "http://a:1", "api": "http://a:2"})
    seen = fleet(M, "n1", "n2", cpu=[R, R])
    held = MirrorSeen((Holding("x", "1", HoldingState.PRESENT, origin="hand"),), None)

    assert told(Observed(seen.nodes, held), wanted=wanted) == ["mirror x/1: somebody brought it to the mirror by hand"]
    assert told(Observed(seen.nodes, None), wanted=wanted) == []


def test_a_model_that_is_kept_as_it_was_differs():
    wanted = wanting(M)
    kept = replace(wanted, models={"m": replace(wanted.models["m"], frozen="its file is broken")})

    assert told(fleet(M, "n1", "n2", cpu=[R, R]), wanted=kept) == ["kept m: it is kept as it was before"]


def test_edits_of_the_status_branch_name_who_and_what():
    (one,) = edited([(5, "Ana <a@lab>", [f"models/{n}" for n in range(7)])])

    assert one.what == "edited by hand: models/0, models/1, models/2, models/3, models/4 and 2 more"
    assert (one.since, one.by) == (5, "Ana <a@lab>")
