"""Tokens a second of one reply, before anything runs.

A token reads all weights that take part in it once, and each layer costs a
fixed time on a card: so two figures say how quick a card is, and one run on a
node is enough to put its own in place of the second. docs/estimates.md#speed
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmgw.planning.cards import Card
from llmgw.planning.file_types import parts
from llmgw.planning.kv import cells, kv_bytes
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.shape import ModelShape
from llmgw.planning.weights import measured

GB = 1e9
CPU_SHARE = 0.68
"""Of the memory's rate with all cores, where the rate of one core is not known."""
CORE_SHARE = 0.95
THREAD_EXPONENT = 0.9
TOKEN_FIXED_S = 0.005
"""Seconds a token costs on a CPU whatever the model: sampling, scheduling, one pass of the server's loop."""
SLOW_TPS = 15.0
VERY_SLOW_TPS = 5.0
REPLY_TOKENS = 500
"""Of a reply whose time is said: a page."""
HBM_GBS = 1500.0
"""Cards that are quicker than this have stacked memory, and no single reply uses it fully."""
OLD_CAPABILITY = 7.0


@dataclass(frozen=True, slots=True)
class CardSpeed:
    """How quick a card is for one reply."""

    share: float
    """Of its memory's rate that weights are read with."""
    layer_s: float
    """Seconds each layer costs beside reading."""
    expert_layer_s: float
    """The same for a layer with experts."""
    cache_share: float = 0.68
    """Of its memory's rate that keys and values are read with."""

    def a_layer_s(self, shape: ModelShape) -> float:
        """Of a model's layers."""
        return self.expert_layer_s if shape.experts else self.layer_s


NVIDIA = CardSpeed(0.84, 50e-6, 50e-6)
NVIDIA_HBM = CardSpeed(0.60, 100e-6, 100e-6)
NVIDIA_OLD = CardSpeed(0.36, 20e-6, 20e-6)
AMD = CardSpeed(0.86, 70e-6, 100e-6)
APPLE = CardSpeed(0.88, 110e-6, 200e-6, 0.5)
INTEL = CardSpeed(0.82, 120e-6, 120e-6)


def class_of(card: Card) -> CardSpeed:
    """What cards like this one do, before anything was measured on it."""
    if card.vendor == "nvidia":
        if card.bandwidth_gbs >= HBM_GBS:
            return NVIDIA_HBM
        return NVIDIA_OLD if (card.capability or OLD_CAPABILITY) < OLD_CAPABILITY else NVIDIA
    return {"amd": AMD, "apple": APPLE}.get(card.vendor, INTEL)


def read_bytes(shape: ModelShape, file_bytes: int, *, requests: int = 1) -> int:
    """What one step reads of the weights.

    Args:
        shape: of the model.
        file_bytes: of all its parts.
        requests: that are answered in one step: together they use more of the experts than one.
    """
    weights = measured(shape, file_bytes)
    tied = weights.tied or not weights.layers
    read = weights.total - (0 if tied else weights.embedding)
    if not shape.experts or not shape.experts_used or not weights.experts:
        return read
    idle: float = (1 - min(shape.experts_used / shape.experts, 1.0)) ** requests
    return round(read - sum(weights.experts) * idle)


def host_read_bytes(shape: ModelShape, file_bytes: int, options: LlamaOptions) -> int:
    """What one token reads of the host's memory, of a model whose other layers are on cards."""
    weights = measured(shape, file_bytes)
    if not weights.layers or not shape.known:
        return 0
    # The output counts as a layer, and is the first to be on a card.
    on_host = max(shape.layers + 1 - options.gpu_layers, 0)
    used = min(shape.experts_used / shape.experts, 1.0) if shape.experts else 0.0
    read = 0.0
    for layer in range(shape.layers):
        experts = weights.experts[layer] if weights.experts else 0
        if layer < on_host:
            read += weights.layers[layer] - experts + experts * used
        elif layer < options.cpu_moe:
            read += experts * used
    return round(read + (weights.output or weights.embedding) * (options.gpu_layers <= 0))


