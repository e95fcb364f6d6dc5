"""What estimates turned out to be worth: ratios of measured over predicted, and what follows from them."""

from __future__ import annotations

import pytest
from msgspec import structs

from llmgw.planning.learned import (
    APART_S,
    MOST_RUNS,
    SETTLED_S,
    About,
    Estimates,
    Figure,
    Learned,
    Margin,
    Run,
    card_speed,
    margin,
    merged,
    published,
    quicker,
    raises,
    rows,
    spread,
)
from llmgw.planning.speed import NVIDIA

NOW = 1_800_000_000
GIB = float(1 << 30)


def run(ratio: float = 1.0, *, tps: float | None = None, **fields) -> Run:
    """A run on a CPU that took so many times the 4 GiB that were predicted, and was so many times as fast as 10."""
    known = {"model": "m", "profile": "cpu", "node": "n1", "engine": "llamacpp", "architecture": "llama"}
    known |= {"place": "cpu", "version": "b1", "at": NOW, "host": Figure(4 * GIB, 4 * GIB * ratio)}
    return Run(**(known | {"tps": None if tps is None else Figure(10.0, 10 * tps)} | fields))


def runs(*ratios: float, **fields) -> list[Run]:
    return [run(ratio, model=f"m{n}", **fields) for n, ratio in enumerate(ratios)]


ABOUT = About("llamacpp", "llama", "cpu", "b1", "n1")


def test_nine_of_ten_are_no_further_off_than_the_p90_and_none_than_the_worst():
    found = spread([1.0, 1.01, 0.99, 1.02, 0.98, 1.03, 0.97, 1.04, 0.9, 1.5])

    assert (found.count, found.p50, found.p90, found.worst) == (10, 1.005, 0.9, 1.5)
    assert spread([]) is None


def test_a_row_is_of_one_engine_version_architecture_and_kind_of_place():
    table = rows([*runs(1.0, 1.1), run(0.9, version="b2"), run(1.2, place="l40s-48g", tps=0.8)])

    assert [(r.version, r.place, r.host.count, r.tps and r.tps.p50) for r in table] == [
        ("b1", "cpu", 2, None),
        ("b1", "l40s-48g", 1, 0.8),
        ("b2", "cpu", 1, None),
    ]


def test_a_newer_run_takes_the_place_of_an_older_one_and_a_peak_stays():
    # A replica that has just been started anew has needed little so far.
    before, now = structs.replace(run(1.1, tps=1.0), speed=NVIDIA), run(0.7, at=NOW + 60)

    (kept,) = merged([before], [now])

    assert (kept.at, kept.host.ratio, kept.tps) == (NOW + 60, pytest.approx(1.1), before.tps)
    assert kept.speed == NVIDIA
    # Of another prediction it says nothing: the profile is another one by now.
    (other,) = merged([before], [structs.replace(now, host=Figure(2 * GIB, 1 * GIB))])
    assert other.host.measured == 1 * GIB


def test_what_is_kept_is_bounded_and_the_oldest_goes_first():
    many = [run(model=f"m{n:04}", at=NOW + n) for n in range(MOST_RUNS + 50)]

    kept = merged(many, [])

    assert (len(kept), kept[0].model) == (MOST_RUNS, "m0050")
    assert list(kept) == sorted(kept, key=lambda r: r.key)


def learned(now_ratio: float, last_ratio: float | None, *, at: int = NOW, since: float = 0.0) -> Learned:
    last = Estimates() if last_ratio is None else Estimates(at, (run(last_ratio),))
    return Learned((run(now_ratio),), last, moved_since=since)


