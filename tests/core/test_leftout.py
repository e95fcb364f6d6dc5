"""A model for which a pass raises is left out and said, and the others' pass goes on (rule 12)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, held, model, moves, node, replica, wanting

from llmgw.core.decide import decide
from llmgw.core.leftout import MOST
from llmgw.core.observed import Observed

ERROR = """AttributeError("'NoneType' object has no attribute 'freeze'")"""
NAMES = [f"m{n}" for n in range(9)]


def with_odd(*odd: str, running=()):
    """A fleet in which some models of a shared change do not say how they change: its turns do not survive that."""
    wanted = wanting(*(model(name, cpu=1) for name in NAMES), nodes=["n1"])
    for name in odd:
        entry = wanted.models[name]
        wanted.models[name] = replace(entry, shared="a change", model=entry.model.model_copy(update={"rollout": None}))
    return decide(wanted, Observed((node("n1", *running, cores=64),)), SETTLED, NOW)


@pytest.mark.parametrize("odd", [("m0",), ("m8",), ("m4",), ("m2", "m7"), ("m0", "m1", "m8")])
def test_the_others_are_decided_and_the_odd_ones_said(odd):
    plan = with_odd(*odd)

    assert moves(plan) == [f"+{name}/cpu/0" for name in NAMES if name not in odd]
    assert [line for line in held(plan) if "internal error" in line] == [
        f"{name}: internal error: {ERROR}" for name in odd
    ]


def test_what_runs_of_an_odd_one_is_kept():
    plan = with_odd("m3", running=[replica("m3/cpu/0", model("m3", cpu=1)), replica("m3/cpu/1", model("m3", cpu=1))])

    assert not [m for m in moves(plan) if "m3" in m]
    assert {str(p.action) for p in plan.placements if p.id.startswith("m3/")} == {"keep"}


def test_where_it_is_not_of_a_few_models_nothing_is_decided_and_orders_stay():
    with pytest.raises(AttributeError):
        with_odd(*NAMES[: MOST + 1])
