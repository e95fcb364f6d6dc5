"""Where a model's weights lie: on the host, on cards, and twice where a CPU lays them out anew."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw.planning.file_types import parts
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.shape import ModelShape, WeightBytes
from llmgw.planning.tensor_types import ARM


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
    """The weights by part: as the header lists them, or spread over the figures of the shape."""
    if shape.weights is not None and len(shape.weights.layers) == shape.layers:
        return shape.weights
    if not shape.known:
        return WeightBytes(total=file_bytes)
    table = shape.vocabulary * shape.embedding
    by_layer = [0] * shape.layers
    by_experts = [0] * shape.layers
    for part in parts(shape):
        by_layer[part.layer] += part.count
        by_experts[part.layer] += part.count * part.role.startswith("experts")
    each = file_bytes / max(2 * table + sum(by_layer), 1)
    return WeightBytes(
        total=file_bytes,
        embedding=round(table * each),
        output=round(table * each),
        layers=tuple(round(count * each) for count in by_layer),
        experts=tuple(round(count * each) for count in by_experts) if any(by_experts) else (),
    )


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
