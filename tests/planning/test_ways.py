"""Every way a model could run on a fleet: which come first, and what helps where one does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import model, profile
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fidelity.points import headers
from llmgw.catalog.lock import Lock
from llmgw.planning.cards import find
from llmgw.planning.claim import claimed_gib
from llmgw.planning.learned import Figure, Margin, Run
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.machines import Cards, EngineHere, Machine
from llmgw.planning.need import Files, need
from llmgw.planning.shape import ModelShape, WeightBytes, to_facts
from llmgw.planning.speed import NVIDIA, calibrated
from llmgw.planning.way import State
from llmgw.planning.ways import Wish, ways
from llmgw.units import GIB

DENSE, EXPERTS = headers()["llama31-8b-q4k"], headers()["qwen3-30b-a3b-q4k"]
L40S, RTX4090 = find("L40S"), find("RTX 4090")
SHORT = Wish(options=LlamaOptions(context=8192))


def files(shape=DENSE, name="m-Q4_K_M.gguf", times=1.0):
    """A packing of a model, with so many times its weights."""
    if times == 1.0:
        return Files(name, shape, shape.weights.total)
    return Files(name, replace(shape, weights=None), round(shape.weights.total * times))


def machine(name, *cards, gib=128, free_gib=None, **more):
    memory = gib * GIB
    free = memory if free_gib is None else free_gib * GIB
    return Machine(name=name, memory_bytes=memory, free_bytes=free, cores=32, cards=cards, **more)


def l40s(count=1, free=None):
    return Cards("l40s-48g", L40S, count, count if free is None else free)


def rtx(count=1, free=None):
    return Cards("rtx4090-24g", RTX4090, count, count if free is None else free)


def told(found):
    """Each way as its state and place."""
    return [(str(way.state), way.where) for way in found]


def test_what_is_free_comes_first_and_of_that_the_quickest():
    fleet = [machine("n1", l40s(2)), machine("n2", rtx(1, free=0)), machine("n3", gib=16)]

    found = ways([files()], fleet, SHORT)

    assert told(found) == [
        ("free now", "one l40s-48g"),
        ("free now", "CPU"),
        ("in use", "one rtx4090-24g"),
    ]
    # The 4090 is the quickest of the three, and nothing can be put on it now.
    assert max(found, key=lambda way: way.tps).place.card_class == "rtx4090-24g"
    assert found[0].names == ("n1",)
    assert (found[1].free_machines, found[1].machines) == (3, 3)


def test_the_fewest_cards_that_hold_it_are_taken():
    (way, *_) = ways([files(times=8)], [machine("n1", rtx(4))], SHORT)

    assert (way.state, way.where) == (State.FREE, "2 rtx4090-24g")
    assert way.profile == {"engine": "llamacpp", "gpu": {"class": "rtx4090-24g", "count": 2}}
    assert 2 * RTX4090.usable_bytes > 2 * way.card_bytes > 8 * DENSE.weights.total * 0.95


@pytest.mark.parametrize("cards", [0, 1])
def test_a_claim_is_what_the_same_profile_would_claim(cards):
    wish = Wish(options=LlamaOptions(context=8192, parallel=2), cpu_only=not cards)
    way = next(w for w in ways([files()], [machine("n1", rtx(1))], wish) if w.place.count == cards)
    lock = Lock.model_validate(
        {
            "model": "m",
            "source": {"from": "/m.gguf"},
            "files": [{"path": "m.gguf", "bytes": DENSE.weights.total}],
            "facts": to_facts(DENSE),
        }
    )
    gpu = {"class": "rtx4090-24g", "count": cards} if cards else None
    written = model(context_length=4096, profiles=[profile(memory_gib=None, parallel=2, gpu=gpu)])

    assert claimed_gib(written, written.profiles[0], lock) == way.host_bytes / GIB


def test_of_equal_speed_the_packing_with_more_bits_is_better_and_then_the_name():
    unknown = replace(RTX4090, bandwidth_gbs=0.0, name="made tomorrow")
    fleet = [machine("n1", Cards("new-24g", unknown, 1, 1))]
    small, large = files(name="a-Q4.gguf"), files(name="b-Q8.gguf", times=1.5)

    found = ways([small, large, replace(large, name="a-Q8.gguf")], fleet, SHORT)

    on_cards = [way.file for way in found if way.place.count]
    assert on_cards == ["a-Q8.gguf", "b-Q8.gguf", "a-Q4.gguf"]
    assert all(way.tps is None for way in found if way.place.count)


def test_what_does_not_fit_says_what_is_short_and_all_that_would_help():
    fleet = [machine("n1", Cards("rtx3060-12g", find("RTX 3060"), 1, 1), gib=8)]
    wanted = Wish(options=LlamaOptions(context=131072, parallel=4))
    packings = [files(name="m-Q8_0.gguf", times=1.8), files(), files(name="m-Q2_K.gguf", times=0.6)]

    found = ways(packings, fleet, wanted)

    card = next(way for way in found if way.file == "m-Q4_K_M.gguf" and way.where == "one rtx3060-12g")
    assert card.state is State.NO
    assert card.short[0].where == "card 0"
    assert card.short[0].missing > 8 * GIB
    # 12 GB hold the weights and 6.4 GiB of cache; a token takes 128 KiB of it.
    assert {r.kind: r.value for r in card.remedies} == {"cache": "q4_0", "context": 52224, "slots": 1, "cards": 2}


def test_each_remedy_would_make_it_fit_by_itself():
    fleet = [machine("n1", rtx(1), gib=64)]
    for shape in (DENSE, EXPERTS):
        wanted = LlamaOptions(context=131072, parallel=4)
        big = files(shape, times=1.4)
        for way in ways([big], fleet, Wish(options=wanted)):
            for remedy in way.remedies:
                if remedy.kind == "cards":
                    assert need(big, "llamacpp", replace(way.place, count=remedy.value), wanted).starts
                    continue
                changed = {
                    "context": {"context": remedy.value},
                    "cache": {"kv_type_k": remedy.value, "kv_type_v": remedy.value},
                    "slots": {"parallel": remedy.value, "context": 131072 * int(remedy.value or 0) // 4}
                    if remedy.kind == "slots"
                    else {},
                    "offload": {"gpu_layers": remedy.value},
                }[remedy.kind]
                if "experts" in remedy.sentence:
                    changed = {"cpu_moe": remedy.value}
                assert need(big, "llamacpp", way.place, replace(wanted, **changed)).starts, remedy


def test_a_smaller_packing_is_proposed_and_of_those_the_largest_that_fits():
    fleet = [machine("n1", rtx(1), gib=8)]
    packings = [
        files(name="m-F16.gguf", times=4),
        files(name="m-Q8_0.gguf", times=1.8),
        files(name="m-Q2_K.gguf", times=0.6),
    ]

    whole = next(w for w in ways(packings, fleet, SHORT) if w.file == "m-F16.gguf" and w.where == "one rtx4090-24g")

    assert whole.state is State.FREE
    packings[0] = files(name="m-F16.gguf", times=6)
    whole = next(w for w in ways(packings, fleet, SHORT) if w.file == "m-F16.gguf" and w.where == "one rtx4090-24g")
    assert next(r for r in whole.remedies if r.kind == "quantization").value == "m-Q8_0.gguf"


def test_a_model_of_experts_that_is_too_large_leaves_experts_to_the_cpu_before_layers():
    found = ways([files(EXPERTS, times=1.6)], [machine("n1", rtx(1))], SHORT)

    partly = [way for way in found if way.fits and way.place.count]
    assert [sorted(way.profile) for way in partly] == [["cpu_moe", "engine", "gpu"], ["engine", "gpu", "gpu_layers"]]
    assert partly[0].tps > partly[1].tps > next(way.tps for way in found if not way.place.count)


def test_an_engine_that_is_missing_is_said_and_comes_after_what_has_it():
    bare = (EngineHere("llamacpp", ("cpu",), embedded=True),)
    fleet = [machine("n1", l40s(), engines=bare), machine("n2", engines=bare)]

    found = ways([files()], fleet, SHORT)

    assert told(found) == [("free now", "CPU"), ("no engine", "one l40s-48g")]
    assert "no machine there has llamacpp" in found[1].sentence


def test_safetensors_are_for_engines_on_cards_that_heads_divide_over():
    shape = ModelShape(
        architecture="llama",
        format="safetensors",
        layers=80,
        embedding=8192,
        vocabulary=128256,
        context=8192,
        feed_forward=(28672,) * 80,
        heads=(64,) * 80,
        kv_heads=(8,) * 80,
        key_length=128,
        value_length=128,
        weights=WeightBytes(total=141 * 10**9),
    )
    big = Files("llama-70b", shape, 141 * 10**9)

    found = ways([big], [machine("n1", l40s(3), gib=64), machine("n2", l40s(1), gib=400)], SHORT)

    on_cards = next(way for way in found if way.place.count)
    assert (on_cards.state, on_cards.engine, on_cards.where) == (State.NO, "vllm", "2 l40s-48g")
    # Three are there, and 64 heads do not divide into three.
    assert [r.value for r in on_cards.remedies if r.kind == "cards"] == [4]
    assert told(found)[0] == ("free now", "CPU")


def test_memory_that_was_measured_is_what_a_cpu_s_speed_rests_on():
    slow, quick = machine("n1", memory_gbs=20.0, core_gbs=8.0), machine("n2", memory_gbs=200.0, core_gbs=20.0)

    (way,) = ways([files()], [slow, quick], SHORT)
    (assumed,) = ways([files()], [machine("n3")], SHORT)

    assert (way.names[:1], way.speed_basis) == (("n1",), "memory measured on n2")
    assert assumed.speed_basis == "memory assumed to give 40 GB/s"
    assert way.tps > 3 * assumed.tps


def ran(where="cpu", node="n1", **figures):
    return Run("x", "p", node, "llamacpp", "llama", where, **figures)


def test_what_ran_like_it_corrects_a_way_and_says_how_far_off_it_may_be():
    fleet = [machine("n1")]
    (before,) = ways([files()], fleet, SHORT)
    slow, large = Figure(10.0, 5.0), Figure(4.0 * GIB, 5.0 * GIB)

    (way,) = ways([files()], fleet, replace(SHORT, runs=(ran(host=large, tps=slow),)))

    assert way.tps == before.tps / 2
    # More is claimed for it, as a profile without `memory_gib` then claims.
    assert before.host_bytes * 1.25 <= way.host_bytes <= before.host_bytes * 1.25 + GIB / 4
    assert (way.host_margin, way.tps_margin, way.speed_basis) == (Margin(25, 1), Margin(50, 1), "runs like it")
    assert (before.host_margin, before.tps_margin) == (None, None)


def test_a_card_that_was_measured_is_as_quick_as_it_was():
    fleet = [machine("n1", l40s())]
    measured = calibrated(DENSE, files().bytes, NVIDIA, bandwidth_gbs=L40S.bandwidth_gbs, depth=0, measured_tps=60.0)

    way = ways([files()], fleet, replace(SHORT, runs=(ran("l40s-48g", tps=Figure(80.0, 60.0), speed=measured),)))[0]

    assert way.tps == pytest.approx(60)
    assert way.host_margin is None


def test_of_an_unknown_architecture_the_file_s_size_alone_decides():
    unknown = Files("m.gguf", ModelShape(architecture="brand-new"), 10 * GIB)

    found = ways([unknown], [machine("n1", rtx(1), gib=64)], SHORT)

    # Half as much again and 2 GiB: 17.
    assert [way.card_bytes // GIB for way in found if way.place.count] == [17]
    assert next(way.host_bytes // GIB for way in found if not way.place.count) in (18, 19)


def test_a_fleet_without_machines_has_no_ways():
    assert ways([files()], [], SHORT) == ()


@settings(max_examples=25)
@given(context=st.integers(512, 1 << 18), parallel=st.sampled_from([1, 2, 4, 8]), cards=st.integers(1, 4))
def test_more_context_never_turns_what_does_not_fit_into_what_does(context, parallel, cards):
    fleet = [machine("n1", rtx(cards), gib=32)]

    def states(tokens):
        wish = Wish(options=LlamaOptions(context=tokens, parallel=parallel), cures=False)
        return {way.where: way.fits for way in ways([files()], fleet, wish) if not way.is_partial}

    less, more = states(context), states(context * 2)
    assert less["CPU"] >= more["CPU"]
    assert any(less.values()) >= any(more.values())
