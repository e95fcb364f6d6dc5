"""A safetensors model is read from its config, its index and its files' first bytes."""

import json
import struct

import pytest

from llmgw.errors import Refused
from llmgw.planning.safetensors import index_files, plain_json, read_file_header, shape_of_config, total_size
from llmgw.planning.source import Bytes
from llmgw.planning.vllm import VllmOptions, needs
from llmgw.units import GIB

QWEN3_30B = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151_936,
    "max_position_embeddings": 262_144,
    "torch_dtype": "bfloat16",
}


def test_a_config_gives_the_shape():
    shape = shape_of_config(QWEN3_30B, weight_bytes=61_000_000_000)

    assert (shape.architecture, shape.format, shape.dtype) == ("qwen3_moe", "safetensors", "bfloat16")
    assert (shape.layers, shape.kv_heads[0], shape.key_length, shape.context) == (48, 4, 128, 262_144)
    assert (shape.experts, shape.experts_used, shape.expert_feed_forward) == (128, 8, 768)
    assert shape.weights.total == 61_000_000_000


def test_the_part_about_text_comes_first():
    config = {"model_type": "seeing", "hidden_size": 1, "num_hidden_layers": 1, "text_config": QWEN3_30B}

    assert shape_of_config(config).embedding == 2048


@pytest.mark.parametrize(
    ("keys", "context"),
    [
        ({"max_position_embeddings": 4096, "seq_length": 2048}, 2048),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}, "max_position_embeddings": 4096}, 16_384),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "max_position_embeddings": 131_072}, 131_072),
        ({"max_position_embeddings": None}, 2048),
    ],
    ids=["the least of several", "stretched", "written as stretched", "none"],
)
def test_the_longest_context_is_what_vllm_would_take(keys, context):
    assert shape_of_config({**QWEN3_30B, **keys}).context == context


def test_windows_and_states_are_read_by_layer():
    kinds = ["linear_attention", "full_attention", "sliding_attention", "full_attention"]
    config = {
        **QWEN3_30B,
        "num_hidden_layers": 4,
        "layer_types": kinds,
        "sliding_window": 1024,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }

    shape = shape_of_config(config)

    assert shape.kv_heads == (0, 4, 4, 4)
    assert shape.windowed == (False, False, True, False)
    assert shape.state_bytes * 36 / 2**20 == pytest.approx(75.38, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "windowed"), [("gemma2", 24), ("gemma3_text", 40), ("mistral", 48), ("made-tomorrow", 0)]
)
def test_where_a_config_does_not_say_which_layers_have_the_window_no_cache_is_said_too_small(kind, windowed):
    shape = shape_of_config({**QWEN3_30B, "model_type": kind, "sliding_window": 1024})

    assert sum(shape.windowed) == windowed


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads"])
@pytest.mark.parametrize("value", [None, "32", [32]], ids=["missing", "a text", "a list"])
def test_a_config_without_what_its_cache_follows_from_is_taken_by_its_size(key, value):
    shape = shape_of_config({**QWEN3_30B, key: value}, weight_bytes=10 * GIB)

    found = needs(shape, 10 * GIB, VllmOptions(), on_cpu=True)

    assert not shape.known
    assert found.host_bytes >= 17 * GIB
    assert "by the file's size only" in found.notes[0]


def test_a_window_that_is_switched_off_is_none():
    shape = shape_of_config({**QWEN3_30B, "sliding_window": 4096, "use_sliding_window": False})

    assert shape.window == 0


def test_a_latent_cache_is_one_key():
    keys = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}

    shape = shape_of_config({**QWEN3_30B, **keys})

    assert (shape.kv_heads[0], shape.key_length, shape.value_length) == (1, 576, 0)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, ("awq", "w4a16")),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized"}},
            ("compressed-tensors", "float-quantized"),
        ),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, ("modelopt", "nvfp4")),
        ({}, ("", "")),
    ],
)
def test_the_quantisation_is_named(config, expected):
    shape = shape_of_config({**QWEN3_30B, **config})

    assert (shape.quantization, shape.file_type) == expected


def test_an_index_says_how_much_there_is_and_where():
    index = {"metadata": {"total_size": 123}, "weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors"}}

    assert total_size(index) == 123
    assert index_files(json.dumps(index).encode()) == ("model-1.safetensors", "model-2.safetensors")
    assert total_size({"metadata": {"total_size": -1}}) is None


def packed(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def test_a_file_s_header_gives_its_bytes_and_its_types():
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]},
        "b": {"dtype": "F8_E4M3", "shape": [10], "data_offsets": [64, 74]},
    }

    found = read_file_header(Bytes(packed(header) + bytes(74)))

    assert (found.tensor_bytes, found.by_dtype) == (74, (("BF16", 32), ("F8_E4M3", 10)))


HOSTILE = {
    "nothing": b"",
    "a header without end": struct.pack("<Q", 1 << 60),
    "cut short": packed({"a": 1})[:-2],
    "no JSON": struct.pack("<Q", 4) + b"nope",
    "a list": packed([1]),
    "a tensor without a place": packed({"a": {"dtype": "F16", "shape": [1]}}),
    "a place that ends before it begins": packed({"a": {"dtype": "F16", "shape": [1], "data_offsets": [9, 1]}}),
    "a shape of words": packed({"a": {"dtype": "F16", "shape": ["x"], "data_offsets": [0, 1]}}),
    "deep": struct.pack("<Q", 200_000) + b"[" * 200_000,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_with_what_to_do(data):
    with pytest.raises(Refused) as refused:
        read_file_header(Bytes(data))

    assert refused.value.do


@pytest.mark.parametrize("text", [b"", b"[", b"[]", b"{" * 100_000, b"\xff\xfe"])
def test_a_config_that_is_none_is_refused(text):
    with pytest.raises(Refused):
        plain_json(text, "config.json")


@pytest.mark.parametrize(
    "wrong", [{"num_hidden_layers": 10**9}, {"hidden_size": -1}, {"vocab_size": 1e300}, {"head_dim": float("nan")}]
)
def test_figures_that_cannot_be_are_refused(wrong):
    with pytest.raises(Refused):
        shape_of_config({**QWEN3_30B, **wrong})


def test_a_config_of_something_else_has_only_a_name():
    assert not shape_of_config({"architectures": ["Strange"]}).known


@pytest.mark.parametrize("read", [lambda text: plain_json(text, "config.json"), index_files], ids=["config", "index"])
def test_what_is_longer_than_any_such_file_is_not_read(read):
    with pytest.raises(Refused, match="cannot be read"):
        read(b" " * 16_000_001)


def test_a_list_of_tensors_that_would_fill_the_memory_is_not_read():
    with pytest.raises(Refused):
        read_file_header(Bytes(packed({"a": [[]] * 2_000_000})))
