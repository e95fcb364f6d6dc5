"""A plan says that cards stay free which would do what CPUs are asked for."""

from __future__ import annotations

from dataclasses import replace

from fleets import NOW, SETTLED, model, node, profile, wanting
from locks import FACTS, lock

from llmgw.cli.plan_text import plan_text
from llmgw.core.observed import Observed
from llmgw.core.preview import preview
from llmgw.core.simulate import course


def planned(nodes, *profiles, size: int = 4_920_000_000) -> str:
    """The text of a plan for a model of eight thousand million weights, on a fleet that runs nothing."""
    wanted = wanting(model("m", profiles=profiles))
    entry = replace(wanted.models["m"], lock=lock(size, **FACTS))
    wanted = replace(wanted, models={"m": entry})
    run = course(wanted, Observed(tuple(nodes)), SETTLED, NOW)
    return plan_text(preview(None, wanted, run, observed="here", dirty=False, based_on=""))


def test_cards_that_stay_free_are_said_with_both_speeds():
    text = planned([node("n1", cards=2)], profile("cpu", gpu=None))

    assert "note    cpu: one l40s-48g would hold it and is free: ~" in text
    assert " tok/s, and CPUs ~5 tok/s, slow" in text


def test_cards_that_the_same_plan_takes_are_not_free():
    both = (profile("gpu", gpu={"class": "l40s-48g", "count": 1}), profile("cpu", gpu=None))

    assert "is free" not in planned([node("n1", cards=1), node("n2", cards=0)], *both)


def test_what_starts_slowly_says_how_long_a_reply_takes():
    text = planned([node("n1", cards=0)], profile("cpu", gpu=None), size=6_500_000_000)

    assert "            a reply of 500 tokens takes about 2 minutes" in text.splitlines()
