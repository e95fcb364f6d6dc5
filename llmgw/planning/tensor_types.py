"""The types a tensor's numbers are kept in, and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

from llmgw.planning.tables import rows

X86, ARM = "x86", "arm"


@dataclass(frozen=True, slots=True)
class TensorType:
    """One of ggml's types: numbers in blocks, a block in so many bytes."""

    name: str
    number: int
    block: int
    block_bytes: int
    cache: bool
    """Whether keys and values can be kept in it."""
    repacked: tuple[str, ...]
    """The kinds of CPU that llama.cpp lays it out anew for."""

    @property
    def bytes_each(self) -> float:
        """Of one number."""
        return self.block_bytes / self.block

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """What a tensor takes. A row is whole blocks in every file that loads."""
        return prod(shape) // self.block * self.block_bytes


def _repacked(row: Mapping[str, str]) -> tuple[str, ...]:
    # Q2_K is laid out anew only with AVX-512: it is counted, for too much memory is the lesser error.
    return tuple(cpu for cpu in (X86, ARM) if row[f"repack_{cpu}"] != "no")


@cache
def by_number() -> dict[int, TensorType]:
    """Every type by the number a GGUF file writes for it."""
    found = (
        TensorType(
            row["name"],
            int(row["id"]),
            int(row["block"]),
            int(row["block_bytes"]),
            row["cache"] == "yes",
            _repacked(row),
        )
        for row in rows("tensor_types")
    )
    return {kind.number: kind for kind in found}


@cache
def by_name() -> dict[str, TensorType]:
    """Every type by its name, in capitals."""
    return {kind.name: kind for kind in by_number().values()}


def cache_types() -> tuple[str, ...]:
    """The names of the types a cache can have, as the engine's flags write them."""
    return tuple(sorted(kind.name.lower() for kind in by_number().values() if kind.cache))
