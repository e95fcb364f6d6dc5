"""What changes to and fro all night is said once, shown every ten minutes, and hides nothing else."""

import itertools

import pytest
from msgspec import structs

from llmgw.core.condition import Condition
from llmgw.core.flapping import Damping, damped
from llmgw.core.holdings import HoldingState
from llmgw.core.memory import LastGood
from llmgw.core.problems import problems
from llmgw.core.status import (
    FleetStatus,
    HoldingStatus,
    MirrorStatus,
    ModelStatus,
    NodeStatus,
    ProfileStatus,
    ReplicaStatus,
)
from llmgw_agent.protocol import Phase

AWAY = Condition("repository", "it does not answer", kind="git_unreachable")


def a_model(state, ready=1, *, commit="a", wanted=1, failed=0):
    return ModelStatus("m", state, commit=commit, profiles=(ProfileStatus("cpu", wanted, ready, failed=failed),))


def a_fleet(*models, nodes=(), **more):
    return FleetStatus("lab", "c" * 40, settled=True, models=models, nodes=nodes, **more)


def night(statuses, *, apart_s):
    """What would be on the branch after each status, where each is committed that differs from the last one."""
    committed, damping, shown = None, Damping(), []
    for n, now_is in enumerate(statuses):
        said, damping = damped(now_is, committed, damping, n * apart_s)
        if committed is None or said.digest != committed.digest:
            committed, damping = said, damping.written(n * apart_s)
        shown.append(committed)
    return shown


def commits(shown):
    return 1 + sum(a is not b for a, b in itertools.pairwise(shown))


UP, DOWN = a_fleet(a_model("ready")), a_fleet(a_model("reconciling", 0, failed=1))
HERE, GONE = a_fleet(mirror=MirrorStatus(True)), a_fleet(mirror=MirrorStatus(False))


@pytest.mark.parametrize(
    ("one", "other", "subject"),
    [
        pytest.param(UP, DOWN, "model m", id="a model that crashes and comes back"),
        pytest.param(
            a_fleet(nodes=(NodeStatus("n1", "usable"),)),
            a_fleet(nodes=(NodeStatus("n1", "silent"),)),
            "node n1",
            id="a node with a bad cable",
        ),
        pytest.param(HERE, GONE, "mirror", id="a mirror that comes and goes"),
        pytest.param(
            *(
                a_fleet(mirror=MirrorStatus(True, (HoldingStatus("m", "1", state),)))
                for state in (HoldingState.FETCHING, HoldingState.FAILED)
            ),
            "version m/1",
            id="a fetch that fails again and again",
        ),
        pytest.param(a_fleet(), a_fleet(trouble=(AWAY,)), "control: repository", id="a git server that comes and goes"),
    ],
)
def test_what_goes_to_and_fro_each_minute_for_a_night_is_a_page_and_not_a_thousand_commits(one, other, subject):
    shown = night([one, other] * 240, apart_s=60)  # eight hours

    assert commits(shown) <= 4 + 8 * 6 + 1
    flapping = [t for t in problems(shown[-1]) if t.kind == "flapping"]
    assert [(t.subject, t.next) for t in flapping] == [(subject, "see it as it is now: llmgw status --live")]


def test_three_changes_are_shown_and_the_fourth_waits():
    shown = night([UP, DOWN, UP, DOWN, UP, DOWN, UP], apart_s=60)

    assert [s.models[0].state for s in shown] == [
        *("ready", "reconciling", "ready", "reconciling"),
        *("reconciling", "reconciling", "reconciling"),
    ]
    assert [bool(s.trouble) for s in shown] == [False] * 4 + [True] * 3


def test_once_it_is_calm_it_is_shown_as_it_is_and_no_more_is_said():
    shown = night([UP, DOWN] * 3 + [UP] * 20, apart_s=60)

    assert shown[-1].models == UP.models
    assert shown[-1].trouble == ()


def rolling(step, at):
    """One of seven that are replaced in their places, at a step of two for each."""
    phase = Phase.STARTING if step == 2 * at else Phase.READY
    return ReplicaStatus(f"m/cpu/{at}", 1, phase, fingerprint="after" if 2 * at <= step else "before")


def test_a_rollout_one_by_one_is_not_to_and_fro():
    good = {"cpu": LastGood("before", {})}
    steps = [
        a_fleet(
            structs.replace(a_model("reconciling", 7 - n % 2, wanted=7), good=good),
            nodes=(NodeStatus("n1", "usable", replicas=tuple(rolling(n, at) for at in range(7))),),
        )
        for n in range(14)
    ]

    shown = night([a_fleet(a_model("ready", 7, wanted=7)), *steps], apart_s=20)

    assert shown[1:] == steps
    assert not shown[-1].trouble


def test_whoever_changes_what_flaps_sees_at_once_what_came_of_it():
    changed = a_fleet(a_model("reconciling", 0, commit="b"))

    shown = night([UP, DOWN, UP, DOWN, UP, DOWN, changed], apart_s=30)

    assert shown[-1].models == changed.models


def test_what_else_happens_is_shown_meanwhile():
    other = ModelStatus("other", "stalled")

    shown = night([UP, DOWN, UP, DOWN, UP, DOWN, a_fleet(*UP.models, other)], apart_s=30)

    assert shown[-1].models[1] == other


def test_it_is_shown_as_it_is_until_that_is_committed_however_long_that_takes():
    committed, damping = UP, Damping(shown_at=0.0)
    for n in range(8):
        _, damping = damped((UP, DOWN)[n % 2], committed, damping, n * 60.0)

    early, damping = damped(DOWN, committed, damping, 590.0)
    due, damping = damped(DOWN, committed, damping, 600.0)
    later, damping = damped(DOWN, committed, damping, 660.0)
    after, _ = damped(UP, later, damping.written(660.0), 670.0)

    assert [s.models[0].state for s in (early, due, later, after)] == ["ready", *["reconciling"] * 3]
