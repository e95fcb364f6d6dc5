"""Tokens a second: on CPUs and cards, by class and after one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from bench.fidelity.points import Point, points, published, shape_rows
from bench.fidelity.rows import Line, relative, said, spread
from llmgw.planning.cards import Card, find
from llmgw.planning.shape import ModelShape, WeightBytes
from llmgw.planning.speed import CardSpeed, calibrated, card_tps, class_of, cpu_tps, prefill_tps
from llmgw.planning.weights import measured

SEED_ROWS = 8
FLAT = 0.55
NAMES = {
    "gpt-oss-20b": "gpt_oss_20b",
    "gpt-oss-120b": "gpt_oss_120b",
    "qwen3-coder-30b-a3b": "qwen3_30b_a3b",
    "qwen3-30b-a3b": "qwen3_30b_a3b",
    "qwen2.5-coder-7b": "qwen25_7b",
    "qwen2-7b": "qwen25_7b",
}
"""Models of the points by a part of their names."""
CLASSES = {"GeForce GTX 1050 Ti": Card("nvidia", "GeForce GTX 1050 Ti", 4 << 30, 112.1, 6.1, "no", False, False)}
"""Cards that are measured and are not in our table."""


def cpu_lines() -> Iterator[Line]:
    """The eight rows that the formula was made with."""
    rows = [p for p in points() if p["kind"] == "decode" and p["device"] == "cpu" and "tolerance" in p["notes"]]
    errors, flat = [], []
    for point in rows[:SEED_ROWS]:
        size, rate = int(point["weights_bytes"]), float(point["bandwidth_gb_s"])
        found = cpu_tps(size, all_gbs=rate, core_gbs=float(point["core_bandwidth_gb_s"]), threads=int(point["threads"]))
        errors.append(relative(found or 0, point.value))
        flat.append(relative(FLAT * rate * 1e9 / size, point.value))
    middle, _, worst = spread(errors)
    yield Line(
        "decode on CPUs, by threads",
        "±15 % each, median 5 %",
        len(rows),
        said(errors, "%"),
        worst <= 15 and middle <= 5,
        flat=said(flat, "%"),
    )


def card_lines() -> Iterator[Line]:
    """One card each."""
    runs = [(p, run) for p in points() if _alone(p) and (run := _run(p))]
    errors = [relative(_tps(p, shape, class_of(gpu)), p.value) for p, (shape, gpu) in runs]
    flat = [relative(FLAT * float(p["bandwidth_gb_s"]) * 1e9 / int(p["weights_bytes"]), p.value) for p, _ in runs]
    middle, most, _ = spread(errors)
    yield Line(
        "decode on cards, by class",
        "median 8 %, p90 35 %",
        len(runs),
        said(errors, "%"),
        middle <= 8 and most <= 35,
        flat=said(flat, "%"),
    )
    yield _prompts()
    groups = defaultdict(list)
    for point, run in runs:
        groups[point["hardware"], point["engine"]].append((point, run))
    errors = []
    for group in groups.values():
        for point, (shape, gpu) in group:
            own = _calibrated(point, shape, gpu)
            errors += [relative(_tps(p, s, own), p.value) for p, (s, _) in group if p is not point]
    middle, most, _ = spread(errors)
    yield Line(
        "decode on a card after one run on it, every ordered pair",
        "median 6 %, p90 15 %",
        len(errors),
        said(errors, "%"),
        middle <= 6 and most <= 15,
    )


def _prompts() -> Line:
    """Prompts at the start of a context, on one card: one figure of the card is all there is."""
    errors = []
    for point in points():
        first = point["kind"] == "prefill" and point["depth_tokens"] in ("", "0")
        alone = first and point["n_devices"] == "1" and point["weights_bytes"]
        run = _run(point) if alone and point["metric"] == "tok_s" else None
        if run is not None and (found := prefill_tps(run[0], int(point["weights_bytes"]), run[1])):
            errors.append(relative(found, point.value))
    most = max(map(abs, errors), default=0.0)
    return Line("prompts on cards that were measured", "±35 %, all", len(errors), said(errors, "%"), most <= 35)


def _alone(point: Point) -> bool:
    of_card = point["kind"] == "decode" and point["metric"] == "tok_s" and point["device"] in ("gpu", "unified")
    whole = "partial" not in point["offload"] and "cpu-moe" not in point["offload"]
    known = bool(point["bandwidth_gb_s"] and point["weights_bytes"])
    return of_card and whole and known and point["n_devices"] == "1" and point["engine"] == "llama.cpp"


def _run(point: Point) -> tuple[ModelShape, Card] | None:
    """The shape with its weights, and the card, of a run; None where one is not known."""
    lower = point["model"].lower()
    by_part = next((name for part, name in NAMES.items() if part in lower), point["model"])
    name = point["arch"] if point["arch"] in shape_rows() else by_part
    shape = published(name)
    gpu = find(point["hardware"]) or next((c for n, c in CLASSES.items() if n in point["hardware"]), None)
    if shape is None or gpu is None:
        return None
    row = shape_rows().get(name)
    tied = row is not None and row["tied_output"] == "1"
    return _weighed(shape, int(point["weights_bytes"]), point["quant"].split()[0], tied=tied), gpu


def _weighed(shape: ModelShape, size: int, mix: str, *, tied: bool) -> ModelShape:
    """The shape with its weights by part, as a header would give them."""
    spreading = measured(shape, size)
    table = shape.vocabulary * shape.embedding
    embedding = spreading.embedding
    if mix in ("MXFP4", "Q4_K_M", "Q8_0", "F16"):
        each = {"MXFP4": 34 / 32, "Q8_0": 34 / 32, "Q4_K_M": 144 / 256, "F16": 2.0}[mix]
        embedding = round(table * each)
    weights = replace(spreading, embedding=embedding, output=0 if tied else spreading.output)
    return replace(shape, weights=_with_experts(shape, weights, size))


def _with_experts(shape: ModelShape, weights: WeightBytes, size: int) -> WeightBytes:
    """Experts are most of such a file, and its table and attention have more bits than they."""
    if not shape.experts:
        return weights
    count = 3 * shape.experts * shape.embedding * shape.expert_feed_forward * shape.layers
    whole = round(count * 17 / 32) if shape.architecture == "gpt-oss" else sum(weights.experts)
    each = min(whole, size) // shape.layers
    return replace(weights, experts=(each,) * shape.layers)


def _tps(point: Point, shape: ModelShape, speed: CardSpeed) -> float:
    depth = int(point["depth_tokens"] or 0)
    rate = float(point["bandwidth_gb_s"])
    return card_tps(shape, int(point["weights_bytes"]), speed, bandwidth_gbs=rate, depth=depth) or 0.0


def _calibrated(point: Point, shape: ModelShape, gpu: Card) -> CardSpeed:
    return calibrated(
        shape,
        int(point["weights_bytes"]),
        class_of(gpu),
        bandwidth_gbs=float(point["bandwidth_gb_s"]),
        depth=int(point["depth_tokens"] or 0),
        measured_tps=point.value,
    )
