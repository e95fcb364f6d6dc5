"""Tokens a second, worked out from what is read: the measured rows, and what is never said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fidelity.points import headers
from bench.fidelity.speeds import card_lines, cpu_lines
from llmgw.planning.cards import find
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.speed import (
    NVIDIA,
    calibrated,
    card_tps,
    class_of,
    cpu_bytes,
    cpu_read_gbs,
    cpu_threads,
    cpu_tps,
    host_read_bytes,
    load_s,
    prefill_tps,
    read_bytes,
    reply,
    said,
    tensor_split_tps,
)
from llmgw.units import GIB

MOE = headers()["qwen3-30b-a3b-q4k"]
DENSE = headers()["llama31-8b-q4k"]


@pytest.mark.parametrize(
    ("size", "all_gbs", "core_gbs", "threads", "measured"),
    [
        (4_683_073_536, 43.9, 9.7, 1, 1.88),
        (4_683_073_536, 43.9, 9.7, 2, 3.56),
        (4_683_073_536, 43.9, 9.7, 4, 6.35),
        (4_683_073_536, 43.9, 9.7, 8, 9.29),
        (1_117_320_736, 43.9, 9.7, 1, 8.31),
        (1_117_320_736, 43.9, 9.7, 4, 25.4),
        (1_117_320_736, 34.2, 10.1, 2, 14.5),
        (9_000_000_000, 43.9, 9.7, 4, 3.3),
    ],
)
def test_cpu_speed_is_within_15_percent_of_what_was_measured(size, all_gbs, core_gbs, threads, measured):
    found = cpu_tps(size, all_gbs=all_gbs, core_gbs=core_gbs, threads=threads)

    assert found == pytest.approx(measured, rel=0.15)


def test_without_one_core_s_rate_a_share_of_the_whole_stands_for_it():
    assert cpu_tps(10**9, all_gbs=40, core_gbs=0, threads=4) == cpu_tps(10**9, all_gbs=40)
    assert cpu_tps(10**9, all_gbs=40) == pytest.approx(23.944, abs=0.001)


def test_nothing_is_said_where_nothing_was_measured():
    assert cpu_tps(10**9, all_gbs=0) is None
    assert card_tps(DENSE, 5 * GIB, NVIDIA, bandwidth_gbs=0) is None
    assert load_s(10**9, disk_gbs=0) is None


@given(st.floats(1, 1000), st.floats(0.5, 50), st.integers(1, 255))
def test_a_thread_more_is_never_slower_and_past_the_knee_never_faster(all_gbs, core_gbs, threads):
    now = cpu_read_gbs(all_gbs=all_gbs, core_gbs=core_gbs, threads=threads)
    then = cpu_read_gbs(all_gbs=all_gbs, core_gbs=core_gbs, threads=threads + 1)

    assert now <= then <= all_gbs
    assert now < all_gbs or then == now


@pytest.mark.parametrize(("asked", "cpus", "threads"), [(0, 64, 32), (6, 64, 6), (0, 1, 1)])
def test_an_engine_has_its_profile_s_threads_or_half_of_the_node_s(asked, cpus, threads):
    assert cpu_threads(asked, cpus) == threads


def test_a_token_reads_the_experts_it_goes_to_and_no_more():
    share = read_bytes(MOE, 18 * GIB) / MOE.weights.total

    # The file's own tensors: 0.101 to 0.103 of Qwen3-30B-A3B, where a rule by counts said 0.1625.
    assert share == pytest.approx(0.102, abs=0.006)
    assert cpu_bytes(MOE, MOE.weights.total) < 0.12 * MOE.weights.total


def test_requests_answered_together_share_the_experts():
    one, four, many = (read_bytes(MOE, 18 * GIB, requests=n) for n in (1, 4, 1000))

    assert one < four < 4 * one
    assert many == MOE.weights.total - MOE.weights.embedding


def test_a_dense_model_reads_all_but_the_table_of_its_vocabulary():
    assert read_bytes(DENSE, 5 * GIB) == DENSE.weights.total - DENSE.weights.embedding
    tied = headers()["llama32-3b-q4k-tied"]
    assert read_bytes(tied, 2 * GIB) == tied.weights.total


@given(st.integers(0, 100_000), st.integers(1, 16))
def test_deeper_is_slower_and_together_is_more(depth, requests):
    def tps(depth, requests):
        return card_tps(DENSE, 5 * GIB, NVIDIA, bandwidth_gbs=1008, depth=depth, requests=requests)

    assert tps(depth + 1000, requests) < tps(depth, requests)
    assert tps(depth, requests + 1) > tps(depth, requests)


def test_what_stays_on_the_host_is_read_at_the_host_s_rate():
    whole = card_tps(DENSE, 5 * GIB, NVIDIA, bandwidth_gbs=1008)
    part = card_tps(DENSE, 5 * GIB, NVIDIA, bandwidth_gbs=1008, host_bytes=GIB, host_gbs=45)

    assert part < whole / 3


@pytest.mark.parametrize("measured", [20.0, 90.0, 131.0, 150.0, 400.0])
def test_the_run_that_was_measured_comes_out_as_it_was(measured):
    own = calibrated(DENSE, 5 * GIB, NVIDIA, bandwidth_gbs=1008, depth=512, measured_tps=measured)

    assert card_tps(DENSE, 5 * GIB, own, bandwidth_gbs=1008, depth=512) == pytest.approx(measured, rel=0.01)


def test_a_prompt_is_bound_by_what_its_card_computes_with_the_weights_that_take_part():
    card = find("RTX 4090")

    assert prefill_tps(DENSE, 5 * GIB, card) == pytest.approx(6899, rel=0.02)
    assert prefill_tps(MOE, 18 * GIB, card) > 2 * prefill_tps(DENSE, 5 * GIB, card)
    assert prefill_tps(DENSE, 5 * GIB, find("Tesla P40")) is None


def test_a_reply_is_said_in_seconds_or_in_minutes():
    assert reply(10.0) == "a reply of 500 tokens takes about 50 seconds"
    assert reply(2.0) == "a reply of 500 tokens takes about 4 minutes"
    assert reply(500.0) == "a reply of 500 tokens takes about 1 second"


def test_cards_that_split_tensors_read_their_parts_at_the_same_time():
    one, two, four = (tensor_split_tps(DENSE, 5 * GIB, NVIDIA, bandwidth_gbs=936, cards=n) for n in (1, 2, 4))

    assert one < two < 2 * one
    assert two < four < 2 * two
    assert tensor_split_tps(DENSE, 5 * GIB, NVIDIA, bandwidth_gbs=0, cards=2) is None


def test_layers_and_experts_that_stay_with_the_host_are_read_there():
    everything = host_read_bytes(DENSE, 5 * GIB, LlamaOptions(gpu_layers=0))
    half = host_read_bytes(DENSE, 5 * GIB, LlamaOptions(gpu_layers=17))
    experts = host_read_bytes(MOE, 18 * GIB, LlamaOptions(cpu_moe=48))

    assert everything == pytest.approx(read_bytes(DENSE, 5 * GIB), rel=1e-4)
    assert half == pytest.approx(everything / 2, rel=0.1)
    assert experts < 0.1 * sum(MOE.weights.experts)
    assert host_read_bytes(DENSE, 5 * GIB, LlamaOptions()) == 0


def test_cards_have_their_class():
    assert class_of(find("RTX 4090")) is NVIDIA
    assert class_of(find("A100 SXM 80GB")) is not NVIDIA
    assert class_of(find("Tesla P40")) is not NVIDIA


def test_the_measured_rows_come_out_as_well_as_the_table_says():
    assert [line.what for line in (*cpu_lines(), *card_lines()) if not line.ok] == []


@pytest.mark.parametrize(("tps", "text"), [(3.14, "~3.1 tok/s, very slow"), (9.4, "~9 tok/s, slow"), (40, "~40 tok/s")])
def test_slow_is_said(tps, text):
    assert said(tps) == text


def test_loading_waits_for_the_mirror_and_the_disk():
    assert load_s(10**9, disk_gbs=2.0) == 0.5
    assert load_s(10**9, disk_gbs=2.0, mirror_gbs=0.1) == 10.5