def cache_bytes(shape: ModelShape, depth: int) -> int:
    """What one token reads of keys and values, so many tokens into its context."""
    if depth <= 0 or not shape.known:
        return 0
    options = LlamaOptions(context=depth, ubatch=1)
    room = cells(shape, options)
    return round(sum(kv_bytes(shape, options)) * depth / max(room.each, 1))


def card_tps(
    shape: ModelShape,
    file_bytes: int,
    speed: CardSpeed,
    *,
    bandwidth_gbs: float,
    depth: int = 0,
    requests: int = 1,
    host_bytes: int = 0,
    host_gbs: float = 0.0,
) -> float | None:
    """Tokens a second of all requests together, or None where a rate is not known.

    Several cards in a layer split work in turn, so they are as quick as one.

    Args:
        shape: of the model.
        file_bytes: of all its parts.
        speed: of the card.
        bandwidth_gbs: of its memory, 10^9 bytes a second.
        depth: tokens of context that each reply is into.
        requests: answered at a time.
        host_bytes: of what a token reads, so much is in the host's memory.
        host_gbs: the rate that is read with.
    """
    if bandwidth_gbs <= 0 or (host_bytes and host_gbs <= 0):
        return None
    on_card = max(read_bytes(shape, file_bytes, requests=requests) - host_bytes, 0)
    rate = bandwidth_gbs * GB
    step_s = on_card / (speed.share * rate) + speed.a_layer_s(shape) * shape.layers
    step_s += requests * cache_bytes(shape, depth) / (speed.cache_share * rate)
    if host_bytes:
        step_s += host_bytes / (host_gbs * GB)
    return requests / step_s if step_s > 0 else None


def active_count(shape: ModelShape, file_bytes: int) -> int:
    """How many weights a token of a prompt is computed with: of experts those it goes to."""
    used = min(shape.experts_used / shape.experts, 1.0) if shape.experts else 0.0
    body = sum(part.count * (used if part.role.startswith("experts") else 1.0) for part in parts(shape))
    ends = 1 if measured(shape, file_bytes).tied else 2
    return round(body + ends * shape.vocabulary * shape.embedding)


def prefill_tps(shape: ModelShape, file_bytes: int, card: Card) -> float | None:
    """Tokens a second of a prompt on a card, which is bound by arithmetic; None where nobody has measured the card.

    Args:
        shape: of the model, all of which is on the card.
        file_bytes: of all its parts.
        card: of its kind.
    """
    if card.prefill_tflops is None or not shape.known:
        return None
    return card.prefill_tflops * 1e12 / (2 * active_count(shape, file_bytes))


ALL_REDUCE_S = 60e-6
"""Seconds a layer costs more where cards have to add up their parts of it, over PCIe."""


def tensor_split_tps(
    shape: ModelShape, file_bytes: int, speed: CardSpeed, *, bandwidth_gbs: float, cards: int
) -> float | None:
    """Tokens a second of one reply where each card reads its part of every tensor at the same time.

    Args:
        shape: of the model.
        file_bytes: of all its parts.
        speed: of one card.
        bandwidth_gbs: of one card's memory.
        cards: that share it.
    """
    if bandwidth_gbs <= 0:
        return None
    reading_s = read_bytes(shape, file_bytes) / cards / (speed.share * bandwidth_gbs * GB)
    step_s = reading_s + (speed.a_layer_s(shape) + ALL_REDUCE_S) * shape.layers
    return 1 / step_s if step_s > 0 else None


def calibrated(
    shape: ModelShape, file_bytes: int, speed: CardSpeed, *, bandwidth_gbs: float, depth: int, measured_tps: float
) -> CardSpeed:
    """The speed of the card that one run was measured on.

    What a layer costs is solved for: it differs most, by driver and host. Where
    the run was quicker than reading alone would be, the share was too low.
    """
    if measured_tps <= 0 or bandwidth_gbs <= 0 or not shape.known:
        return speed
    rate = bandwidth_gbs * GB
    cache_s = cache_bytes(shape, depth) / (speed.cache_share * rate)
    read_s = read_bytes(shape, file_bytes) / (speed.share * rate)
    layers_s = speed.a_layer_s(shape) * shape.layers
    left_s = 1 / measured_tps - cache_s - read_s
    factor = left_s / layers_s
    if factor < LEAST_FACTOR:
        all_of_it = max(1 / measured_tps - cache_s, read_s / 10) / (read_s + LEAST_FACTOR * layers_s)
        return replace(
            speed,
            share=speed.share / all_of_it,
            layer_s=speed.layer_s * LEAST_FACTOR * all_of_it,
            expert_layer_s=speed.expert_layer_s * LEAST_FACTOR * all_of_it,
        )
    return replace(speed, layer_s=speed.layer_s * factor, expert_layer_s=speed.expert_layer_s * factor)