@pytest.mark.parametrize(
    ("before", "later", "is_new"),
    [
        pytest.param(learned(1.0, None), 0, False, id="the first figures settle"),
        pytest.param(learned(1.0, None, since=NOW), SETTLED_S, True, id="then they are worth a commit"),
        pytest.param(learned(1.02, 1.0, since=NOW), 2 * APART_S, False, id="two percent are not"),
        pytest.param(learned(0.96, 1.0, since=NOW), APART_S, True, id="downwards as well"),
        pytest.param(learned(1.04, 1.0, since=NOW), APART_S - 1, False, id="nor are four within six hours"),
        pytest.param(learned(1.04, 1.0, since=NOW), APART_S, True, id="after six hours they are"),
        pytest.param(learned(1.04, 1.0, since=NOW + APART_S), APART_S, False, id="and have to last"),
        pytest.param(learned(1.04, 1.0, at=NOW + 10**9, since=NOW), APART_S, True, id="a time to come stops none"),
    ],
)
def test_when_what_was_learned_is_worth_a_commit(before, later, is_new):
    after = published(before, NOW + later)

    assert (after.published != before.published) == is_new
    if is_new:
        assert after.published == Estimates(int(NOW + later), before.runs)
        # And then it is quiet.
        assert published(after, NOW + later + 10 * APART_S).published == after.published


def test_a_figure_that_wavers_never_comes_to_a_commit():
    state = learned(1.04, 1.0, at=NOW - 10 * APART_S)
    for minute in range(100):
        ratio = 1.04 if minute % 9 else 1.0
        state = published(structs.replace(state, runs=(run(ratio),)), NOW + 60 * minute)

    assert state.published.at == NOW - 10 * APART_S


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        pytest.param([0.5, 0.9], {}, id="less than predicted lowers nothing"),
        pytest.param([1.02], {}, id="two percent are within what a claim is rounded up by"),
        pytest.param([1.03], {("llamacpp", "llama", "cpu"): 1.03}, id="more raises"),
        pytest.param([1.0] * 9 + [1.9], {}, id="one of ten does not"),
        pytest.param([1.0] * 8 + [1.3, 1.9], {("llamacpp", "llama", "cpu"): 1.3}, id="two of ten do"),
        pytest.param([40.0], {("llamacpp", "llama", "cpu"): 2.0}, id="never by more than twice"),
    ],
)
def test_memory_is_raised_to_what_nine_of_ten_stayed_under(ratios, expected):
    assert raises(runs(*ratios)) == pytest.approx(expected)


def test_a_margin_is_of_the_runs_most_like_the_prediction():
    known = [*runs(1.02, 0.96), run(1.3, version="b0"), run(1.6, architecture="qwen3")]

    assert margin(known, ABOUT, "host") == Margin(4, 2)
    assert margin(known, ABOUT._replace(version="b9"), "host") == Margin(30, 3)
    assert margin(known, ABOUT._replace(architecture="mamba"), "host") == Margin(60, 4)
    assert margin(known, ABOUT._replace(place="l40s-48g"), "host") is None
    assert str(margin(known, ABOUT, "host")) == "± 4 % (2 runs)"


def test_speed_goes_by_the_node_before_the_version_and_by_others_of_its_kind_where_it_has_none():
    known = [
        run(tps=0.5, model="a"),
        run(tps=0.6, model="b", architecture="qwen3"),
        run(tps=2.0, model="c", node="n2"),
    ]

    assert quicker(known, ABOUT) == pytest.approx(0.55)
    assert quicker(known, ABOUT._replace(node="n2")) == pytest.approx(2.0)
    assert quicker(known, ABOUT._replace(node="n9")) == pytest.approx(0.6)
    assert quicker(known, ABOUT._replace(place="l40s-48g")) == 1.0
    # Of a speed that was corrected, what is left counts: 0.5 and 0.6 are 9 % from their middle.
    assert margin(known, ABOUT, "tps") == Margin(10, 2)


def test_a_card_is_as_quick_as_the_middle_of_its_own_runs():
    quick, slow = (structs.replace(run(place="l40s-48g", tps=1.0), speed=NVIDIA), run(place="l40s-48g", node="n2"))

    assert card_speed([quick, slow], ABOUT._replace(place="l40s-48g")) == NVIDIA
    assert card_speed([slow], ABOUT._replace(place="l40s-48g")) is None
