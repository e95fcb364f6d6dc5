"""The shape of a model from its GGUF header."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from llmgw.errors import Refused
from llmgw.planning.architectures import Architecture, Recurrent, architecture
from llmgw.planning.file_types import file_type_name
from llmgw.planning.gguf import Header, Passed, Tensor, Value
from llmgw.planning.shape import MOST_LAYERS, ModelShape, WeightBytes
from llmgw.planning.tensor_types import ARM, X86, by_number

MOST = 1 << 40
"""No figure of a shape is larger."""


def shape_of(header: Header) -> ModelShape:
    """What a header says of its model.

    An architecture that is not in the table, or a header without the usual
    keys, gives a shape with no layers: only the file's size is known then.

    Raises:
        Refused: the header's figures cannot be.
    """
    keys = Keys(header.values, header.architecture)
    known = architecture(header.architecture)
    # Of a set, one file has its own tensors only.
    weights = weigh(header.tensors) if header.tensors and header.parts == 1 else None
    file_type = file_type_name(keys.whole("general.file_type", default=-1, own=False))
    layers = keys.whole("block_count")
    if known is None or layers <= 0 or not keys.whole("embedding_length"):
        return ModelShape(architecture=header.architecture, file_type=file_type, parts=header.parts, weights=weights)
    if layers > MOST_LAYERS:
        raise impossible("block_count", layers)
    return _shape(keys, known, layers, header, weights, file_type)


@dataclass(frozen=True, slots=True)
class Keys:
    """A header's keys, those of its architecture by their own names."""

    values: dict[str, Value]
    architecture: str

    def whole(self, name: str, *, default: int = 0, own: bool = True) -> int:
        """A whole number; of an array its largest part."""
        found = self.values.get(f"{self.architecture}.{name}" if own else name, default)
        parts = found if isinstance(found, tuple) else (found,)
        numbers = [part for part in parts if isinstance(part, int | float)]
        # A file may write infinity, or no number at all: neither is a whole one.
        for number in numbers:
            if not -MOST <= number <= MOST:
                raise impossible(name, number)
        most = int(max(numbers, default=default))
        if most < -1:
            raise impossible(name, most)
        return most

    def each(self, name: str, layers: int, default: int) -> tuple[int, ...]:
        """A number per layer, written once or for each."""
        found = self.values.get(f"{self.architecture}.{name}", default)
        if isinstance(found, tuple):
            numbers = [part for part in found if isinstance(part, int | float)]
            if len(numbers) < layers:
                raise impossible(name, f"{len(numbers)} figures")
            for number in numbers:
                if not 0 <= number <= MOST:
                    raise impossible(name, number)
            return tuple(int(number) for number in numbers[:layers])
        if not isinstance(found, int | float) or not 0 <= found <= MOST:
            raise impossible(name, found)
        return (int(found),) * layers

    def vocabulary(self) -> int:
        """How many tokens it knows."""
        tokens = self.values.get("tokenizer.ggml.tokens")
        count = tokens.count if isinstance(tokens, Passed) else len(tokens) if isinstance(tokens, tuple) else 0
        return self.whole("vocab_size", default=count)


def impossible(name: str, value: object) -> Refused:
    """Refuses a header whose figures contradict themselves."""
    return Refused(
        "the model's header cannot be believed",
        why=f"its {name} is {str(value)[:64]}",
        do="fetch the file again, and compare its checksum",
    )


