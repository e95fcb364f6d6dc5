"""The lines of the table: each a set of measurements, our errors on it, and what they must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.fidelity.peers import gguf_parser_kv, gguf_parser_work, ollama_kv, ollama_work
from bench.fidelity.points import Point, points, probes, published, shape_rows
from llmgw.planning.buffers import compute_bytes, output_bytes
from llmgw.planning.cards import find, usable
from llmgw.planning.file_types import mixes, predicted_bytes
from llmgw.planning.fit import shortages
from llmgw.planning.kv import kv_bytes, state_bytes
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.memory import estimate
from llmgw.planning.shape import ModelShape
from llmgw.units import GIB, MIB

EXACT = frozenset({"llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "gpt-oss", "deepseek2"})
"""Architectures whose work space has to come out within 2 %."""
FIT_CONTEXT = 2048
"""What the benchmarks of the fit facts ran with: a prompt of 1024 tokens and as much again."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    what: str
    must: str
    count: int
    ours: str
    ok: bool
    gguf_parser: str = ""
    ollama: str = ""
    flat: str = ""
    """What 0.55 of the bandwidth over the file's size would say."""


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, p90 and worst of the sizes of some errors."""
    sizes = sorted(abs(value) for value in values)
    return median(sizes), sizes[min(len(sizes) - 1, int(len(sizes) * 0.9))], sizes[-1]


def said(values: Sequence[float], unit: str) -> str:
    """Such errors as the table has them."""
    if not values:
        return ""
    middle, most, worst = spread(values)
    return f"{middle:.3g} / {most:.3g} / {worst:.3g} {unit}"


def relative(predicted: float, measured: float) -> float:
    """An error in percent."""
    return 100 * (predicted / measured - 1)


Rule = Callable[[ModelShape, LlamaOptions], float]


def ours(metric: str) -> Rule:
    """How we work out a metric."""
    rules: dict[str, Rule] = {
        "kv_cache": lambda s, o: sum(kv_bytes(s, o)),
        "recurrent_state": lambda s, o: sum(state_bytes(s, o)),
        "output_buffer": output_bytes,
        "compute_buffer": compute_bytes,
    }
    return rules[metric]


def memory_lines() -> Iterator[Line]:
    """llama.cpp's buffers."""
    rows = list(probes("kv_cache", "recurrent_state", "output_buffer"))
    off = [ours(p["metric"])(shape, p.options) / MIB - p.value for p, shape in rows]
    cache = [(p, shape) for p, shape in rows if p["metric"] == "kv_cache"]
    yield Line(
        "KV cache, recurrent state, output buffer",
        "±0.05 MiB, all",
        len(off),
        said(off, "MiB"),
        all(abs(error) <= 0.05 for error in off),
        said([gguf_parser_kv(shape, p.options) / MIB - p.value for p, shape in cache], "MiB (KV)"),
        said([ollama_kv(shape, p.options) / MIB - p.value for p, shape in cache], "MiB (KV)"),
    )
    work = list(probes("compute_buffer"))
    exact = [(p, s) for p, s in work if s.architecture in EXACT and p.options.flash_attention]
    other = [(p, s) for p, s in work if s.architecture not in EXACT or not p.options.flash_attention]
    errors = _work(exact, compute_bytes)
    yield Line(
        "compute buffer, flash attention, the seven architectures",
        "±2 %, all",
        len(errors),
        said(errors, "%"),
        all(abs(error) <= 2 for error in errors),
        said(_work(exact, gguf_parser_work), "%"),
        said(_work(exact, ollama_work), "%"),
    )
    errors = _work(other, compute_bytes)
    yield Line(
        "compute buffer, others and without flash attention",
        "-5 to +25 %, all",
        len(errors),
        said(errors, "%"),
        all(-5 <= error <= 25 for error in errors),
        said(_work(other, gguf_parser_work), "%"),
        said(_work(other, ollama_work), "%"),
    )


def _work(rows: Iterable[tuple[Point, ModelShape]], rule: Rule) -> list[float]:
    return [relative(rule(shape, p.options) / MIB, p.value) for p, shape in rows]


def weight_lines() -> Iterator[Line]:
    """Weights of files that are not there, from a shape and the name of a mix."""
    errors = []
    for name, row in shape_rows().items():
        shape = published(name)
        assert shape is not None
        for mix in ("Q4_K_M", "Q8_0", "F16"):
            if measured := row[f"{mix.lower()}_tensor_bytes"]:
                found = predicted_bytes(shape, mix, tied=row["tied_output"] == "1")
                assert found is not None
                errors.append(relative(found, int(measured)))
    yield Line(
        "weights of 23 shapes as Q4_K_M, Q8_0 and F16",
        "±0.5 %, all",
        len(errors),
        said(errors, "%"),
        all(abs(error) <= 0.5 for error in errors),
    )
    rows = [p for p in points() if p["kind"] == "size" and p["quant"] in mixes() and published(p["model"])]
    errors = [relative(_size(p), p.value) for p in rows]
    yield Line(
        "published sizes and bits of Llama-3.1-8B",
        "±0.5 %, all",
        len(errors),
        said(errors, "%"),
        all(abs(error) <= 0.5 for error in errors),
    )


def _size(point: Point) -> float:
    shape = published(point["model"])
    assert shape is not None
    found = predicted_bytes(shape, point["quant"], tied=False)
    whole = predicted_bytes(shape, "F32", tied=False)
    assert found is not None
    assert whole is not None
    if point["metric"] == "bits_per_weight":
        return found * 8 / (whole / 4)
    return found / {"GiB": GIB, "GB": 10**9}[point["unit"]]


def fit_lines() -> Iterator[Line]:
    """What ran and what did not, on cards of one kind."""
    failed = [p for p in points() if p["kind"] == "fit" and published(p["model"])]
    ran = [p for p in points() if _ran(p)]
    right = [p for p in failed if not _fits(p)]
    refused = [p for p in ran if not _fits(p)]
    yield Line(
        "fit: what was out of memory", "all right", len(failed), f"{len(right)} right", len(right) == len(failed)
    )
    yield Line("fit: what ran", "none refused", len(ran), f"{len(refused)} refused", not refused)


def _ran(point: Point) -> bool:
    on_card = point["kind"] == "decode" and point["device"] in ("gpu", "unified") and bool(point["weights_bytes"])
    whole = point["offload"].startswith("full") and point["engine"] == "llama.cpp"
    return on_card and whole and published(_name(point)) is not None and find(point["hardware"]) is not None


def _name(point: Point) -> str:
    return point["arch"] if point["arch"] in shape_rows() else point["model"]


def _fits(point: Point) -> bool:
    shape, gpu = published(_name(point)), find(point["hardware"])
    assert shape is not None
    assert gpu is not None
    memory = _memory(point["hardware"]) or gpu.memory_bytes or 0
    room = (usable(memory, apple=gpu.vendor == "apple"),) * int(point["n_devices"])
    found = estimate(shape, int(point["weights_bytes"]), LlamaOptions(context=FIT_CONTEXT), free=room)
    return not shortages(found, cards=room)


def _memory(hardware: str) -> int | None:
    said_gb = [word.removesuffix("GB") for word in hardware.split() if word.endswith("GB")]
    return int(said_gb[-1]) * GIB if said_gb and said_gb[-1].isdigit() else None
