"""What a person reads along while a fleet moves: what is new, and what is over."""

from __future__ import annotations

import pytest

from llmgw.cli.demo import why_never
from llmgw.cli.seen import Operator
from llmgw.cli.watch import Watcher
from llmgw.core.live import Live
from llmgw.core.observed import Observed
from llmgw.core.status import Condition, FleetStatus, ModelStatus, ProfileStatus


def fleet(*models, problems=(), held=(), trouble=()):
    told = FleetStatus("lab", "c" * 40, settled=True, models=models, nodes=(), problems=problems, held=held)
    return Live(told, (), Observed(), trouble)


def model(name="m", ready=1, wanted=1, state="ready", **more):
    return ModelStatus(name, state, profiles=(ProfileStatus("cpu", wanted, ready),), **more)


@pytest.fixture
async def told(tmp_path):
    """Says what each state of a fleet adds to what was told before."""
    lines = []
    watcher = Watcher(Operator("http://127.0.0.1:9", tmp_path / "key"), say=lines.append)

    def one(live):
        lines.clear()
        watcher.tell(live)
        return list(lines)

    yield one
    await watcher.close()


async def test_a_problem_is_told_once_and_so_is_its_end(told):
    wrong = fleet(model(), problems=("catalog/m.yaml:3:1: no\n  because",))

    assert told(wrong) == ["m 1/1 cpu ready", "problem: catalog/m.yaml:3:1: no\n  because"]
    assert told(wrong) == []
    assert told(fleet(model())) == ["problem gone: catalog/m.yaml:3:1: no", "as asked, 1 of 1 replicas ready"]


async def test_a_removal_that_is_held_is_told_and_so_is_its_end(told):
    assert told(fleet(model(), held=("5 models would go",)))[-1] == "held: 5 models would go"
    assert told(fleet(model())) == ["held no more: 5 models would go", "as asked, 1 of 1 replicas ready"]


async def test_trouble_and_a_file_that_is_broken_end_too(told):
    broken = model(frozen="stays as it was: its file is broken")
    told(fleet(broken, trouble=("the repository cannot be read",)))

    assert told(fleet(model())) == [
        "m is as its file asks again",
        "trouble over: the repository cannot be read",
        "as asked, 1 of 1 replicas ready",
    ]


async def test_a_model_that_was_removed_is_gone_at_the_end(told):
    told(fleet(model("a"), model("b", ready=0, wanted=0, state="leaving")))

    assert told(fleet(model("a"))) == ["b gone", "as asked, 1 of 1 replicas ready"]


async def test_as_asked_is_said_each_time_it_comes_about(told):
    told(fleet(model()))
    told(fleet(model(wanted=2, state="reconciling")))

    assert told(fleet(model(ready=2, wanted=2))) == ["m 2/2 cpu ready", "as asked, 2 of 2 replicas ready"]


def test_the_demo_waits_no_longer_for_what_cannot_come():
    stalled = Condition("m", "the mirror may not read /models", "allow it", stalled=True)
    waiting = Condition("m", "the mirror fetches its weights")

    assert why_never(fleet(model(conditions=(waiting,)))) == ""
    assert why_never(fleet(model(conditions=(stalled,)))) == "m: the mirror may not read /models"
    assert why_never(fleet(model(), problems=("catalog/m.yaml:1:1: no",))) == "catalog/m.yaml:1:1: no"
