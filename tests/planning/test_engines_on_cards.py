"""Cards by their names, and how vLLM and SGLang divide them."""

from dataclasses import replace

import pytest

from llmgw.planning.cards import cards, find, usable
from llmgw.planning.estimate import Estimate, Term, card
from llmgw.planning.fit import shortages
from llmgw.planning.safetensors import shape_of_config
from llmgw.planning.sglang import pool, reserve_bytes
from llmgw.planning.vllm import VllmOptions, cache_tokens, capability, divisibility, fit, request_bytes, weight_only
from llmgw.units import GIB, MIB

QWEN3_235B = shape_of_config(
    {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 94,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 12_288,
        "moe_intermediate_size": 1536,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8"},
    }
)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("4090 24GB", "GeForce RTX 4090"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("A100 PCIe 80GB", "A100 80GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3 (SXM5)"),
        ("RTX 6000 Ada 48GB", "RTX 6000 Ada Generation"),
        ("M1 Max 32-Core GPU 64GB", "Apple M1 Max"),
        ("AMD Radeon RX 7900 XTX", "Radeon RX 7900 XTX"),
        ("NVIDIA GB10", "GB10 (DGX Spark)"),
    ],
)
def test_a_card_is_found_by_what_its_driver_or_a_person_calls_it(said, expected):
    assert find(said).name == expected


@pytest.mark.parametrize("said", ["GeForce GTX 1650 Ti", "NVIDIA GeForce RTX 3070 Laptop GPU", "RTX 4090 D", "", "gpu"])
def test_a_card_that_is_not_in_the_table_is_not_taken_for_its_neighbour(said):
    assert find(said) is None


def test_every_card_of_the_table_is_found_by_its_own_name():
    assert [c.name for c in cards() if find(c.name) != c] == []
    assert len(cards()) == 120


def test_a_driver_s_memory_tells_apart_what_was_sold_under_one_name():
    assert find("NVIDIA A100", 40 * GIB).memory_bytes == 40 * GIB
    assert find("NVIDIA A100", 80 * GIB).memory_bytes == 80 * GIB


def test_macos_keeps_more_of_a_small_memory():
    assert usable(8 * GIB, apple=True) == int(8 * GIB * 2 / 3)
    assert usable(64 * GIB, apple=True) == 48 * GIB


def test_the_cache_of_a_card_holds_as_many_tokens_as_vllm_said():
    # vllm#21348: 8.11 GiB a card, four of them, 178,880 tokens.
    tokens = cache_tokens(QWEN3_235B, VllmOptions(cards=4), int(8.11 * GIB))

    assert tokens == pytest.approx(178_880, rel=0.015)


def test_more_cards_than_heads_copy_them():
    eight, sixteen = (request_bytes(QWEN3_235B, VllmOptions(cards=n), context=4096, batch_tokens=2048) for n in (4, 8))

    assert eight == sixteen


def test_a_window_bounds_what_a_request_takes():
    layers = QWEN3_235B.layers
    windowed = replace(QWEN3_235B, window=1024, windowed=(True,) * layers)
    options = VllmOptions(cards=4)

    def need(context):
        return request_bytes(windowed, options, context=context, batch_tokens=2048)

    assert need(32_768) == need(131_072) < request_bytes(QWEN3_235B, options, context=32_768, batch_tokens=2048)


def test_what_does_not_fit_says_by_how_much():
    found = fit(QWEN3_235B, 240 * 10**9, VllmOptions(cards=2, utilization=0.9), find("H100 80GB HBM3"))

    assert found.cache_bytes < 0
    assert any("short on each card" in problem for problem in found.problems)


def test_what_fits_has_no_problem_and_its_terms_make_up_the_claim():
    gpu = find("H100 80GB HBM3")

    found = fit(QWEN3_235B, 236 * 10**9, VllmOptions(cards=4, utilization=0.95, context=32_768), gpu)

    assert found.problems == ()
    assert found.estimate.by_card[0] == found.claimed


def test_memory_that_another_holds_is_a_problem():
    gpu = find("L40S")

    found = fit(replace(QWEN3_235B, experts=0), 10**9, VllmOptions(context=1024), gpu, free_bytes=10 * GIB)

    assert any("are claimed and 10.0 GiB are free" in problem for problem in found.problems)


@pytest.mark.parametrize(("count", "bad"), [(4, 0), (3, 2), (8, 0), (5, 2)])
def test_heads_have_to_be_divisible(count, bad):
    assert len(list(divisibility(QWEN3_235B, count))) == bad


@pytest.mark.parametrize(
    ("method", "kind", "gpu", "runs"),
    [
        ("fp8", "", "Tesla T4", True),
        ("fp8", "", "Tesla V100-PCIE-16GB", False),
        ("gptq", "", "Tesla P100-PCIE-16GB", True),
        ("awq", "", "Tesla V100-PCIE-16GB", False),
        ("mxfp4", "", "Tesla T4", False),
        ("modelopt", "nvfp4", "Tesla T4", True),
        ("fp8", "", "Radeon RX 7900 XTX", True),
    ],
)
def test_a_quantisation_needs_a_card_that_computes_with_it(method, kind, gpu, runs):
    shape = replace(QWEN3_235B, quantization=method, file_type=kind)

    assert (list(capability(shape, find(gpu))) == []) is runs


def test_fp8_below_ada_is_memory_without_speed():
    assert weight_only(QWEN3_235B, find("RTX A6000"))
    assert not weight_only(QWEN3_235B, find("L40S"))


def test_sglang_keeps_its_own_reserve():
    # 24 GiB: 512 + 1.5 x 4096 + 1024/8 + 2 x 48 + 64 MiB.
    assert reserve_bytes(24 * GIB, QWEN3_235B, 1) == 6944 * MIB
    assert reserve_bytes(80 * GIB, QWEN3_235B, 1) >= 10 * GIB

    found = pool(replace(QWEN3_235B, experts=0), 8 * GIB, 24 * GIB)

    assert found.fraction == pytest.approx(0.717)
    assert found.cache_bytes == found.static_bytes - 8 * GIB


def test_a_shortage_says_where_and_how_much():
    estimate = Estimate(
        "llama", 1, 1, (Term("kv_cache", card(0), 3 * GIB, "", ""), Term("engine", "host", GIB, "", ""))
    )

    found = shortages(estimate, cards=(2 * GIB,), host=GIB // 2)

    assert [str(short) for short in found] == [
        "host: 1.0 GiB are needed and 0.5 GiB can be had",
        "card 0: 3.0 GiB are needed and 2.0 GiB can be had",
    ]
    assert found[1].missing == GIB
