"""A safetensors model: its config.json, its index, and the headers of its files."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from llmgw.errors import Refused
from llmgw.planning.shape import MOST_LAYERS, ModelShape, WeightBytes
from llmgw.planning.source import ByteSource

MOST_TEXT_BYTES = 5_000_000
"""Of a configuration, or of one file's list of tensors: that of 35,000. Read, it takes up to 25 times as much."""
MOST_INDEX_BYTES = 16_000_000
"""Of an index: one of 140,000 tensors was 14 MB long. Only the names of files are taken out of it."""
MOST = 1 << 40

KV_HEADS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
HEADS = ("num_attention_heads", "n_head", "n_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTHS = ("hidden_size", "n_embd", "d_model")
HEAD_LENGTHS = ("head_dim", "hidden_size_per_head")
EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
EXPERTS_USED = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "top_k")
LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_target_positions", "max_sequence_length", "max_seq_length", "seq_len"),
)
UNSCALED_ROPES = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "mrope", "default"})
"""With these the length that is written is already the stretched one."""
DEFAULT_LENGTH = 2048
"""What vLLM takes where a config says none."""
WITHOUT_ANSWERS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
"""How classes are called that give vectors or ranks, and no text."""
LINEAR = frozenset({"linear_attention", "mamba", "mamba2", "recurrent", "conv"})
PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}
"""Each so-manieth layer looks at everything, of configs that say neither this nor the kind of each layer."""
ALL_WINDOWED = frozenset({"mistral", "mixtral", "phi3", "starcoder2"})
"""Models of which every layer looks through the window."""
WINDOWED = frozenset({"sliding_attention", "chunked_attention", "local", "sliding"})


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What the first bytes of a .safetensors file list."""

    tensor_bytes: int
    by_dtype: tuple[tuple[str, int], ...]
    """How many numbers there are of each type, most first."""


def plain_json(text: bytes, name: str) -> dict[str, Any]:
    """The object that a JSON file is.

    Raises:
        Refused: it is none.
    """
    if len(text) > MOST_TEXT_BYTES:
        raise _unreadable(name, f"it is more than {MOST_TEXT_BYTES} bytes long")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        why = "it is nested too deeply" if isinstance(e, RecursionError) else "it is not JSON"
        raise _unreadable(name, why) from None
    if not isinstance(found, dict):
        raise _unreadable(name, "it is not an object")
    return found


def shape_of_config(config: Mapping[str, Any], *, weight_bytes: int | None = None) -> ModelShape:
    """The shape of a model from its config.json.

    Args:
        config: as it is written; of a model that also sees, the part about text counts.
        weight_bytes: of all its files together, where that is known.

    Raises:
        Refused: its figures cannot be.
    """
    keys = _Keys(config)
    weights = WeightBytes(total=weight_bytes) if weight_bytes is not None else None
    name = keys.text("model_type") or keys.first_text("architectures")
    layers, width, heads = keys.whole(*LAYERS), keys.whole(*WIDTHS), keys.whole(*HEADS)
    method, kind = _quantization(config)
    base = ModelShape(
        architecture=name,
        format="safetensors",
        quantization=method,
        file_type=kind,
        dtype=keys.text("dtype") or keys.text("torch_dtype"),
        answers=not keys.first_text("architectures").endswith(WITHOUT_ANSWERS),
        weights=weights,
    )
    if layers > MOST_LAYERS:
        raise _unreadable("config.json", f"it says it has {layers} layers")
    if not layers or not width or not (heads or any(_layer_kinds(keys, layers)[0])):
        # Without these nothing can be said of its cache: its size alone counts.
        return base
    latent, rope = keys.whole("kv_lora_rank"), keys.whole("qk_rope_head_dim")
    head = keys.whole(*HEAD_LENGTHS) or (width // heads if heads else 0)
    recurrent, windowed = _layer_kinds(keys, layers)
    window = keys.whole("sliding_window", "attention_chunk_size") if any(windowed) else 0
    own = 1 if latent else keys.whole(*KV_HEADS) or heads
    experts = keys.whole(*EXPERTS)
    shape = replace(
        base,
        layers=layers,
        embedding=width,
        vocabulary=keys.whole("vocab_size"),
        context=_length(keys),
        feed_forward=_dense(keys, layers, keys.whole("intermediate_size", "n_inner", "ffn_dim") or 4 * width),
        heads=(heads,) * layers,
        kv_heads=tuple(0 if recurrent and recurrent[n] else own for n in range(layers)),
        key_length=latent + rope if latent else head,
        value_length=0 if latent else head,
        window=window,
        windowed=windowed if window else (),
        latent_rank=latent,
        rope_length=rope if latent else 0,
        head_key_length=keys.whole("qk_nope_head_dim") + rope if latent else 0,
        head_value_length=keys.whole("v_head_dim") if latent else 0,
        recurrent=recurrent,
        experts=experts,
        experts_used=keys.whole(*EXPERTS_USED),
        expert_feed_forward=keys.whole("moe_intermediate_size", "intermediate_size") if experts else 0,
        shared_feed_forward=keys.whole("shared_expert_intermediate_size")
        or keys.whole("n_shared_experts") * keys.whole("moe_intermediate_size"),
    )
    return replace(shape, state_bytes=_state_bytes(keys)) if any(recurrent) else shape


def total_size(index: Mapping[str, Any]) -> int | None:
    """The bytes of all tensors that `model.safetensors.index.json` speaks of; None where it does not say."""
    metadata = index.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return size if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= 1 << 50 else None


def index_files(index: bytes) -> tuple[str, ...]:
    """The files that the tensors are in, of an index as it is written.

    Raises:
        Refused: it is longer than any index is.
    """
    if len(index) > MOST_INDEX_BYTES:
        raise _unreadable("the index", f"it is more than {MOST_INDEX_BYTES} bytes long")
    names = {found[1] for found in re.finditer(rb':\s*"([^"\\/]{1,200}\.safetensors)"', index)}
    return tuple(sorted(name.decode(errors="replace") for name in names))


def read_file_header(source: ByteSource) -> FileHeader:
    """What one .safetensors file holds.

    Raises:
        Refused: it is no such file, or not to be believed.
    """
    first = source.read(0, 8)
    if len(first) < 8:
        raise _unreadable("the safetensors file", f"it is {len(first)} bytes long")
    (length,) = struct.unpack("<Q", first)
    if not 2 <= length <= MOST_TEXT_BYTES:
        raise _unreadable("the safetensors file", f"it says its header has {length} bytes")
    text = source.read(8, length)
    if len(text) < length:
        raise _unreadable("the safetensors file", f"it ends after {8 + len(text)} bytes, inside its own header")
    return _listed(plain_json(text, "the header of the safetensors file"))


def _listed(header: Mapping[str, Any]) -> FileHeader:
    size, counts = 0, dict[str, int]()
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        span = _naturals(tensor.get("data_offsets")) if isinstance(tensor, dict) else None
        dims = _naturals(tensor.get("shape")) if isinstance(tensor, dict) else None
        if span is None or dims is None or len(span) != 2 or span[1] < span[0]:
            raise _unreadable("the safetensors file", f"it does not say where {str(name)[:64]!r} is")
        size += span[1] - span[0]
        kind = str(tensor.get("dtype"))[:16]
        counts[kind] = counts.get(kind, 0) + prod(dims)
    return FileHeader(size, tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))))


def _naturals(value: Any) -> list[int] | None:
    fits = isinstance(value, list) and all(type(part) is int and 0 <= part <= 1 << 50 for part in value)
    return value if fits else None


class _Keys:
    """A config's keys: those about its text first."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        of_text = [config[name] for name in ("text_config", "llm_config") if isinstance(config.get(name), dict)]
        self._layers: tuple[Mapping[str, Any], ...] = (*of_text, config)

    def value(self, *names: str) -> Any:
        """The first of these keys that is there and not null."""
        for layer in self._layers:
            for name in names:
                if layer.get(name) is not None:
                    return layer[name]
        return None

    def whole(self, *names: str) -> int:
        """A whole number, or 0."""
        found = self.value(*names)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return 0
        if not 0 <= found <= MOST:
            raise _unreadable("config.json", f"its {names[0]} is {str(found)[:64]}")
        return int(found)

    def text(self, name: str) -> str:
        found = self.value(name)
        return found[:64] if isinstance(found, str) else ""

    def texts(self, *names: str) -> tuple[str, ...]:
        found = self.value(*names)
        return tuple(str(part) for part in found[:MOST_LAYERS]) if isinstance(found, list) else ()

    def first_text(self, name: str) -> str:
        return next(iter(self.texts(name)), "")[:64]


