"""A model's shape is read from either kind of file, and comes back from its lock as it went in."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from headers import LLAMA, write_header
from hypothesis import given
from hypothesis import strategies as st

from bench.fidelity.points import headers
from llmgw.errors import Refused
from llmgw.planning.gguf import read_header
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.kv import kv_bytes, state_bytes
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.shape import ModelShape, from_facts, to_facts
from llmgw.planning.source import Bytes


def read(path, keys, architecture="llama", **changes):
    return shape_of(
        read_header(Bytes(write_header(path / "m.gguf", {**LLAMA, **keys}, architecture=architecture, **changes)))
    )


@pytest.mark.parametrize("name", sorted(headers()))
def test_facts_give_the_shape_back_and_are_plain(name):
    shape = headers()[name]

    facts = json.loads(json.dumps(to_facts(shape)))

    assert from_facts(facts) == shape
    for value in facts.values():
        assert all(
            isinstance(part, bool | int | float | str) for part in (value if isinstance(value, list) else [value])
        )


@given(
    st.dictionaries(
        st.sampled_from([*to_facts(headers()["gpt-oss-20b-mxfp4"]), "weights.total", "x"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers() | st.text(max_size=2)),
    )
)
def test_facts_that_were_not_written_by_us_are_refused_or_read_and_never_a_crash(facts):
    # Anything but these two would fail the test.
    with suppress(Refused):
        assert isinstance(from_facts({"architecture": "llama", "layers": 3, **facts}), ModelShape)


@pytest.mark.parametrize(
    "facts",
    [
        {"kv_heads": [1, 2]},
        {"weights.experts": [1], "weights.layers": [1, 2, 3], "weights.total": 9},
        {"layers": -1},
        {"layers": 10**6},
        {"architecture": 7},
        {"heads": [-1, 0, 0]},
        {"weights.layers": 4},
    ],
)
def test_facts_that_contradict_themselves_are_refused(facts):
    with pytest.raises(Refused, match="cannot be understood"):
        from_facts({"architecture": "llama", "layers": 3, **facts})


def test_facts_of_a_later_version_are_passed_over():
    facts = {"architecture": "llama", "layers": 3, "heads": 8, "kv_heads": 2, "feed_forward": 64}

    assert from_facts({**facts, "colour": "blue", "speed": 3.5}) == from_facts(facts)


@pytest.mark.parametrize("missing", ["heads", "kv_heads", "feed_forward"])
def test_facts_that_lack_what_every_layer_has_are_refused(missing):
    facts = {"architecture": "llama", "layers": 3, "heads": 8, "kv_heads": 2, "feed_forward": 64}

    with pytest.raises(Refused) as refused:
        from_facts({name: value for name, value in facts.items() if name != missing})

    assert refused.value.why == f"they have no {missing}"


EXPERTS = {"expert_count": 16, "expert_used_count": 2, "expert_feed_forward_length": 64}


def test_a_layer_has_experts_or_a_dense_part(tmp_path):
    assert read(tmp_path, EXPERTS).feed_forward == (0, 0, 0, 0)
    assert read(tmp_path, EXPERTS | {"leading_dense_block_count": 1}).feed_forward == (1024, 0, 0, 0)
    assert read(tmp_path, EXPERTS | {"interleave_moe_layer_step": 2}, "llama4").feed_forward == (1024, 0, 1024, 0)


def test_one_part_of_a_set_does_not_weigh_the_whole(tmp_path):
    tensors = [(f"blk.{n}.attn_q.weight", (256, 256), "Q4_K") for n in range(4)]

    assert read(tmp_path, {}, tensors=tensors).weights.total == 4 * 36_864
    assert read(tmp_path, {}, tensors=tensors, general={"split.count": 2}).weights is None


def test_heads_of_keys_and_values_may_differ_by_layer(tmp_path):
    shape = read(tmp_path, {"attention.head_count_kv": [2, 0, 2, 0]})

    assert shape.kv_heads == (2, 0, 2, 0)


def test_the_length_of_a_head_is_not_always_the_width_over_the_heads(tmp_path):
    assert read(tmp_path, {}).key_length == 32
    assert read(tmp_path, {"attention.key_length": 128, "attention.value_length": 96}).value_length == 96


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        pytest.param("gemma3", {"attention.sliding_window": 512}, "wwwwwf", id="gemma3: each sixth sees all"),
        pytest.param("gpt-oss", {"attention.sliding_window": 128}, "wfwfwf", id="gpt-oss: each second"),
        pytest.param("cohere2moe", {"attention.sliding_window": 4096}, "fwwwfw", id="the first of each four"),
        pytest.param("phi3", {"attention.sliding_window": 2047}, "ffffff", id="phi3 writes one and has none"),
        pytest.param("llama", {}, "ffffff", id="none"),
        pytest.param(
            "gemma4",
            {"attention.sliding_window": 512, "attention.sliding_window_pattern": [True, False] * 3},
            "wfwfwf",
            id="a list in the file",
        ),
    ],
)
def test_windows_are_where_the_architecture_has_them(tmp_path, architecture, keys, expected):
    shape = read(tmp_path, {"block_count": 6, **keys}, architecture)

    assert "".join("w" if windowed else "f" for windowed in shape.windowed or (False,) * 6) == expected


MLA = {
    "attention.kv_lora_rank": 512,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "rope.dimension_count": 64,
    "attention.head_count": 16,
    "attention.head_count_kv": 1,
}


def test_a_latent_cache_keeps_one_key_for_all_heads(tmp_path):
    shape = read(tmp_path, MLA | {"attention.key_length_mla": 192, "attention.value_length_mla": 128}, "deepseek2")

    # DeepSeek-V2-Lite's 27 layers take 31,104 bytes a token.
    assert sum(kv_bytes(shape, LlamaOptions(context=256))) // 256 * 27 // 4 == 31_104


def test_a_file_from_before_the_latent_cache_keeps_all_heads_in_full(tmp_path):
    old = MLA | {"attention.head_count_kv": 16, "attention.key_length": 192, "attention.value_length": 128}

    shape = read(tmp_path, old, "deepseek2")

    assert (shape.latent_rank, shape.kv_heads[0], shape.key_length) == (0, 16, 192)


SSM = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 4096,
    "ssm.state_size": 128,
    "ssm.group_count": 16,
    "ssm.time_step_rank": 32,
}


@pytest.mark.parametrize(
    ("architecture", "keys", "recurrent", "kept"),
    [
        pytest.param("qwen3next", SSM, (True, True, True, False), (0, 0, 0, 2), id="all but each fourth"),
        pytest.param(
            "granitehybrid",
            SSM | {"attention.head_count_kv": [0, 2, 0, 0]},
            (True, False, True, True),
            (0, 2, 0, 0),
            id="those without heads",
        ),
        pytest.param("falcon-h1", SSM, (True,) * 4, (2,) * 4, id="both in every layer"),
        pytest.param(
            "mamba2",
            SSM | {"attention.head_count": 0, "attention.head_count_kv": 0},
            (True,) * 4,
            (0,) * 4,
            id="all, and no cache",
        ),
        pytest.param(
            "nemotron_h",
            SSM | {"attention.head_count_kv": [0, 2, 0, 0], "feed_forward_length": [0, 0, 512, 0]},
            (True, False, False, True),
            (0, 2, 0, 0),
            id="a layer is one of three things",
        ),
    ],
)
def test_recurrent_layers_are_where_the_architecture_has_them(tmp_path, architecture, keys, recurrent, kept):
    shape = read(tmp_path, keys, architecture)

    assert (shape.recurrent, shape.kv_heads) == (recurrent, kept)


def test_a_state_is_kept_per_slot_whatever_the_context(tmp_path):
    shape = read(tmp_path, SSM, "qwen3next")

    # Qwen3-Next-80B: 75.38 MiB a sequence in 36 layers.
    one = sum(state_bytes(shape, LlamaOptions(context=256)))
    assert one * 12 / 2**20 == pytest.approx(75.38, abs=0.01)
    assert sum(state_bytes(shape, LlamaOptions(context=65_536, parallel=4))) == 4 * one


def test_layers_that_read_what_others_kept_or_guess_ahead_keep_nothing(tmp_path):
    assert read(tmp_path, {"attention.shared_kv_layers": 1}, "gemma4").kv_heads == (2, 2, 2, 0)
    assert read(tmp_path, {"nextn_predict_layers": 1}, "glm4moe").kv_heads == (2, 2, 2, 0)


def test_a_model_that_reads_both_ways_keeps_nothing(tmp_path):
    shape = read(tmp_path, {}, "bert")

    assert (shape.causal, sum(kv_bytes(shape, LlamaOptions()))) == (False, 0)


def test_the_vocabulary_is_counted_where_no_key_says_it(tmp_path):
    keys = {name: value for name, value in LLAMA.items() if name != "vocab_size"}
    data = write_header(tmp_path / "m.gguf", keys, tokens=77)

    assert shape_of(read_header(Bytes(data))).vocabulary == 77


@pytest.mark.parametrize("name", ["attention.head_count_kv", "feed_forward_length"])
def test_fewer_figures_than_layers_are_refused(tmp_path, name):
    with pytest.raises(Refused, match="cannot be believed"):
        read(tmp_path, {name: [1, 2]})


def test_a_missing_key_leaves_a_shape_of_which_only_the_size_is_known(tmp_path):
    data = write_header(tmp_path / "m.gguf", {"block_count": 4})

    assert not shape_of(read_header(Bytes(data))).known


def test_equal_layers_are_one_fact():
    shape = headers()["llama31-8b-q4k"]

    assert to_facts(shape)["kv_heads"] == 8
    assert from_facts(to_facts(replace(shape, weights=None))).weights is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), [1.0, float("inf"), 1.0, 1.0]], ids=str)
@pytest.mark.parametrize("name", ["block_count", "context_length", "attention.head_count_kv", "feed_forward_length"])
def test_figures_that_are_no_whole_numbers_are_refused(tmp_path, name, value):
    with pytest.raises(Refused, match="cannot be believed"):
        read(tmp_path, {name: value})


@pytest.mark.parametrize(("layers", "windowed"), [(30, 0), (64, 48)])
def test_of_exaone4_only_the_large_one_looks_through_a_window(tmp_path, layers, windowed):
    shape = read(tmp_path, {"block_count": layers}, architecture="exaone4")

    assert sum(shape.windowed) == windowed