def _shape(
    keys: Keys, known: Architecture, layers: int, header: Header, weights: WeightBytes | None, file_type: str
) -> ModelShape:
    embedding = keys.whole("embedding_length")
    heads = keys.each("attention.head_count", layers, 0)
    most_heads = max(heads, default=0)
    kv_heads = keys.each("attention.head_count_kv", layers, most_heads)
    head = embedding // most_heads if most_heads else 0
    key, value = (keys.whole(f"attention.{part}_length", default=head) for part in ("key", "value"))
    feed_forward = keys.each("feed_forward_length", layers, 0)
    latent = keys.whole("attention.kv_lora_rank")
    mla = (keys.whole("attention.key_length_mla"), keys.whole("attention.value_length_mla"))
    # A file of before these two keys keeps all heads in full, whatever its architecture is called.
    is_latent = bool(latent and mla[0] and mla[1])
    rope = keys.whole("rope.dimension_count", default=key)
    recurrent = _recurrent(keys, known, layers, kv_heads, feed_forward)
    causal = known.cache and keys.values.get(f"{known.name}.attention.causal", True) is not False
    owned = _owned(keys, known, layers, kv_heads, recurrent, is_latent=is_latent) if causal else (0,) * layers
    window, windowed = _window(keys, known, layers)
    own_window = bool(window)
    shape = ModelShape(
        architecture=known.name,
        layers=layers,
        embedding=embedding,
        vocabulary=keys.vocabulary() or _rows(header.tensors, "token_embd.weight"),
        context=keys.whole("context_length"),
        feed_forward=_dense(keys, feed_forward),
        heads=heads,
        kv_heads=owned,
        key_length=latent + rope if is_latent else key,
        value_length=0 if is_latent else value,
        window=window,
        windowed=windowed,
        window_key_length=keys.whole("attention.key_length_swa") if own_window else 0,
        window_value_length=keys.whole("attention.value_length_swa") if own_window else 0,
        latent_rank=latent if is_latent else 0,
        rope_length=rope if is_latent else 0,
        head_key_length=mla[0] if is_latent else 0,
        head_value_length=mla[1] if is_latent else 0,
        indexer_key_length=keys.whole("attention.indexer.key_length"),
        recurrent=recurrent,
        experts=keys.whole("expert_count"),
        experts_used=keys.whole("expert_used_count"),
        expert_feed_forward=_expert_width(keys, feed_forward),
        shared_feed_forward=_shared_width(keys),
        causal=causal,
        answers=causal and keys.whole("pooling_type") <= 0,
        file_type=file_type,
        parts=header.parts,
        weights=weights,
    )
    return _with_state(shape, keys, known) if any(recurrent) else shape


def _dense(keys: Keys, feed_forward: tuple[int, ...]) -> tuple[int, ...]:
    """The width of each layer's dense part: none where it has experts in its place."""
    if not keys.whole("expert_count"):
        return feed_forward
    first = keys.whole("leading_dense_block_count")
    step = max(keys.whole("interleave_moe_layer_step"), keys.whole("moe_every_n_layers"), 1)
    return tuple(width if layer < first or (layer + 1) % step else 0 for layer, width in enumerate(feed_forward))


def _expert_width(keys: Keys, feed_forward: tuple[int, ...]) -> int:
    if not keys.whole("expert_count"):
        return 0
    return keys.whole("expert_feed_forward_length", default=max(feed_forward, default=0))


def _shared_width(keys: Keys) -> int:
    each = keys.whole("expert_shared_feed_forward_length", default=keys.whole("expert_feed_forward_length"))
    return each * keys.whole("expert_shared_count", default=int("expert_shared_feed_forward_length" in _own(keys)))


def _own(keys: Keys) -> set[str]:
    return {name.partition(".")[2] for name in keys.values if name.startswith(f"{keys.architecture}.")}


def _recurrent(
    keys: Keys, known: Architecture, layers: int, kv_heads: tuple[int, ...], feed_forward: tuple[int, ...]
) -> tuple[bool, ...]:
    match known.recurrent:
        case Recurrent.NONE:
            return ()
        case Recurrent.EVERY | Recurrent.ONLY:
            return (True,) * layers
        case Recurrent.NO_KV:
            return tuple(heads == 0 for heads in kv_heads)
        case Recurrent.NO_KV_NO_FFN:
            pairs = zip(kv_heads, feed_forward, strict=True)
            return tuple(heads == 0 and width == 0 for heads, width in pairs)
        case Recurrent.DELTA:
            listed = keys.values.get(f"{known.name}.attention.recurrent_layers")
            if isinstance(listed, tuple) and len(listed) >= layers:
                return tuple(bool(part) for part in listed[:layers])
            period = keys.whole("full_attention_interval", default=4)
            return tuple((n + 1) % period != 0 for n in range(layers)) if period > 0 else (False,) * layers


def _owned(
    keys: Keys,
    known: Architecture,
    layers: int,
    kv_heads: tuple[int, ...],
    recurrent: tuple[bool, ...],
    *,
    is_latent: bool,
) -> tuple[int, ...]:
    """The heads of keys and values that each layer keeps itself."""
    heads = tuple(min(1, n) for n in kv_heads) if is_latent else kv_heads
    if known.recurrent is Recurrent.ONLY:
        return (0,) * layers
    if known.recurrent is not Recurrent.EVERY and recurrent:
        heads = tuple(0 if state else n for n, state in zip(heads, recurrent, strict=True))
    # The last layers read what earlier ones kept, and those for predicting further tokens are not loaded.
    shared = keys.whole("attention.shared_kv_layers")
    if known.name == "gemma3n" and not shared:
        shared = max(layers - GEMMA3N_OWN_LAYERS, 0)
    ahead = keys.whole("nextn_predict_layers")
    own = max(layers - max(shared, 0) - max(ahead, 0), 0)
    return tuple(n if layer < own else 0 for layer, n in enumerate(heads))