def _layer_kinds(keys: _Keys, layers: int) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Which layers keep a state, and which look through a window."""
    kinds = keys.texts("layer_types", "layers_block_type")
    if len(kinds) >= layers:
        recurrent = tuple(kind in LINEAR for kind in kinds[:layers])
        windowed = tuple(kind in WINDOWED for kind in kinds[:layers])
        return (recurrent if any(recurrent) else ()), windowed
    period = keys.whole("full_attention_interval")
    recurrent = tuple((n + 1) % period != 0 for n in range(layers)) if period else ()
    if keys.value("use_sliding_window") is False or not keys.whole("sliding_window"):
        return recurrent, (False,) * layers
    kind = keys.text("model_type")
    period = keys.whole("sliding_window_pattern") or PERIODS.get(kind, 0)
    if not period:
        # Where nothing says which layers look through it, all of them keep everything.
        return recurrent, (kind in ALL_WINDOWED,) * layers
    return recurrent, tuple((n + 1) % period != 0 for n in range(layers))


def _dense(keys: _Keys, layers: int, width: int) -> tuple[int, ...]:
    """The width of each layer's dense part: none where it has experts in its place."""
    if not keys.whole(*EXPERTS):
        return (width,) * layers
    first = keys.whole("first_k_dense_replace")
    step = max(keys.whole("interleave_moe_layer_step", "decoder_sparse_step"), 1)
    return tuple(width if layer < first or (layer + 1) % step else 0 for layer in range(layers))


