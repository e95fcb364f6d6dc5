"""A GGUF file's header: its keys, and its tensors where they were reached.

Our own reader, because the header is had over an HTTP range: the first 64 KiB
give the shape, and only who wants the tensors pays for the vocabulary that
lies between. Versions 2 and 3, either byte order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import prod

from llmgw.planning.gguf_bytes import Damaged, HeaderBytes
from llmgw.planning.source import ByteSource
from llmgw.planning.tensor_types import by_number

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS = 4096
MOST_TENSORS = 1 << 17
MOST_KEY_BYTES = 1024
MOST_TEXT_BYTES = 4096
"""Longer texts are passed over: they are chat templates and licences."""
MOST_KEPT = 4096
"""Longer arrays are passed over: they are vocabularies. A figure per layer is shorter."""
MOST_TEXTS = 4 << 20
MOST_DIMENSIONS = 4
MOST_NESTED = 4

_TEXT, _ARRAY, _BOOL = 8, 9, 7
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Passed:
    """A value that was passed over, and how many parts it has."""

    count: int


Value = Scalar | tuple[Scalar, ...] | Passed


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, as the header lists it."""

    name: str
    shape: tuple[int, ...]
    """As ggml counts: the length of a row first."""
    kind: int
    """The number of its type. One that is not in the table is of a later build."""

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)

    @property
    def bytes(self) -> int | None:
        """What it takes, or None where its type is unknown."""
        kind = by_number().get(self.kind)
        return kind.bytes_of(self.shape) if kind else None


@dataclass(frozen=True, slots=True)
class Header:
    """What the first bytes of a file say of it."""

    version: int
    values: dict[str, Value] = field(hash=False)
    tensors: tuple[Tensor, ...] | None
    """None: they come after a vocabulary that was not read."""
    tensor_count: int
    bytes: int
    """How far was read into the file; where the tensors were reached, where their infos end."""

    @property
    def architecture(self) -> str:
        """Its architecture, or an empty text."""
        found = self.values.get("general.architecture", "")
        return found if isinstance(found, str) else ""

    @property
    def kind(self) -> str:
        """What the file is: `model`, `adapter` or `mmproj`."""
        if self.values.get("general.type") == "adapter" or "adapter.type" in self.values:
            return "adapter"
        projector = self.architecture == "clip" or self.values.get("general.type") == "mmproj"
        return "mmproj" if projector else "model"

    @property
    def parts(self) -> int:
        """How many files the model was split over; 1 where it was not."""
        found = self.values.get("split.count", 1)
        return max(found, 1) if isinstance(found, int) else 1


def read_header(source: ByteSource, *, tensors: bool = False) -> Header:
    """The header of a GGUF file.

    What is in the first bytes is read to its end. Beyond them it is read on
    while a key of the shape is missing, or as far as the tensors if they are
    asked for.

    Raises:
        Damaged: not a GGUF file, cut short, or not to be believed.
    """
    data = HeaderBytes(source)
    version = _start(data)
    tensor_count, key_count = data.number("Q"), data.number("Q")
    if tensor_count > MOST_TENSORS or key_count > MOST_KEYS:
        raise Damaged(f"it says it has {tensor_count} tensors and {key_count} keys, and no model has so many")
    values: dict[str, Value] = {}
    for _ in range(key_count):
        key = _key(data)
        if not _value(data, key, values, stop=not tensors):
            return Header(version, values, None, tensor_count, data.position)
    if not tensors and not data.holds(tensor_count * 32) and _has_shape(values):
        return Header(version, values, None, tensor_count, data.position)
    found = tuple(_tensor(data) for _ in range(tensor_count))
    return Header(version, values, found, tensor_count, data.position)


def _start(data: HeaderBytes) -> int:
    magic = data.take(4)
    if magic != MAGIC:
        raise Damaged("it does not begin with GGUF", do="name a file in GGUF format")
    raw = data.take(4)
    little, big = struct.unpack("<I", raw)[0], struct.unpack(">I", raw)[0]
    if little in VERSIONS:
        return int(little)
    if big in VERSIONS:
        data.order = ">"
        return int(big)
    raise Damaged(f"it is of version {min(little, big)}, and 2 and 3 are read", do="convert it with today's llama.cpp")