LEAST_FACTOR = 0.02
"""A layer never costs less than this part of what its class says."""


def cpu_read_gbs(*, all_gbs: float, core_gbs: float = 0.0, threads: int = 0) -> float:
    """The rate that so many threads read with; never more than the memory gives, however many there are."""
    if all_gbs <= 0:
        return 0.0
    if core_gbs <= 0 or threads <= 0:
        return CPU_SHARE * all_gbs
    more: float = threads**THREAD_EXPONENT
    return min(CORE_SHARE * core_gbs * more, all_gbs)


def cpu_tps(active_bytes: int, *, all_gbs: float, core_gbs: float = 0.0, threads: int = 0) -> float | None:
    """Tokens a second of one reply on a CPU, or None where a rate was not measured.

    Args:
        active_bytes: of the file, times the share that takes part in a token.
        all_gbs: 10^9 bytes a second with every core reading.
        core_gbs: with one core reading alone.
        threads: that the engine is given.
    """
    return reading_tps(active_bytes, cpu_read_gbs(all_gbs=all_gbs, core_gbs=core_gbs, threads=threads))


def reading_tps(active_bytes: int, read_gbs: float) -> float | None:
    """Tokens a second of one reply on a CPU whose threads read with a rate; None: it is not known.

    Args:
        active_bytes: as `cpu_tps` takes them.
        read_gbs: as `cpu_read_gbs` gives it.
    """
    return 1 / (active_bytes / (read_gbs * GB) + TOKEN_FIXED_S) if read_gbs > 0 and active_bytes > 0 else None


def cpu_bytes(shape: ModelShape, file_bytes: int) -> int:
    """What a token costs a CPU: the whole file, as the constants were measured, less the experts that are idle."""
    weights = measured(shape, file_bytes)
    if not weights.experts or not shape.experts:
        return file_bytes
    idle = sum(weights.experts) * (1 - min(shape.experts_used / shape.experts, 1.0))
    return round(file_bytes * (1 - idle / weights.total))


def cpu_threads(asked: int, node_cpus: int) -> int:
    """Threads of an engine: what its profile has, or half of the node's."""
    return asked if asked > 0 else max(node_cpus // 2, 1)


def pace(tps: float) -> str:
    """What a person would call a speed: very slow, slow, or nothing."""
    return "very slow" if tps < VERY_SLOW_TPS else "slow" if tps < SLOW_TPS else ""


def said(tps: float) -> str:
    """A speed as plans and tables have it."""
    number = f"~{tps:.1f} tok/s" if tps < VERY_SLOW_TPS else f"~{tps:.0f} tok/s"
    return f"{number}, {pace(tps)}" if pace(tps) else number


def reply(tps: float) -> str:
    """How long a reply of `REPLY_TOKENS` takes, in words."""
    seconds = REPLY_TOKENS / tps
    many = round(seconds / 60) if tps < VERY_SLOW_TPS else round(seconds)
    unit = "minute" if tps < VERY_SLOW_TPS else "second"
    return f"a reply of {REPLY_TOKENS} tokens takes about {max(many, 1)} {unit}{'' if max(many, 1) == 1 else 's'}"


def load_s(file_bytes: int, *, disk_gbs: float, mirror_gbs: float | None = None) -> float | None:
    """Seconds until the weights are in memory, or None where a rate was not measured.

    Args:
        file_bytes: of all parts.
        disk_gbs: the node's disk, measured.
        mirror_gbs: of the mirror to this node; None: the node has the files.
    """
    if disk_gbs <= 0 or (mirror_gbs is not None and mirror_gbs <= 0):
        return None
    fetch_s = file_bytes / (mirror_gbs * GB) if mirror_gbs is not None else 0.0
    return fetch_s + file_bytes / (disk_gbs * GB)
