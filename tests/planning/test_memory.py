"""What llama.cpp takes of memory: its own words for it, and what it never does."""

from dataclasses import replace

import pytest
from headers import write_header
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fidelity.points import headers, probes, published
from bench.fidelity.process import measure
from bench.fidelity.rows import fit_lines, weight_lines
from llmgw.errors import Refused
from llmgw.planning.buffers import compute_bytes, output_bytes
from llmgw.planning.estimate import FILE_SIZE, HEADER, HOST
from llmgw.planning.fit import shortages
from llmgw.planning.gguf import read_header
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.kv import cells, kv_bytes, state_bytes
from llmgw.planning.llama_options import ALL, LlamaOptions
from llmgw.planning.memory import Extras, estimate
from llmgw.planning.shape import ModelShape
from llmgw.planning.source import Bytes
from llmgw.units import GIB, MIB

RULES = {
    "kv_cache": lambda shape, options: sum(kv_bytes(shape, options)),
    "recurrent_state": lambda shape, options: sum(state_bytes(shape, options)),
    "output_buffer": output_bytes,
    "compute_buffer": compute_bytes,
}


def mib(size):
    return size / MIB


@pytest.mark.parametrize("metric", ["kv_cache", "recurrent_state", "output_buffer"])
def test_caches_and_outputs_are_what_the_engine_says_to_a_twentieth_of_a_mebibyte(metric):
    off = {
        point["id"]: mib(RULES[metric](shape, point.options)) - point.value
        for point, shape in probes(*RULES)
        if point["metric"] == metric
    }

    assert off
    assert {row: error for row, error in off.items() if abs(error) > 0.05} == {}


def test_the_work_space_is_what_the_engine_says_to_one_percent():
    off = {
        point["id"]: mib(compute_bytes(shape, point.options)) / point.value - 1
        for point, shape in probes(*RULES)
        if point["metric"] == "compute_buffer"
    }

    assert {row: error for row, error in off.items() if abs(error) > 0.01} == {}


def shape(**changes):
    """Four plain layers."""
    plain = ModelShape(
        architecture="llama",
        layers=4,
        embedding=1024,
        vocabulary=32_000,
        context=8192,
        feed_forward=(256,) * 4,
        heads=(32,) * 4,
        kv_heads=(8,) * 4,
        key_length=128,
        value_length=128,
    )
    return replace(plain, **changes)


DEEPSEEK_V3 = shape(
    architecture="deepseek2",
    embedding=7168,
    feed_forward=(18_432,) * 4,
    heads=(128,) * 4,
    kv_heads=(1,) * 4,
    key_length=576,
    value_length=0,
    latent_rank=512,
    rope_length=64,
    head_key_length=192,
    head_value_length=128,
    experts=256,
    experts_used=8,
    expert_feed_forward=2048,
)
MAMBA2 = shape(
    architecture="mamba2",
    embedding=2560,
    feed_forward=(0,) * 4,
    heads=(0,) * 4,
    kv_heads=(0,) * 4,
    key_length=0,
    value_length=0,
    recurrent=(True,) * 4,
    state_bytes=4 * (3 * (5120 + 256) + 128 * 5120),
    state_groups=1,
    state_size=128,
    state_width=5120,
    state_heads=80,
)
COHERE2 = shape(
    architecture="cohere2",
    embedding=2048,
    feed_forward=(6144,) * 8,
    heads=(16,) * 8,
    kv_heads=(4,) * 8,
    window=4096,
    windowed=(True, True, True, False) * 2,
)
GEMMA3N = shape(
    architecture="gemma3n",
    layers=30,
    embedding=2048,
    feed_forward=(6144,) * 30,
    heads=(8,) * 30,
    kv_heads=(2,) * 20 + (0,) * 10,
    key_length=256,
    value_length=256,
    window=512,
    windowed=(True, True, True, True, False) * 6,
)


def ungated(architecture, heads=16, kv_heads=16, **fields):
    """Of a feed-forward without a gate."""
    kinds = {"heads": (heads,) * 4, "kv_heads": (kv_heads,) * 4, "feed_forward": (6144,) * 4, "embedding": 2048}
    return shape(architecture=architecture, **{**kinds, **fields})


FALCON = ungated("falcon", 71, 1, embedding=4544, feed_forward=(18_176,) * 4, key_length=64, value_length=64)
MOE = shape(feed_forward=(0,) * 4, heads=(8,) * 4, kv_heads=(4,) * 4, key_length=64, value_length=64, experts=64)