def _has_shape(values: dict[str, Value]) -> bool:
    """Whether everything that planning cannot do without is there."""
    name = values.get("general.architecture")
    if values.get("general.type") == "adapter" or name == "clip":
        return True
    needed = (f"{name}.block_count", f"{name}.embedding_length", f"{name}.context_length")
    vocabulary = f"{name}.vocab_size" in values or "tokenizer.ggml.tokens" in values
    return vocabulary and all(key in values for key in needed)


def _key(data: HeaderBytes) -> str:
    length = data.number("Q")
    if not 0 < length <= MOST_KEY_BYTES:
        raise Damaged(f"at byte {data.position} it has a name of {length} bytes")
    return data.take(length).decode("utf-8", "replace")


def _value(data: HeaderBytes, key: str, values: dict[str, Value], *, stop: bool) -> bool:
    """Read the value of a key; or say no, where reading on is not worth it: it is long, and the shape is there."""
    kind = data.number("I")
    if kind in _CODES:
        values[key] = _number(data, _CODES[kind])
        return True
    if kind == _TEXT:
        length = data.number("Q")
        if length <= MOST_TEXT_BYTES:
            values[key] = data.take(length).decode("utf-8", "replace")
            return True
        values[key] = Passed(length)
        if stop and not data.holds(length) and _has_shape(values):
            return False
        data.skip(length)
        return True
    if kind == _ARRAY:
        return _array(data, key, values, stop=stop)
    raise Damaged(f"the key {key[:64]!r} is of the unknown type {kind}")


def _array(data: HeaderBytes, key: str, values: dict[str, Value], *, stop: bool) -> bool:
    kind, count = data.number("I"), data.number("Q")
    values[key] = Passed(count)
    if kind in _CODES:
        code = _CODES[kind]
        size = struct.calcsize("=" + code) * count
        if count <= MOST_KEPT:
            values[key] = tuple(_number(data, code) for _ in range(count))
            return True
        if stop and not data.holds(size) and _has_shape(values):
            return False
        data.skip(size)
        return True
    if kind == _TEXT and count <= MOST_TEXTS:
        # A text is at least its length: what does not fit even so is not walked through.
        if stop and not data.holds(count * 8) and _has_shape(values):
            return False
        data.skip_texts(count)
        return True
    if kind == _ARRAY and count <= MOST_KEPT:
        _skip_nested(data, count, depth=1)
        return True
    raise Damaged(f"the key {key[:64]!r} is an array of {count} parts of type {kind}, which none is")


def _skip_nested(data: HeaderBytes, count: int, *, depth: int) -> None:
    if depth > MOST_NESTED:
        raise Damaged(f"its arrays are more than {MOST_NESTED} deep")
    for _ in range(count):
        kind, inner = data.number("I"), data.number("Q")
        if inner > MOST_KEPT or (kind not in _CODES and kind not in (_TEXT, _ARRAY)):
            raise Damaged(f"at byte {data.position} it has an array of {inner} parts of type {kind} in another")
        if kind == _ARRAY:
            _skip_nested(data, inner, depth=depth + 1)
        elif kind == _TEXT:
            data.skip_texts(inner)
        else:
            data.skip(struct.calcsize("=" + _CODES[kind]) * inner)


def _number(data: HeaderBytes, code: str) -> Scalar:
    value: Scalar = struct.unpack(data.order + code, data.take(struct.calcsize("=" + code)))[0]
    return value


def _tensor(data: HeaderBytes) -> Tensor:
    name = _key(data)
    dimensions = data.number("I")
    if not 0 < dimensions <= MOST_DIMENSIONS:
        raise Damaged(f"the tensor {name[:64]!r} has {dimensions} dimensions")
    shape = tuple(data.number("Q") for _ in range(dimensions))
    if prod(shape) >= 1 << 48:
        raise Damaged(f"the tensor {name[:64]!r} says it has {prod(shape)} numbers")
    kind = data.number("I")
    data.skip(8)  # where it begins in the file: nothing here reads it
    return Tensor(name, shape, kind)
