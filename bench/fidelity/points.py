"""What was measured, by whom, and the shapes it was measured of."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llmgw.cli.demo import model_file
from llmgw.planning.architectures import architecture
from llmgw.planning.gguf import read_header
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.shape import ModelShape

DATA = Path(__file__).parent / "data"
OURS = "own measurement"
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1"

GEMMA_270M = ModelShape(
    architecture="gemma3",
    layers=18,
    embedding=640,
    vocabulary=262_144,
    context=32_768,
    feed_forward=(2048,) * 18,
    heads=(4,) * 18,
    kv_heads=(1,) * 18,
    key_length=256,
    value_length=256,
    window=512,
    windowed=tuple(n % 6 < 5 for n in range(18)),
)
"""Its licence keeps its file out of this repository."""

NAMES = {"Llama-3-8B": "llama3_8b", "Llama-3.1-8B": "llama3_8b", "Llama-3-70B": "llama3_70b"}
"""Models of the points by their rows in shapes.csv."""

WINDOWS = {"gemma3": 1024, "gpt-oss": 128}
"""Tokens that their windowed layers look back."""


@dataclass(frozen=True, slots=True)
class Point:
    """One row."""

    values: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    @property
    def value(self) -> float:
        return float(self.values["value"])

    @property
    def options(self) -> LlamaOptions:
        """How the engine was asked."""
        kind = self["kv_type"] or "f16"
        ubatch = int(self["ubatch"] or 512)
        return LlamaOptions(
            context=int(self["ctx_tokens"] or 0),
            parallel=int(self["slots"] or 1),
            kv_unified=self["kv_unified"] == "1",
            kv_type_k=kind,
            kv_type_v=kind,
            ubatch=ubatch,
            flash_attention=self["flash_attn"] != "off",
            swa_full="swa_full" in self["notes"],
        )


class OnDisk:
    """A file's bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, offset: int, size: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)


@cache
def points() -> tuple[Point, ...]:
    """All of them."""
    with (DATA / "points.csv").open(newline="") as file:
        return tuple(Point(row) for row in csv.DictReader(file))


def probes(*metrics: str) -> Iterator[tuple[Point, ModelShape]]:
    """What llama.cpp itself said of its buffers, with the shape it said it of."""
    shapes = headers()
    for point in points():
        if point["metric"] in metrics and OURS in point["source"] and point["model"] in shapes:
            yield point, shapes[point["model"]]


@cache
def headers() -> dict[str, ModelShape]:
    """The shapes of the headers that are kept here, and of the two small models."""
    kept = {path.name.partition(".gguf")[0]: path for path in sorted((DATA / "headers").iterdir())}
    found = {name: shape_of(read_header(OnDisk(path), tensors=True)) for name, path in kept.items()}
    small = shape_of(read_header(OnDisk(model_file()), tensors=True))
    return found | {SMOLLM2: small, "gemma-3-270m-q4_k_m": GEMMA_270M}


@cache
def shape_rows() -> dict[str, dict[str, str]]:
    """The rows of shapes.csv by their names."""
    with (DATA / "shapes.csv").open(newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def published(name: str) -> ModelShape | None:
    """The shape of a model by the name a point has for it."""
    row = shape_rows().get(NAMES.get(name, name))
    if row is None:
        return None
    layers = int(row["layers"])
    experts = int(row["experts"] or 0)
    known = architecture(row["arch"])
    window = WINDOWS.get(row["arch"], 0)
    period = known.window_period if known is not None and window else 0
    return ModelShape(
        architecture=row["arch"],
        layers=layers,
        embedding=int(row["embedding"]),
        vocabulary=int(row["vocab"]),
        context=8192,
        feed_forward=(0 if experts else int(row["ffn"]),) * layers,
        heads=(int(row["heads"]),) * layers,
        kv_heads=(int(row["kv_heads"]),) * layers,
        key_length=int(row["head_dim"]),
        value_length=int(row["head_dim"]),
        window=window,
        windowed=tuple(period > 0 and n % period < period - 1 for n in range(layers)) if window else (),
        experts=experts,
        experts_used=int(row["experts_used"] or 0),
        expert_feed_forward=int(row["ffn"]) if experts else 0,
    )