@pytest.mark.parametrize(
    ("model", "asked", "measured"),
    [
        pytest.param(shape(), {}, 30.02, id="queries are the widest"),
        pytest.param(shape(heads=(64,) * 4), {}, 46.02, id="twice the heads"),
        pytest.param(shape(kv_heads=(32,) * 4), {}, 46.02, id="as many keys as queries"),
        pytest.param(shape(), {"flash_attention": False, "context": 512}, 63.01, id="scores of a short context"),
        pytest.param(shape(), {"flash_attention": False, "context": 32_768}, 2142.01, id="scores of a long one"),
        pytest.param(replace(MOE, experts_used=8, expert_feed_forward=2048), {}, 110.02, id="experts, wide"),
        pytest.param(
            replace(MOE, embedding=2048, experts_used=8, expert_feed_forward=768), {}, 92.02, id="experts, narrow"
        ),
        pytest.param(DEEPSEEK_V3, {}, 410.01, id="a latent cache, 128 heads"),
        pytest.param(DEEPSEEK_V3, {"flash_attention": False, "context": 32_768}, 8662.01, id="its scores"),
        pytest.param(MAMBA2, {}, 79.23, id="recurrent"),
        pytest.param(MAMBA2, {"parallel": 4, "context": 16_384}, 86.91, id="recurrent, four slots"),
        pytest.param(MAMBA2, {"parallel": 8, "context": 4096}, 114.66, id="recurrent, eight slots"),
        pytest.param(MAMBA2, {"parallel": 8, "context": 4096, "ubatch": 64}, 47.58, id="its states, a small batch"),
        pytest.param(MAMBA2, {"parallel": 4, "context": 2048, "ubatch": 128}, 36.91, id="four slots, a small batch"),
        pytest.param(COHERE2, {}, 68.03, id="attention beside the dense part"),
        pytest.param(GEMMA3N, {}, 111.03, id="four residuals"),
        pytest.param(GEMMA3N, {"ubatch": 64}, 13.85, id="four residuals, a small batch"),
        pytest.param(MAMBA2, {"ubatch": 2048}, 309.22, id="recurrent, a large batch"),
        pytest.param(ungated("starcoder2", kv_heads=4), {}, 36.02, id="no gate"),
        pytest.param(ungated("phi2"), {}, 40.02, id="no gate, and attention beside it"),
        pytest.param(FALCON, {}, 92.77, id="no gate, attention beside it, one key for all"),
        pytest.param(
            ungated("gpt2"), {"context": 1024, "flash_attention": False}, 74.01, id="query, key and value as one"
        ),
    ],
)
def test_each_kind_of_block_is_what_the_engine_reserves_for_it(model, asked, measured):
    # What build b11549 said of headers that have nothing but this block in them.
    options = LlamaOptions(**{"context": 4096, **asked})

    assert mib(compute_bytes(model, options)) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("name", "asked", "measured"),
    [
        ("llama31-8b-q4k", {"context": 131_072}, 688.02),
        ("llama31-8b-q4k", {"context": 131_072, "ubatch": 64}, 534.0),
        ("llama31-8b-q4k", {"context": 4096}, 136.02),
        ("gpt-oss-20b-mxfp4", {"context": 131_072}, 428.9),
        ("dsv2-lite-q4k-mla", {"context": 131_072}, 460.01),
        ("granite4-h-micro-q4k", {"context": 32_768}, 120.02),
    ],
)
def test_a_cache_of_f32_is_copied_to_f16_for_every_layer(name, asked, measured):
    options = LlamaOptions(kv_type_k="f32", kv_type_v="f32", **asked)

    assert mib(compute_bytes(headers()[name], options)) == pytest.approx(measured, rel=0.01)


def test_no_more_tokens_are_worked_on_than_the_cache_has_cells():
    model = headers()["llama31-8b-q4k"]

    found = [compute_bytes(model, LlamaOptions(context=200, ubatch=ubatch)) for ubatch in (256, 4096)]

    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("slots", "ubatch", "work", "output"), [(1, 512, 340.77, 0.6), (4, 512, 337.77, 2.38), (1, 2048, 1363.08, 0.6)]
)
def test_with_embeddings_every_token_of_a_batch_has_an_output(slots, ubatch, work, output):
    options = LlamaOptions(context=4096, parallel=slots, ubatch=ubatch, embeddings=True)
    model = headers()["qwen3-8b-q8_0"]

    assert mib(compute_bytes(model, options)) == pytest.approx(work, rel=0.005)
    assert mib(output_bytes(model, options)) == pytest.approx(output, abs=0.01)