def _length(keys: _Keys) -> int:
    found = [size for name in LENGTHS if (size := keys.whole(name))]
    length = min(found, default=DEFAULT_LENGTH)
    rope = keys.value("rope_scaling")
    if not isinstance(rope, dict) or "gemma3" in keys.text("model_type"):
        return length
    kind, factor = rope.get("rope_type") or rope.get("type"), rope.get("factor")
    stretches = isinstance(factor, int | float) and 1 <= factor <= 1024 and kind not in UNSCALED_ROPES
    return int(length * factor) if stretches and isinstance(factor, int | float) else length


def _state_bytes(keys: _Keys) -> int:
    """Of one recurrent layer and one sequence, as the engines keep it: f32."""
    if values := keys.whole("linear_num_value_heads"):
        size = keys.whole("linear_key_head_dim")
        inner, groups = values * keys.whole("linear_value_head_dim"), keys.whole("linear_num_key_heads")
        kernel = keys.whole("linear_conv_kernel_dim") or 4
    else:
        size, groups = keys.whole("mamba_d_state", "ssm_state_size"), keys.whole("mamba_n_groups", "n_groups") or 1
        inner = keys.whole("mamba_n_heads", "mamba_num_heads") * keys.whole("mamba_d_head", "mamba_head_dim")
        inner = inner or keys.whole("mamba_expand") * keys.whole(*WIDTHS)
        kernel = keys.whole("mamba_d_conv", "conv_kernel") or 4
    return 4 * ((kernel - 1) * (inner + 2 * groups * size) + size * inner)


def _quantization(config: Mapping[str, Any]) -> tuple[str, str]:
    """How it is quantised, and the finer kind where the method has several."""
    for key in ("quantization_config", "compression_config"):
        found = config.get(key)
        if isinstance(found, dict):
            method = str(found.get("quant_method") or key.removesuffix("_config"))[:32].lower()
            kind = str(found.get("quant_algo") or found.get("format") or "")[:32].lower()
            bits = found.get("bits")
            return method, kind or (f"w{bits}a16" if isinstance(bits, int) else "")
    return "", ""


def _unreadable(name: str, why: str) -> Refused:
    return Refused(f"{name} cannot be read", why=why, do="fetch it again, or name a model in another format")
