"""The memory of a profile that writes none is worked out from its lock, and nothing else changes by it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from fleets import NOW, SETTLED, model, node, profile, replica, wanting
from hypothesis import given
from hypothesis import strategies as st
from locks import FACTS, lock
from msgspec import structs

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.core.wanted import WantedModel
from llmgw.planning.claim import claimed_gib
from llmgw.planning.learned import Estimates, Figure, Learned, Run


def unwritten(**fields):
    return model(profiles=[profile(memory_gib=None, **fields)])


def test_it_is_what_the_engine_takes_with_what_its_prompts_are_kept_in():
    of = unwritten(parallel=1)

    claim = claimed_gib(of, of.profiles[0], lock(**FACTS))

    # The file is 4.6 GiB, laid out anew for the CPU once more, and 0.5 GiB are the cache of 4096 tokens.
    assert claim is not None
    assert 5 < claim < 12
    assert claim % 0.25 == 0


def test_more_slots_and_longer_requests_take_more():
    one, eight = unwritten(parallel=1), unwritten(parallel=8)

    small, large = (claimed_gib(m, m.profiles[0], lock(**FACTS)) for m in (one, eight))

    # Seven more slots of 4096 tokens, at 128 KiB a token, and what goes with them.
    assert 3.5 <= large - small <= 4.5


def test_on_cards_the_host_keeps_what_is_not_on_them():
    of = unwritten(gpu={"class": "l40s-48g"})

    assert claimed_gib(of, of.profiles[0], lock(**FACTS)) < 2


@pytest.mark.parametrize(
    "known", [None, lock(), lock(None, architecture="llama")], ids=["no lock", "no header", "no size"]
)
def test_what_is_not_known_is_not_made_up(known):
    of = unwritten()

    assert claimed_gib(of, of.profiles[0], known) is None


def test_facts_nobody_understands_leave_the_files_size():
    of = unwritten()

    assert claimed_gib(of, of.profiles[0], lock(architecture="of a later year")) >= 4_920_000_000 * 1.4 / 2**30


def test_a_replica_is_placed_by_it_and_a_better_estimate_makes_nothing_out_of_date():
    of = unwritten()
    entry = WantedModel(of, "catalog/m.yaml", "c" * 40, lock=lock(**FACTS))
    claim = claimed_gib(of, of.profiles[0], entry.lock)
    wanted = replace(wanting(of, nodes=["n1"]), models={"m": entry})

    def run(memory_gib, *running):
        return decide(wanted, Observed((node("n1", *running, memory_gib=memory_gib),)), SETTLED, NOW)

    assert run(claim - 0.1).empty
    assert run(claim).placements[0].claim.memory_bytes == claim * 2**30
    better = replace(entry, lock=lock(2_000_000_000, **FACTS))
    assert better.outcomes == entry.outcomes
    assert replace(wanted, models={"m": better}).models["m"].sized != entry.sized
    assert decide(
        replace(wanted, models={"m": better}), Observed((node("n1", replica("m/cpu/0", of)),)), SETTLED, NOW
    ).empty


def of_claim(memory_claim, memory_gib=20.0, *, runs=(), known=None):
    """The GiB that a pass places one replica with."""
    of = model(profiles=[profile(memory_gib=memory_gib, memory_claim=memory_claim)])
    entry = WantedModel(of, "catalog/m.yaml", "c" * 40, lock=known or lock(**FACTS))
    wanted = replace(wanting(of, nodes=["n1"]), models={"m": entry})
    memory = structs.replace(SETTLED, learned=Learned(published=Estimates(1, tuple(runs))))
    (placed,) = decide(wanted, Observed((node("n1"),)), memory, NOW).placements
    return placed.claim.memory_bytes / 2**30


def took(share, *, model="m", node="n1"):
    """A run that took this share of what was worked out for it."""
    return Run(model, "cpu", node, "llamacpp", "llama", "cpu", host=Figure(1e9, share * 1e9))


WORKED_OUT = of_claim("estimated")


@pytest.mark.parametrize(
    ("claim", "runs", "gib"),
    [
        pytest.param("written", [took(0.5)], 20.0, id="what is written"),
        pytest.param("estimated", [], WORKED_OUT, id="what is worked out, whatever is written"),
        pytest.param("estimated", [took(0.5)], WORKED_OUT, id="which less that was measured does not lower"),
        pytest.param("measured", [], WORKED_OUT, id="before one has run, what is worked out"),
        pytest.param("measured", [took(0.5), took(0.4, node="n2")], 0.55 * WORKED_OUT, id="then the most, and a tenth"),
        pytest.param("measured", [took(0.5, model="other")], WORKED_OUT, id="its own, and not another model's"),
        pytest.param("measured", [took(9.0)], 2 * WORKED_OUT, id="one that leaks does not take the whole node"),
    ],
)
def test_a_replica_holds_the_figure_that_its_file_names(claim, runs, gib):
    assert 0 <= of_claim(claim, runs=runs) - gib < 0.25  # rounded up to quarters


def test_what_cannot_be_worked_out_is_as_it_is_written():
    assert of_claim("estimated", known=lock()) == of_claim("measured", known=lock()) == 20.0


@pytest.mark.parametrize("claim", ["estimated", "measured"])
def test_whichever_figure_it_holds_nothing_that_runs_is_out_of_date_or_moved(claim):
    before, after = (model(profiles=[profile(memory_gib=1, memory_claim=c)]) for c in ("written", claim))
    entry = WantedModel(after, "catalog/m.yaml", "c" * 40, lock=lock(**FACTS))
    wanted = replace(wanting(after, nodes=["n1"]), models={"m": entry})

    plan = decide(wanted, Observed((node("n1", replica("m/cpu/0", before), memory_gib=1),)), SETTLED, NOW)

    assert (plan.actions, plan.held) == ((), ())


ODD = [0, -1, 1, 1e300, 2**53, 0.5, "x", "", True, [], [0], [1] * 40, ["a"], [True] * 33]
NAMES = [*FACTS, "experts", "experts_used", "expert_feed_forward", "window", "windowed", "recurrent", "weights.experts"]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(ODD) | st.none(), max_size=3))
def test_whatever_a_lock_says_a_claim_is_a_number_or_unknown(changes):
    # A lock is a file that people merge, and one of them must not end a pass of the whole fleet.
    facts = {name: value for name, value in {**FACTS, **changes}.items() if value is not None}
    of = model(
        profiles=[
            profile(memory_gib=None, parallel=4),
            profile("gpu", memory_gib=None, gpu={"class": "l40s-48g", "count": 2}, cpu_moe=3, tensor_split=[1, 3]),
        ]
    )

    for way in of.profiles:
        claim = claimed_gib(of, way, lock(**facts))
        assert claim is None or 0 < claim < inf