@pytest.mark.parametrize(
    ("asked", "total", "each"),
    [
        ({"context": 1000, "parallel": 3}, 1536, 512),
        ({"context": 1024, "parallel": 4}, 1024, 256),
        ({"context": 5000}, 5120, 5120),
        ({"context": 8192, "parallel": 4, "kv_unified": True}, 8192, 8192),
        ({}, 8192, 8192),
    ],
    ids=["three slots are rounded up each", "four fit", "one is rounded up", "one cache for all", "as it was trained"],
)
def test_cells_are_rounded_as_the_engine_rounds_them(asked, total, each):
    found = cells(shape(), LlamaOptions(**asked))

    assert (found.total, found.each) == (total, each)


@settings(max_examples=100, deadline=None)
@given(
    st.deferred(lambda: st.sampled_from(sorted(headers()))),
    st.integers(1, 131_072),
    st.integers(1, 16),
    st.sampled_from(["f16", "q8_0", "q4_0"]),
    st.booleans(),
)
def test_more_never_needs_less(name, context, slots, kind, unified):
    model = headers()[name]
    options = LlamaOptions(context=context, parallel=slots, kv_type_k=kind, kv_type_v=kind, kv_unified=unified)

    def need(**changes):
        return estimate(model, 10 * GIB, replace(options, **changes)).host_bytes

    least = need()
    assert need(context=2 * context) >= least
    assert need(ubatch=1024) >= least
    assert need(kv_type_k="f16", kv_type_v="f16") >= least - 4 * MIB
    assert unified or need(parallel=slots + 1, context=-(-context // slots) * (slots + 1)) >= least


def test_layers_lie_on_two_cards_as_the_engine_lays_them():
    # llama3.2-3B over two equal cards, 32768 tokens: 1920 and 1664 MiB of keys and values were measured.
    found = estimate(headers()["llama32-3b-q4k-tied"], 2 * GIB, LlamaOptions(context=32_768), free=(24 * GIB, 24 * GIB))

    assert [mib(t.bytes) for t in found.terms if t.term == "kv_cache"] == [1920, 1664]


def test_part_of_the_layers_on_a_card_leaves_the_rest_of_their_cache_on_the_host():
    # SmolLM2-360M with 20 of 33 layers on the card, 2048 tokens: 32.5 MiB on the host and 47.5 on the card.
    model = shape(
        layers=32, heads=(15,) * 32, kv_heads=(5,) * 32, key_length=64, value_length=64, feed_forward=(2560,) * 32
    )
    found = estimate(model, 386_400_256, LlamaOptions(context=2048, gpu_layers=20), free=(16 * GIB,))

    assert [(t.where, mib(t.bytes)) for t in found.terms if t.term == "kv_cache"] == [("host", 32.5), ("card 0", 47.5)]


def test_unequal_cards_get_their_share_and_the_last_the_output():
    found = estimate(headers()["llama31-8b-q4k"], 5 * GIB, LlamaOptions(context=4096), free=(8 * GIB, 24 * GIB))

    small, large = found.by_card
    assert small < large / 2
    assert shortages(found, cards=(8 * GIB, 24 * GIB)) == ()


def test_experts_on_the_host_leave_the_card_to_attention():
    model = headers()["qwen3-30b-a3b-q4k"]
    whole = estimate(model, 18 * GIB, LlamaOptions(context=4096), free=(24 * GIB,))
    split = estimate(model, 18 * GIB, LlamaOptions(context=4096, cpu_moe=ALL), free=(24 * GIB,))

    moved = sum(model.weights.experts)
    assert whole.total("weights_gpu0") - split.total("weights_gpu0") == moved
    assert split.total("weights_host_mmap") - whole.total("weights_host_mmap") == moved


def test_a_tied_table_is_on_the_host_and_again_on_the_card():
    model = headers()["llama32-3b-q4k-tied"]
    found = estimate(model, 2 * GIB, LlamaOptions(context=4096), free=(24 * GIB,))

    assert found.total("weights_host_mmap") == model.weights.embedding
    assert found.total("weights_gpu0") == sum(model.weights.layers) + model.weights.embedding


def test_what_a_cpu_lays_out_anew_is_counted_twice_unless_it_does_not():
    model = headers()["llama31-8b-q4k"]

    assert estimate(model, 5 * GIB, LlamaOptions()).total("weights_cpu_repack") == model.weights.repacked_x86
    assert estimate(model, 5 * GIB, LlamaOptions(repack=False)).total("weights_cpu_repack") == 0


@pytest.mark.parametrize(
    ("file_type", "share"),
    [("Q4_K_M", 0.807), ("Q4_0", 1.0), ("Q8_0", 0.0), ("F16", 0.0), ("MXFP4", 0.0), ("", 1.0)],
)
def test_the_second_copy_follows_from_the_file_s_type_where_the_tensors_were_not_read(file_type, share):
    model = replace(headers()["llama31-8b-q4k"], weights=None, file_type=file_type)

    found = estimate(model, 5 * GIB, LlamaOptions())

    # Of 8.03 billion numbers 1.05 billion are the table and the output.
    layers = 5 * GIB * (1 - 1.05 / 8.03)
    assert found.total("weights_cpu_repack") == pytest.approx(share * layers, rel=0.02)


def test_a_tied_table_is_found_by_the_size_of_the_file():
    # llama3.2-3B as Q4_K_M: 1299.38 MiB were kept twice of 1918.35.
    model = replace(headers()["llama32-3b-q4k-tied"], weights=None, file_type="Q4_K_M")

    found = estimate(model, round(1918.35 * MIB), LlamaOptions(context=4096))

    assert mib(found.total("weights_cpu_repack")) == pytest.approx(1299.38, rel=0.1)


def test_projectors_adapters_and_draft_models_are_terms_of_their_own():
    extras = Extras(mmproj_bytes=100 * MIB, adapter_bytes=10 * MIB, draft=shape(), draft_bytes=50 * MIB)

    found = estimate(shape(), GIB, LlamaOptions(context=4096), extras=extras)

    assert mib(found.total("mmproj")) == pytest.approx(140)
    assert mib(found.total("adapters")) == 10
    assert mib(found.total("draft_weights_host_mmap")) == 50
    assert found.total("draft_kv_cache") == found.total("kv_cache")
    assert found.total("draft_engine") == 0


def test_an_unknown_architecture_is_estimated_by_its_size_only_and_says_so(tmp_path):
    data = write_header(tmp_path / "m.gguf", architecture="brand-new")

    found = estimate(shape_of(read_header(Bytes(data))), 10 * GIB, LlamaOptions())

    assert found.notes == (
        "unknown architecture 'brand-new', by the file's size only: what its context takes is not known",
    )
    assert [(t.where, t.bytes, t.basis) for t in found.terms] == [(HOST, 17 * GIB, FILE_SIZE)]


def test_where_the_tensors_were_read_the_weights_rest_on_the_header():
    options = LlamaOptions(context=4096)
    model = headers()["llama31-8b-q4k"]

    def bases(of):
        return {t.basis for t in estimate(of, 5 * GIB, options, free=(24 * GIB,)).terms if "weights" in t.term}

    assert bases(model) == {HEADER}
    assert bases(replace(model, weights=None)) == {FILE_SIZE}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"kv_type_v": "q8_0", "flash_attention": False}, "values in fewer bits need it"),
        ({"kv_type_k": "q2_k"}, "can be asked for"),
        ({"parallel": 0}, "0 slots"),
    ],
)
def test_what_the_engine_would_not_start_with_is_refused(asked, words):
    with pytest.raises(Refused, match="cannot be run like that") as refused:
        estimate(shape(), GIB, LlamaOptions(**asked))

    assert words in refused.value.why


