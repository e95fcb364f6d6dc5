"""What is not as it should be, as values: of which sort, of what, why, and what a person can do."""

import re
from pathlib import Path

import pytest
from fleets import NOW, SETTLED, F, R, S, fleet, model, node, replica, wanting
from msgspec import structs

from llmgw.core.condition import Condition
from llmgw.core.decide import decide
from llmgw.core.holdings import Failure, HoldingState
from llmgw.core.observed import Observed
from llmgw.core.problems import KINDS, dated, problems
from llmgw.core.status import FleetStatus, HoldingStatus, MirrorStatus, ModelStatus, NodeStatus, ProfileStatus, status
from llmgw_agent.protocol import Card, Dossier, HeldVersion, Inventory


def a_fleet(*models, nodes=(), **more):
    return FleetStatus("lab", "c" * 40, settled=True, models=models, nodes=nodes, **more)


def a_model(state="ready", ready=1, **more):
    return ModelStatus("m", state, path="catalog/m.yaml", profiles=(ProfileStatus("cpu", 1, ready),), **more)


def told(found):
    """Each problem in a line: its kind and subject, with a mark where waiting may be enough."""
    return [f"{t.kind} {t.subject}" + (" (waits)" if t.waits else "") for t in problems(found)]


BROKEN = "catalog/m.yaml:3:1: this is not YAML: a colon is missing; write one"
SICK = Inventory("n1", 8, 1 << 30, card_problem="nvidia-smi does not answer", cards=(Card("a", "", "nvidia", "x", 1),))
GONE = Failure("not_found", "https://hub.example/m.gguf is not there", "name another")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(a_fleet(a_model(), nodes=(NodeStatus("n1", "usable"),)), [], id="a fleet as asked has none"),
        pytest.param(a_fleet(nodes=(NodeStatus("n1", "silent"),)), ["node_silent node n1"], id="a silent node"),
        pytest.param(
            a_fleet(nodes=(NodeStatus("n1", "unknown"),)), ["node_silent node n1 (waits)"], id="one not heard of yet"
        ),
        pytest.param(
            a_fleet(nodes=(NodeStatus("n1", "usable", drained=True),)), [], id="a drained node is as somebody asked"
        ),
        pytest.param(
            a_fleet(nodes=(NodeStatus("n1", "usable", inventory=SICK),)), ["card_error node n1"], id="a driver is stuck"
        ),
        pytest.param(a_fleet(mirror=MirrorStatus(reachable=False)), ["mirror_away mirror"], id="the mirror is away"),
        pytest.param(
            a_fleet(mirror=MirrorStatus(True, (HoldingStatus("m", "1", HoldingState.FAILED, failure=GONE),))),
            ["fetch_failed m/1"],
            id="a version that was put by hand failed",
        ),
        pytest.param(
            a_fleet(nodes=(NodeStatus("n1", "usable", versions=(HeldVersion("m", "1", "failed", why="x"),)),)),
            ["fetch_failed node n1 (waits)"],
            id="a node could not get a version",
        ),
        pytest.param(a_fleet(problems=(BROKEN,)), ["catalog catalog/m.yaml:3:1"], id="a file that is broken"),
        pytest.param(
            a_fleet(a_model(frozen=f"stays as it was at cccc: {BROKEN}"), problems=(BROKEN,)),
            ["catalog catalog/m.yaml:3:1"],
            id="a broken file and the model it keeps are one thing",
        ),
        pytest.param(a_fleet(a_model(frozen="it is protected; write so")), ["frozen m"], id="kept for another reason"),
        pytest.param(a_fleet(held=("5 would go; push a line",)), ["held removals"], id="a guard"),
        pytest.param(a_fleet(a_model("reconciling", 0)), ["model_not_ready m (waits)"], id="on its way"),
        pytest.param(a_fleet(a_model("stalled", 0)), ["model_not_ready m"], id="stalled"),
        pytest.param(
            a_fleet(a_model("reconciling", 0, conditions=(Condition("m/cpu/0", "no room", stalled=True),))),
            ["model_not_ready m/cpu"],
            id="a reason is said in place of the count",
        ),
        pytest.param(
            a_fleet(a_model("stalled", 0, conditions=tuple(Condition(f"m/cpu/{n}", "no room") for n in range(7)))),
            ["model_not_ready m/cpu (waits)"],
            id="seven replicas without room are one problem",
        ),
        pytest.param(
            a_fleet(a_model(conditions=(Condition("m/cpu/1", "it stops when others serve"),))),
            ["waiting m/cpu (waits)"],
            id="all that is asked is ready, and something is not done yet",
        ),
        pytest.param(
            a_fleet(trouble=(Condition("repository", "it does not answer", kind="git_unreachable"),)),
            ["git_unreachable repository"],
            id="the repository is away",
        ),
    ],
)
def test_each_thing_that_is_wrong_is_one_problem_of_its_kind(found, said):
    assert told(found) == said