GEMMA3N_OWN_LAYERS = 20
"""Of gemma3n only these keep keys and values, in files that do not say how many."""


EXAONE4_WINDOWED_LAYERS = 64
"""Of exaone4 only the model with so many has windows; of smaller ones the engine windows nothing."""


def _window(keys: Keys, known: Architecture, layers: int) -> tuple[int, tuple[bool, ...]]:
    if known.name == "exaone4" and layers != EXAONE4_WINDOWED_LAYERS:
        return 0, ()
    window = keys.whole("attention.sliding_window", default=known.window)
    if known.name == "llama4":
        window = keys.whole("attention.chunk_size", default=window)
    pattern = keys.values.get(f"{known.name}.attention.sliding_window_pattern")
    if isinstance(pattern, tuple) and len(pattern) >= layers:
        windowed = tuple(bool(part) for part in pattern[:layers])
    else:
        period = pattern if isinstance(pattern, int) and pattern > 0 else known.window_period
        windowed = tuple(known.windowed(layer, int(period)) for layer in range(layers))
    return (window, windowed) if window > 0 and any(windowed) else (0, ())


def _with_state(shape: ModelShape, keys: Keys, known: Architecture) -> ModelShape:
    """The same shape, with the figures of its recurrent layers."""
    kernel, inner = keys.whole("ssm.conv_kernel"), keys.whole("ssm.inner_size")
    size, groups = keys.whole("ssm.state_size"), keys.whole("ssm.group_count")
    rank = keys.whole("ssm.time_step_rank")
    numbers = max(kernel - 1, 0) * (inner + 2 * groups * size) + size * inner
    if short := keys.whole("shortconv.l_cache"):
        numbers = shape.embedding * (short - 1)
    elif head := keys.whole("wkv.head_size"):
        numbers = keys.whole("token_shift_count", default=2) * shape.embedding + shape.embedding * head
    elif head := keys.whole("kda.head_dim"):
        heads = keys.whole("attention.head_count")
        numbers = heads * head * head + max(kernel - 1, 0) * 3 * heads * head
    return replace(
        shape,
        state_bytes=4 * numbers,
        delta_heads=rank if known.recurrent is Recurrent.DELTA else 0,
        state_groups=groups,
        state_size=size,
        state_width=inner,
        state_heads=rank,
    )


def weigh(tensors: Iterable[Tensor]) -> WeightBytes | None:
    """What tensors take, by where they can be put; None where the type of one is unknown."""
    total = embedding = output = 0
    repacked = dict.fromkeys((X86, ARM), 0)
    layers: dict[int, int] = {}
    experts: dict[int, int] = {}
    for tensor in tensors:
        size = tensor.bytes
        if size is None:
            return None
        total += size
        if tensor.name.startswith("token_embd."):
            embedding += size
            continue
        layer = _layer(tensor.name)
        if layer is None:
            output += size if tensor.name.startswith("output.") else 0
        else:
            layers[layer] = layers.get(layer, 0) + size
            if "_exps." in tensor.name or "_chexps." in tensor.name:
                experts[layer] = experts.get(layer, 0) + size
        for cpu in by_number()[tensor.kind].repacked if len(tensor.shape) > 1 else ():
            repacked[cpu] += size
    count = max(layers, default=-1) + 1
    return WeightBytes(
        total=total,
        embedding=embedding,
        output=output,
        layers=tuple(layers.get(n, 0) for n in range(count)),
        experts=tuple(experts.get(n, 0) for n in range(count)) if experts else (),
        repacked_x86=repacked[X86],
        repacked_arm=repacked[ARM],
    )


def _layer(name: str) -> int | None:
    start, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if start == "blk" and number.isascii() and number.isdigit() and len(number) <= 4 else None


def _rows(tensors: Iterable[Tensor] | None, name: str) -> int:
    return next((t.shape[-1] for t in tensors or () if t.name == name), 0)