def test_an_adapter_s_shape_has_no_layers_and_a_lie_about_them_is_refused(tmp_path):
    with pytest.raises(Refused, match="cannot be believed"):
        shape_of(
            read_header(Bytes(write_header(tmp_path / "m.gguf", {"block_count": 4_000_000_000, "embedding_length": 1})))
        )


def test_the_real_engine_s_process_never_has_more_than_was_said_and_not_much_less():
    # One of the runs of `make fidelity`, with a short prompt.
    run = measure(2048, 2, "q8_0", tokens=128)

    assert run.ok, run


def test_every_published_shape_has_its_own_weights_to_half_a_percent():
    assert [line.what for line in weight_lines() if not line.ok] == []
    assert published("llama3_8b").layers == 32


def test_what_ran_fits_and_what_was_out_of_memory_does_not():
    assert [line for line in fit_lines() if not line.ok] == []


def test_a_header_that_lists_a_thousandth_of_its_file_is_not_believed():
    model = headers()["llama31-8b-q4k"]
    small = replace(model, weights=replace(model.weights, total=1_000_000, layers=(1,) * 32))

    found = estimate(small, 5 * GIB, LlamaOptions(context=4096), free=(24 * GIB,))

    assert sum(t.bytes for t in found.terms if t.term == "weights_gpu0") > 4 * GIB
