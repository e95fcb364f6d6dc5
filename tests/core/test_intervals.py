"""From lines to lives: who served from when to when, and what is missing between."""

import pytest

from llmgw.core.history import Kind, Line
from llmgw.core.intervals import LOST, joined, within

KINDS = {"s": Kind.START, "r": Kind.READY, "x": Kind.STOP, "f": Kind.FAILED}


def lines(kinds, **fields):
    """One line every ten seconds: `srx`."""
    return [
        Line(10 * n, KINDS[kind], **{"replica": "m/cpu/0", "generation": 1, "node": "n1", **fields})
        for n, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    ("kinds", "lives", "gaps"),
    [
        ("", [], 0),
        ("s", [(0, None, None, "")], 0),
        ("sr", [(0, 10, None, "")], 0),
        ("srx", [(0, 10, 20, "stop")], 0),
        ("sx", [(0, None, 10, "stop")], 0),
        ("sf", [(0, None, 10, "failed")], 0),
        ("sfsrx", [(0, None, 10, "failed"), (20, 30, 40, "stop")], 0),
        ("srs", [(0, 10, 20, "unknown"), (20, None, None, "")], 1),
        ("srr", [(0, 10, None, "")], 1),
        ("rx", [(None, 0, 10, "stop")], 1),
        ("x", [(None, None, 0, "stop")], 1),
        ("f", [(None, None, 0, "failed")], 1),
        ("sxx", [(0, None, 10, "stop"), (None, None, 20, "stop")], 1),
    ],
)
def test_lines_join_to_lives(kinds, lives, gaps):
    found = joined(lines(kinds))

    assert [(i.started, i.ready, i.ended, i.end) for i in found.intervals] == lives
    assert len(found.gaps) == len(found.gaps_at) == gaps


def test_a_gap_says_what_is_missing_and_of_which_replica():
    found = joined(lines("xsrs"))

    assert found.gaps == (
        "a stop of m/cpu/0, generation 1, on n1 without a start",
        "a start of m/cpu/0, generation 1, on n1 that had not ended",
    )
    assert found.gaps_at == (0, 30)
    assert next(i.how for i in found.intervals if i.end == "unknown") == LOST


def test_two_generations_and_two_nodes_are_different_lives():
    both = sorted((*lines("srx"), *lines("sr", generation=2), *lines("s", node="n2")), key=lambda line: line.at)

    found = joined(both)

    assert [(i.generation, i.node, i.ended) for i in found.intervals] == [
        (1, "n1", 20),
        (1, "n2", None),
        (2, "n1", None),
    ]
    assert found.gaps == ()


def test_a_life_has_what_any_of_its_lines_knew():
    start, ready = lines("sr")
    told = Line(10, Kind.READY, "m/cpu/0", 1, "n1", engine="llamacpp", build="b2", version="m/1")

    (life,) = joined([start, told]).intervals

    assert ready.build == ""
    assert (life.engine, life.build, life.version) == ("llamacpp", "b2", "m/1")


@pytest.mark.parametrize(
    ("since", "until", "there"),
    [(0, 100, True), (20, 100, True), (21, 100, False), (0, 0, True), (-9, -1, False), (12, 13, True)],
)
def test_a_life_is_in_a_time_where_some_part_of_it_is(since, until, there):
    assert bool(within(joined(lines("srx")).intervals, since, until)) is there
