"""Where a model's weights lie: on the host, on cards, and twice where a CPU lays them out anew."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw.planning.file_types import body_kind, parts, predicted_bytes, share_of_body
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.shape import ModelShape, WeightBytes
from llmgw.planning.tensor_types import ARM, X86, by_name


@dataclass(frozen=True, slots=True)
class Layout:
    """Which layers of a model are on which card."""

    host_layers: tuple[int, ...]
    cards: tuple[tuple[int, ...], ...]
    """The layers of each card, in order."""
    output_on: int | None
    """The card that has the output. None: the host has it."""

    @property
    def on_host(self) -> bool:
        """Whether nothing is on a card."""
        return not any(self.cards) and self.output_on is None


def layout(shape: ModelShape, options: LlamaOptions, free: tuple[int, ...]) -> Layout:
    """Layers to cards, as llama.cpp does it: the last ones, by each card's share.

    Args:
        shape: of the model.
        options: `-ngl`, `-ts` and `-sm`.
        free: bytes that are free on each card; none: all is on the host.
    """
    count = shape.layers + 1
    wanted = min(options.gpu_layers, count) if free else 0
    if wanted <= 0:
        return Layout(tuple(range(shape.layers)), (), None)
    first = count - wanted
    shares = options.tensor_split or tuple(float(size) for size in free)
    if options.split == "none":
        shares = (1.0,)
    total = sum(shares) or 1.0
    ends = [sum(shares[: n + 1]) / total for n in range(len(shares))]
    cards: list[list[int]] = [[] for _ in shares]
    for layer in range(first, count):
        # The first card whose share ends after this layer's place among those that are moved.
        at = next((n for n, end in enumerate(ends) if (layer - first) / wanted < end), len(shares) - 1)
        cards[at].append(layer)
    output = next(n for n, layers in enumerate(cards) if shape.layers in layers)
    return Layout(tuple(range(first)), tuple(tuple(n for n in layers if n < shape.layers) for layers in cards), output)


def measured(shape: ModelShape, file_bytes: int) -> WeightBytes:
    """The weights by part: as the header lists them, or spread over the figures of the shape.

    A header that lists less than half of its file is not believed.
    """
    if not shape.known:
        return WeightBytes(total=file_bytes)
    listed = shape.weights
    if listed is not None and len(listed.layers) == shape.layers and 2 * listed.total >= file_bytes:
        return listed
    table = shape.vocabulary * shape.embedding
    by_layer = [0] * shape.layers
    by_experts = [0] * shape.layers
    for part in parts(shape):
        by_layer[part.layer] += part.count
        by_experts[part.layer] += part.count * part.role.startswith("experts")
    ends = 1 if _tied(shape, file_bytes) else 2
    each = file_bytes / max(ends * table + sum(by_layer), 1)
    return WeightBytes(
        total=file_bytes,
        embedding=round(table * each),
        output=round(table * each) if ends == 2 else 0,
        layers=tuple(round(count * each) for count in by_layer),
        experts=tuple(round(count * each) for count in by_experts) if any(by_experts) else (),
        repacked_x86=_repacked(shape, X86, round(sum(by_layer) * each)),
        repacked_arm=_repacked(shape, ARM, round(sum(by_layer) * each)),
    )


def _tied(shape: ModelShape, file_bytes: int) -> bool:
    """Whether the size of the file is nearer to that of a model whose table is also its output."""
    tied, apart = (predicted_bytes(shape, shape.file_type, tied=tied) for tied in (True, False))
    return tied is not None and apart is not None and abs(file_bytes - tied) < abs(file_bytes - apart)


def _repacked(shape: ModelShape, cpu: str, layer_bytes: int) -> int:
    """What a CPU lays out anew of a model whose tensors were not read: of an unknown mix, all of it."""
    kind = by_name().get(body_kind(shape.file_type))
    if kind is not None and cpu not in kind.repacked:
        return 0
    return round(layer_bytes * share_of_body(shape))


def host_experts(weights: WeightBytes, options: LlamaOptions, layers: tuple[int, ...]) -> int:
    """Bytes of the experts that stay on the host although their layers are on a card."""
    return sum(weights.experts[n] for n in layers if n < options.cpu_moe) if weights.experts else 0


def repacked_bytes(weights: WeightBytes, options: LlamaOptions, host_bytes: int) -> int:
    """The second copy of what the CPU computes with.

    Args:
        weights: of the whole model.
        options: whether it is made, and for which CPU.
        host_bytes: weights of layers and output that the host computes with.
    """
    if not options.repack:
        return 0
    all_of_it = weights.repacked_arm if options.cpu == ARM else weights.repacked_x86
    computed = weights.total - weights.embedding
    return round(all_of_it * min(host_bytes / computed, 1.0)) if computed > 0 else 0
