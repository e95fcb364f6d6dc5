"""What planning needs to know of a model, whatever file it was read from.

The lock of a model carries it (`facts` in `locks/NAME.yaml`), so a plan is made
without the file. The keys are documented in docs/estimates.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields

from llmgw.errors import Refused

Plain = bool | int | float | str
Facts = dict[str, Plain | list[Plain]]

MOST_LAYERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """What the weights take, by where an engine can put them."""

    total: int
    """Of all tensors."""
    embedding: int = 0
    """The table of the vocabulary: on the host, whatever is on cards."""
    output: int = 0
    """What makes tokens of the last layer. With tied embeddings the table does, and this is 0."""
    layers: tuple[int, ...] = ()
    """Of each layer, its experts included."""
    experts: tuple[int, ...] = ()
    """Of each layer's experts. Empty: there are none."""
    repacked_x86: int = 0
    """Of the tensors that a CPU lays out anew, and keeps twice."""
    repacked_arm: int = 0

    @property
    def tied(self) -> bool:
        """Whether the table of the vocabulary serves at both ends."""
        return self.output == 0


PER_LAYER = ("feed_forward", "heads", "kv_heads")
"""What every known shape has of each of its layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model's figures, per layer where layers differ."""

    architecture: str
    format: str = "gguf"
    """gguf or safetensors."""
    layers: int = 0
    """0: nothing is known but the file's size."""
    embedding: int = 0
    vocabulary: int = 0
    context: int = 0
    """Tokens it was trained for."""
    feed_forward: tuple[int, ...] = ()
    """The width of each layer's dense part. 0: it has experts in its place, or none."""
    heads: tuple[int, ...] = ()
    kv_heads: tuple[int, ...] = ()
    """Heads of keys and values that a layer keeps of its own: 0 for one that keeps none, or another's."""
    key_length: int = 0
    value_length: int = 0
    """0 with a latent cache: one key stands for both."""
    window: int = 0
    """Tokens that a windowed layer looks back. 0: there are no such layers."""
    windowed: tuple[bool, ...] = ()
    window_key_length: int = 0
    """Of windowed layers, where it is another."""
    window_value_length: int = 0
    latent_rank: int = 0
    """Of a compressed cache of keys and values (MLA). 0: it has none."""
    rope_length: int = 0
    head_key_length: int = 0
    """Of one head, with a latent cache."""
    head_value_length: int = 0
    indexer_key_length: int = 0
    """Of the keys that a sparse attention picks by, in each layer with a cache."""
    recurrent: tuple[bool, ...] = ()
    """Layers that keep a state per sequence."""
    state_bytes: int = 0
    """Of one recurrent layer and one sequence."""
    delta_heads: int = 0
    """Heads of a gated delta net; 0: the recurrent layers are of another kind."""
    state_groups: int = 0
    state_size: int = 0
    state_width: int = 0
    state_heads: int = 0
    experts: int = 0
    experts_used: int = 0
    expert_feed_forward: int = 0
    shared_feed_forward: int = 0
    causal: bool = True
    """False: it reads both ways, keeps nothing and gives embeddings."""
    answers: bool = True
    """False: it gives vectors or ranks, so no speed of a reply is told of it."""
    file_type: str = ""
    """The quantisation of most of it: Q4_K_M, BF16, fp8."""
    dtype: str = ""
    """What it computes in, where the file says: bfloat16."""
    quantization: str = ""
    """How a safetensors model is quantised: awq, gptq, fp8, compressed-tensors. Empty: it is not."""
    parts: int = 1
    """Files it was split over."""
    weights: WeightBytes | None = None
    """None: the tensors were not read, and the files' size stands for them."""

    @property
    def known(self) -> bool:
        """Whether more is known than the size of the file."""
        return self.layers > 0

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The numbers of the layers that keep keys and values."""
        return tuple(n for n, heads in enumerate(self.kv_heads) if heads)

    @property
    def recurrent_layers(self) -> int:
        """How many layers keep a state."""
        return sum(self.recurrent)


def to_facts(shape: ModelShape) -> Facts:
    """A shape as flat scalars and lists of them. What is as usual is left out; equal layers are one number."""
    facts: Facts = {}
    for name, value, default in _parts(shape):
        if name == "weights":
            continue
        if value != default:
            facts[name] = _plain(value)
    if shape.weights is not None:
        for name, value, default in _parts(shape.weights):
            if value != default:
                facts[f"weights.{name}"] = _plain(value)
    return facts


def from_facts(facts: Mapping[str, object]) -> ModelShape:
    """The shape that `to_facts` wrote.

    Raises:
        Refused: the facts were not written by it. Unknown ones are of a later version, and are passed over.
    """
    layers = facts.get("layers", 0)
    if not isinstance(layers, int) or not 0 <= layers <= MOST_LAYERS:
        raise _wrong("layers", layers)
    given = {name: value for name, value in facts.items() if "." not in name}
    weights = {name.partition(".")[2]: value for name, value in facts.items() if name.startswith("weights.")}
    if "architecture" not in given or (weights and "total" not in weights):
        raise _wrong("architecture" if "architecture" not in given else "weights.total", None)
    shape = {name: _typed(ModelShape, name, value, layers) for name, value in given.items()}
    held = {name: _typed(WeightBytes, name, value, layers) for name, value in weights.items()}
    kept = {name: value for name, value in shape.items() if value is not None}
    counted = {name: value for name, value in held.items() if value is not None}
    of_weights = WeightBytes(**counted) if counted else None  # type: ignore[arg-type]
    if of_weights is not None and len(of_weights.experts) not in (0, len(of_weights.layers)):
        raise _wrong("weights.experts", weights["experts"])
    if of_weights is not None and 0 < len(of_weights.layers) < layers:
        raise _wrong("weights.layers", weights.get("layers"))
    found = ModelShape(**kept, weights=of_weights)  # type: ignore[arg-type]
    for name in PER_LAYER if found.known else ():
        if len(getattr(found, name)) != layers:
            raise _wrong(name, facts.get(name))
    return found


def _parts(value: ModelShape | WeightBytes) -> list[tuple[str, object, object]]:
    return [(f.name, getattr(value, f.name), None if f.default is MISSING else f.default) for f in fields(value)]


def _plain(value: object) -> Plain | list[Plain]:
    if isinstance(value, tuple):
        return value[0] if len(set(value)) == 1 else [int(part) for part in value]
    assert isinstance(value, bool | int | float | str)
    return value


def _typed(of: type[ModelShape | WeightBytes], name: str, value: object, layers: int) -> object:
    """A fact as its field has it, or None for one this version does not know."""
    declared = {f.name: str(f.type) for f in fields(of)}.get(name)
    if declared is None or name == "weights":
        return None
    if declared.startswith("tuple"):
        many = isinstance(value, Sequence) and not isinstance(value, str)
        listed = list(value) if many and isinstance(value, Sequence) else [value] * layers
        # Of weights there may be more layers than are run: those that guess ahead.
        counted = len(listed) <= MOST_LAYERS if of is WeightBytes else len(listed) in (0, layers)
        if not counted or not all(isinstance(part, int) and part >= 0 for part in listed):
            raise _wrong(name, value)
        return tuple(bool(part) if "bool" in declared else int(part) for part in listed if isinstance(part, int))
    fits = {
        "int": isinstance(value, int) and value >= 0,
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
    }
    if not fits.get(declared, False):
        raise _wrong(name, value)
    return value


def _wrong(name: str, value: object) -> Refused:
    return Refused(
        "the facts of a model cannot be understood",
        why=f"{name} is {str(value)[:64]!r}" if value is not None else f"they have no {name}",
        do="run `llmgw lock` again for this model",
    )