def test_what_needs_a_person_comes_first_and_the_gravest_of_it():
    found = a_fleet(
        a_model("reconciling", 0),
        nodes=(NodeStatus("n2", "lost"), NodeStatus("n1", "silent")),
        problems=(BROKEN,),
        trouble=(Condition("repository", "it does not answer", kind="git_unreachable"),),
    )

    assert told(found) == [
        "git_unreachable repository",
        "catalog catalog/m.yaml:3:1",
        "node_silent node n1",
        "node_silent node n2",
        "model_not_ready m (waits)",
    ]


def test_a_problem_of_a_file_is_taken_apart_into_where_why_and_what_to_do():
    (problem,) = problems(a_fleet(problems=(BROKEN,)))

    assert (problem.why, problem.next) == ("this is not YAML: a colon is missing", "write one")


def decided(*seen):
    of = model(cpu=1)
    wanted = wanting(of, nodes=[n.name for n in seen])
    found = Observed(seen)
    return status(wanted, found, decide(wanted, found, SETTLED, NOW), NOW)


def test_what_a_pass_decided_keeps_its_kind():
    of = model(cpu=1)
    failed = replica("m/cpu/0", of, F, age_s=60, dossier=Dossier("bad_flags", "error: invalid argument: --x"))

    assert told(decided(node("n1", failed))) == ["parked m/cpu"]


def test_a_problem_keeps_the_time_at_which_it_was_first_written_until_its_reason_changes():
    silent = dated(a_fleet(nodes=(NodeStatus("n1", "silent"),)), None, 1000.0)
    later = dated(a_fleet(nodes=(NodeStatus("n1", "silent"), NodeStatus("n2", "silent"))), silent, 2000.0)
    lost = dated(a_fleet(nodes=(NodeStatus("n1", "lost"),)), later, 3000.0)

    assert [[(t.subject, t.since) for t in problems(found)] for found in (silent, later, lost)] == [
        [("node n1", 1000)],
        [("node n1", 1000), ("node n2", 2000)],
        [("node n1", 3000)],
    ]
    assert structs.replace(later, since={}).digest == later.digest


def test_a_time_to_come_was_written_by_a_clock_that_was_wrong():
    before = dated(a_fleet(nodes=(NodeStatus("n1", "silent"),)), None, 9000.0)

    (problem,) = problems(dated(before, before, 1000.0))

    assert problem.since == 1000


def test_every_problem_of_a_decided_fleet_has_a_kind_that_is_listed():
    of = model(cpu=2)

    for running in ({"cpu": [R, S]}, {"cpu": [R, F]}, {"cpu": []}):
        seen = fleet(of, "n1", "n2", silent=["n2"], **running)
        wanted = wanting(of, nodes=["n1", "n2"])
        found = problems(status(wanted, seen, decide(wanted, seen, SETTLED, NOW), NOW))
        assert found
        assert {t.kind for t in found} <= KINDS.keys()


PAGE = Path(__file__).resolve().parent.parent.parent / "docs/status.md"


def test_every_kind_is_in_the_docs_in_the_order_of_the_page():
    documented = re.findall(r"^\| `(\w+)` \| \w", PAGE.read_text(), re.MULTILINE)

    assert documented == list(KINDS)
