"""What a quantisation makes of a whole model: the mix of types behind a name such as Q4_K_M.

For the weights of a file that is not there to be measured. Where llama.cpp's
mix is simple it is followed tensor by tensor; the others have the bits per
weight that their published Llama-3.1-8B leaves for what is neither the table
of the vocabulary nor the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from llmgw.planning.shape import ModelShape
from llmgw.planning.tables import rows
from llmgw.planning.tensor_types import by_name

BITS = 8

PLAIN_FFN = frozenset({"gpt2", "gptj", "gptneox", "starcoder2", "bloom", "mpt", "falcon", "phi2", "nemotron", "bert"})
"""Their dense part is two matrices, not three."""


@dataclass(frozen=True, slots=True)
class Mix:
    """One line of file_types.csv."""

    name: str
    number: int
    published_bits: float | None
    """Per weight of Llama-3.1-8B, as llama.cpp publishes them."""
    embedding: str
    output: str
    body: str
    """Empty: no one type is most of it."""
    more: str
    """Of the values' and the downward matrices, in the layers that get more bits; of the experts for MXFP4."""


@dataclass(frozen=True, slots=True)
class Part:
    """Matrices of one kind in one layer."""

    role: str
    layer: int
    count: int
    """Numbers."""


@cache
def mixes() -> dict[str, Mix]:
    """Every mix by its name."""
    found = (
        Mix(
            row["name"],
            int(row["id"]),
            float(row["llama_8b_bits"]) if row["llama_8b_bits"] else None,
            row["embedding"],
            row["output"],
            row["body"],
            row["more"],
        )
        for row in rows("file_types")
    )
    return {mix.name: mix for mix in found}


@cache
def _by_number() -> dict[int, str]:
    return {mix.number: mix.name for mix in mixes().values()}


def file_type_name(number: int) -> str:
    """The name of `general.file_type`, or an empty text."""
    return _by_number().get(number, "")


def predicted_bytes(shape: ModelShape, file_type: str, *, tied: bool) -> int | None:
    """What a model's weights take as a mix, or None for one that is not in the table.

    Args:
        shape: of the model.
        file_type: the name of the mix.
        tied: whether the table of the vocabulary is also the output.
    """
    mix = mixes().get(file_type)
    if mix is None or not shape.known:
        return None
    table = shape.vocabulary * shape.embedding
    norms = (2 * shape.layers + 1) * shape.embedding * 4
    ends = table * _bytes_each(mix.output if tied else mix.embedding)
    if not tied:
        ends += table * _bytes_each(mix.output)
    if not mix.body:
        return round(ends + norms + sum(part.count for part in parts(shape)) * _body_bits(mix) / BITS)
    return round(ends + norms + sum(part.count * _bytes_each(_kind(part, mix, shape)) for part in parts(shape)))


def parts(shape: ModelShape) -> Iterator[Part]:
    """The matrices of every layer, whatever quantisation they are in."""
    wide = 2 if shape.architecture in PLAIN_FFN else 3
    for layer in range(shape.layers):
        queries = shape.heads[layer] * (shape.head_key_length or shape.key_length)
        heads, values = shape.kv_heads[layer], shape.value_length or shape.head_value_length
        yield Part("attention", layer, shape.embedding * (queries + heads * shape.key_length))
        yield Part("attention", layer, shape.embedding * shape.heads[layer] * values)
        yield Part("values", layer, shape.embedding * heads * values)
        if shape.experts and not shape.feed_forward[layer]:
            each = shape.experts * shape.embedding * shape.expert_feed_forward
            yield Part("router", layer, shape.experts * shape.embedding)
            yield Part("experts", layer, 2 * each)
            yield Part("experts_down", layer, each)
            yield Part("ffn", layer, 3 * shape.embedding * shape.shared_feed_forward)
        else:
            each = shape.embedding * shape.feed_forward[layer]
            yield Part("ffn", layer, (wide - 1) * each)
            yield Part("down", layer, each)


def body_kind(file_type: str) -> str:
    """The type that most of a mix is in, or an empty text for one that is not in the table."""
    mix = mixes().get(file_type)
    return (mix.body or mix.embedding) if mix is not None else ""


def share_of_body(shape: ModelShape) -> float:
    """The part of all layers' bytes that is in the type most of them are in."""
    mix = mixes().get(shape.file_type)
    if mix is None or not mix.body or not mix.more:
        return 1.0
    of_body = all_of_it = 0.0
    for part in parts(shape):
        kind = _kind(part, mix, shape)
        size = part.count * _bytes_each(kind)
        all_of_it += size
        of_body += size if kind == mix.body or (mix.name == "MXFP4" and kind == mix.more) else 0
    return of_body / all_of_it if all_of_it else 1.0


def _kind(part: Part, mix: Mix, shape: ModelShape) -> str:
    if part.role == "router":
        return "F32"
    if mix.name == "MXFP4":
        return mix.more if part.role.startswith("experts") else mix.body
    if not mix.more or part.role not in ("values", "down", "experts_down"):
        return mix.body
    if gets_more(part.layer, shape.layers):
        return mix.more
    # With one head of values for eight of queries they are few and worth a bit: llama.cpp does it for 80 layers.
    if part.role == "values" and shape.layers >= 80 and shape.heads[part.layer] == 8 * shape.kv_heads[part.layer]:
        return "Q5_K"
    return mix.body


def gets_more(layer: int, layers: int) -> bool:
    """Whether a layer gets more bits: the first and last eighth, and each third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _bytes_each(kind: str) -> float:
    return by_name()[kind].bytes_each


LLAMA_8B = ModelShape(
    architecture="llama",
    layers=32,
    embedding=4096,
    vocabulary=128_256,
    context=131_072,
    feed_forward=(14_336,) * 32,
    heads=(32,) * 32,
    kv_heads=(8,) * 32,
    key_length=128,
    value_length=128,
)
"""What the published bits per weight are of."""


@cache
def _body_bits(mix: Mix) -> float:
    """Bits per weight of what is neither end."""
    table = LLAMA_8B.vocabulary * LLAMA_8B.embedding
    body = sum(part.count for part in parts(LLAMA_8B))
    norms = (2 * LLAMA_8B.layers + 1) * LLAMA_8B.embedding
    all_bits = (mix.published_bits or 0) * (2 * table + body + norms)
    ends = table * (_bytes_each(mix.embedding) + _bytes_each(mix.output)) * BITS
    return (all_bits - ends - norms * 32) / body
