"""Predictions beside what nodes measure: what is learned of it, and that nothing moves because of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from fleets import NOW, SETTLED, F, R, S, model, node, profile, replica, wanting
from locks import FACTS, lock
from msgspec import structs

from llmgw.cli.plan_text import plan_text
from llmgw.core import learning
from llmgw.core.decide import decide
from llmgw.core.learning import LOOK_EVERY_S, learn, taught
from llmgw.core.observed import Observed
from llmgw.core.preview import preview
from llmgw.core.simulate import course
from llmgw.core.status import status
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.claim import claimed_gib
from llmgw.planning.learned import SETTLED_S, Estimates, Figure, Learned, Run
from llmgw.units import GIB

L40S = "l40s-48g"


def asking(*profiles, nodes=("n1",), locked=True, **fields) -> Wanted:
    of = model(profiles=[*(profiles or [profile(memory_gib=None, parallel=1)])], **fields)
    known = lock(**FACTS) if locked else None
    return replace(wanting(of, nodes=nodes), models={"m": WantedModel(of, "m.yaml", "c" * 40, lock=known)})


def served(wanted: Wanted, rid: str = "m/cpu/0", **fields):
    """A replica that has answered."""
    known = {"memory_peak_bytes": 9 * GIB, "tps": 4.0, "engine_version": "b1"}
    return replica(rid, wanted.models["m"].model, **(known | fields))


def looked(wanted: Wanted, *replicas, before: Learned | None = None, now: float = NOW, **at) -> Learned:
    rates = at.pop("rates", {})
    seen = node("n1", *replicas, **at)
    seen = structs.replace(seen, inventory=structs.replace(seen.inventory, **rates))
    return learn(before or Learned(), wanted, Observed((seen,)), now)


def test_what_a_replica_takes_is_put_beside_what_was_worked_out():
    wanted = asking()

    (run,) = looked(wanted, served(wanted)).runs

    assert (run.key, run.engine, run.architecture, run.place) == (("m", "cpu", "n1", "b1"), "llamacpp", "llama", "cpu")
    # The file, its second copy for the CPU and 4096 tokens of context; 4.9 GB a token at an assumed 40 GB/s.
    assert run.host.predicted == pytest.approx(8.9 * GIB, rel=0.02)
    assert run.host.measured == 9 * GIB
    assert run.tps.predicted == pytest.approx(5.4, rel=0.05)
    assert (run.card, run.speed) == (None, None)


def test_on_cards_both_memories_count_and_the_cards_speed_is_solved():
    wanted = asking(profile("gpu", gpu={"class": L40S}, memory_gib=2, parallel=1))

    (run,) = looked(
        wanted,
        served(wanted, "m/gpu/0", devices=("GPU-3",), memory_peak_bytes=GIB, card_peak_bytes=6 * GIB, tps=100.0),
    ).runs

    assert run.place == L40S
    assert run.card == Figure(run.card.predicted, 6 * GIB)
    assert run.card.predicted == pytest.approx(5.0 * GIB, rel=0.02)
    assert run.tps.predicted == pytest.approx(120, rel=0.15)
    assert run.speed is not None


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        pytest.param({}, {"tps": None}, id="it has not answered yet"),
        pytest.param({}, {"phase": S}, id="it starts"),
        pytest.param({}, {"phase": F}, id="it failed"),
        pytest.param({}, {"fingerprint": "older"}, id="it runs what was asked before"),
        pytest.param({}, {"devices": ("GPU-99",)}, id="its card is gone"),
        pytest.param({"locked": False}, {}, id="nothing is known of its files"),
    ],
)
def test_what_says_nothing_of_an_estimate_is_left_out(asked, seen):
    wanted = asking(**asked)

    assert looked(wanted, served(wanted, **seen)).runs == ()


def test_a_silent_node_is_not_listened_to():
    wanted = asking()

    assert looked(wanted, served(wanted), age_s=100.0).runs == ()


def test_a_look_is_taken_once_a_minute_and_what_was_learned_stays():
    wanted = asking()
    first = looked(wanted, served(wanted))

    assert looked(wanted, served(wanted, tps=9.0), before=first, now=NOW + LOOK_EVERY_S - 1) is first
    assert looked(wanted, before=first, now=NOW + LOOK_EVERY_S).runs == first.runs
    assert looked(wanted, served(wanted, tps=9.0), before=first, now=NOW + LOOK_EVERY_S).runs[0].tps.measured == 9.0


def test_replicas_of_a_profile_on_one_node_are_one_run_of_the_most_that_any_took():
    wanted = asking(profile(memory_gib=None, parallel=1, replicas=2))

    (run,) = looked(wanted, served(wanted), served(wanted, "m/cpu/1", memory_peak_bytes=10 * GIB, tps=3.0)).runs

    assert (run.host.measured, run.tps.measured) == (10 * GIB, 4.0)


def test_on_cards_each_figure_is_of_the_replica_that_had_most_of_it():
    wanted = asking(profile("gpu", gpu={"class": L40S}, memory_gib=2, parallel=1, replicas=2))

    (run,) = looked(
        wanted,
        served(wanted, "m/gpu/0", devices=("GPU-0",), memory_peak_bytes=2 * GIB, card_peak_bytes=5 * GIB),
        served(wanted, "m/gpu/1", devices=("GPU-1",), memory_peak_bytes=GIB, card_peak_bytes=6 * GIB, tps=9.0),
    ).runs

    assert (run.host.measured, run.card.measured, run.tps.measured) == (2 * GIB, 6 * GIB, 9.0)


def test_what_gives_embeddings_writes_no_answer_and_counts_all_the_same():
    wanted = asking(kind="embedding")

    (run,) = looked(wanted, served(wanted, tps=None)).runs

    assert (run.host.measured, run.tps) == (9 * GIB, None)


def test_where_there_are_too_many_for_one_look_each_has_its_turn(monkeypatch):
    monkeypatch.setattr(learning, "AT_ONCE", 1)
    wanted = asking(*(profile(name, memory_gib=None, parallel=1) for name in ("a", "b")))
    both = served(wanted, "m/a/0"), served(wanted, "m/b/0")

    first = looked(wanted, *both)
    second = looked(wanted, *both, before=first, now=NOW + LOOK_EVERY_S)

    assert [[run.profile for run in seen.runs] for seen in (first, second)] == [["a"], ["a", "b"]]


@pytest.mark.parametrize(
    ("asked", "host", "tps"),
    [
        pytest.param({"gpu_layers": 4}, True, False, id="a part on the host has a rate of its own"),
        pytest.param({"cpu_moe": 2}, True, False, id="and so have experts there"),
        pytest.param({"engine": "vllm"}, False, True, id="vLLM fills what it is given"),
    ],
)
def test_what_no_formula_is_for_is_not_compared(asked, host, tps):
    wanted = asking(profile("gpu", gpu={"class": L40S}, memory_gib=2, parallel=1, **asked))

    (run,) = looked(wanted, served(wanted, "m/gpu/0", devices=("GPU-0",), memory_peak_bytes=GIB)).runs

    assert (run.host is not None, run.tps is not None) == (host, tps)


def test_the_threads_of_a_profile_are_those_its_speed_is_worked_out_for():
    one, four = (asking(profile(memory_gib=None, parallel=1, threads=n)) for n in (1, 4))
    rates = {"memory_gbs": 40.0, "memory_core_gbs": 10.0}

    slow, quick = (looked(w, served(w), rates=rates).runs[0].tps.predicted for w in (one, four))

    assert quick > 2 * slow


TOO_LOW = Estimates(
    int(NOW),
    (Run("x", "cpu", "n7", "llamacpp", "llama", "cpu", "b1", int(NOW), host=Figure(4.0 * GIB, 6.0 * GIB)),),
)
"""Half as much again as was worked out."""
TOO_HIGH = Estimates(int(NOW), (structs.replace(TOO_LOW.runs[0], host=Figure(4.0 * GIB, 2.0 * GIB)),))


def after(estimates: Estimates):
    return structs.replace(SETTLED, learned=Learned(estimates.runs, estimates))


def test_an_estimate_that_was_too_low_raises_what_is_claimed_from_now_on_and_one_too_high_lowers_nothing():
    wanted, seen = asking(), Observed((node("n1"),))
    worked_out = claimed_gib(wanted.models["m"].model, wanted.models["m"].model.profiles[0], lock(**FACTS))

    low, high, none = (
        decide(wanted, seen, after(e), NOW).placements[0].claim.memory_bytes / GIB
        for e in (TOO_LOW, TOO_HIGH, Estimates())
    )

    assert low == worked_out * 1.5
    assert high == none == worked_out


def test_what_a_file_says_of_memory_is_never_changed():
    wanted = asking(profile(memory_gib=3, parallel=1))

    plan = decide(wanted, Observed((node("n1"),)), after(TOO_LOW), NOW)

    assert plan.placements[0].claim.memory_bytes == 3 * GIB


@pytest.mark.parametrize("room_gib", [256, 9.3], ids=["with room for more", "without"])
def test_a_new_estimate_makes_nothing_stale_and_moves_nothing(room_gib):
    wanted = asking(profile(memory_gib=None, parallel=1, replicas=1))
    running = served(wanted)
    seen = Observed((node("n1", running, memory_gib=room_gib),))

    before, now = decide(wanted, seen, SETTLED, NOW), decide(wanted, seen, after(TOO_LOW), NOW)

    assert before.empty
    assert now.empty
    assert now.placements == before.placements
    assert now.held == before.held
    assert taught(wanted, TOO_LOW).models["m"].outcomes == wanted.models["m"].outcomes


def test_an_idle_fleet_commits_once_what_it_learned_and_then_nothing():
    wanted, memory, digests = asking(), SETTLED, []
    seen = Observed((node("n1", served(wanted, phase=R)),))
    # Every minute for a while, then for two days every half an hour.
    for minute in (*range(20), *range(30, 2 * 24 * 60, 30)):
        now = NOW + 60 * minute
        memory = structs.replace(memory, learned=learn(memory.learned, wanted, seen, now))
        digests.append(status(wanted, seen, decide(wanted, seen, memory, now), now).digest)

    assert [n for n, (one, next_one) in enumerate(pairwise(digests)) if one != next_one] == [SETTLED_S // 60 - 1]


def plan_of(wanted: Wanted, estimates: Estimates, **at) -> list[str]:
    """What a plan says of a replica that it starts."""
    ended = course(wanted, Observed((node("n1", **at),)), after(estimates), NOW)
    shown = plan_text(preview(None, wanted, ended, observed="control, now", dirty=False, based_on=""))
    return [line.strip() for line in shown.splitlines() if line.strip().startswith("expect")]


def test_a_plan_says_what_it_expects_and_by_how_much_it_was_wrong_so_far():
    wanted = asking()
    slower = structs.replace(TOO_LOW.runs[0], model="y", node="n1", host=None, tps=Figure(10.0, 8.0))
    right = structs.replace(TOO_LOW.runs[0], host=Figure(4.0 * GIB, 3.92 * GIB))

    assert plan_of(wanted, Estimates()) == [
        "expect  cpu on n1: 9.5 GiB of memory, ~5 tok/s, slow; nothing like it has run yet"
    ]
    assert plan_of(wanted, Estimates(0, (right, slower))) == [
        "expect  cpu on n1: 9.5 GiB of memory ± 2 % (1 run), ~4.3 tok/s, very slow ± 20 % (1 run)"
    ]
    # One that was too low is not only said to be: more is claimed, and that is what is shown.
    assert plan_of(wanted, TOO_LOW) == ["expect  cpu on n1: 14.2 GiB of memory ± 50 % (1 run), ~5 tok/s, slow"]


def test_a_plan_goes_by_the_nodes_own_cards_once_one_of_them_was_measured():
    wanted = asking(profile("gpu", gpu={"class": L40S}, memory_gib=2, parallel=1))
    measured = looked(wanted, served(wanted, "m/gpu/0", devices=("GPU-0",), card_peak_bytes=5 * GIB, tps=80.0)).runs

    (before,) = plan_of(wanted, Estimates())
    (now,) = plan_of(wanted, Estimates(0, measured))

    assert "5.0 GiB on its cards, ~" in before
    assert "~80 tok/s" not in before
    assert "~80 tok/s" in now


def test_a_model_without_a_lock_is_not_guessed_at():
    assert plan_of(asking(profile(), locked=False), Estimates()) == []
