"""What llama.cpp knows of an architecture and does not write into the file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from llmgw.planning.tables import rows


class Recurrent(StrEnum):
    """Which layers keep a state in place of keys and values."""

    NONE = ""
    DELTA = "delta"
    """All but each fourth, or as the file lists them."""
    NO_KV = "no_kv"
    """Those with no heads for keys and values."""
    NO_KV_NO_FFN = "no_kv_no_ffn"
    """Those with neither: a layer is one of three things."""
    EVERY = "every"
    """All of them, beside keys and values."""
    ONLY = "every_only"
    """All of them, and there are no keys and values."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One line of architectures.csv."""

    name: str
    window_period: int
    """Each so-manieth layer looks at everything, the others through the window; 0: all at everything."""
    full_first: bool
    """Whether it is the first of each period that looks at everything, and not the last."""
    window: int
    """Tokens, where the file does not say. 0: it has to."""
    recurrent: Recurrent
    cache: bool
    """Whether it keeps keys and values at all: one that reads both ways does not."""

    def windowed(self, layer: int, period: int) -> bool:
        """Whether a layer looks through the window."""
        if period <= 0:
            return False
        return layer % period != 0 if self.full_first else layer % period < period - 1


@cache
def _known() -> dict[str, Architecture]:
    return {
        row["name"]: Architecture(
            row["name"],
            int(row["window_period"] or 0),
            row["full_first"] == "yes",
            int(row["window"] or 0),
            Recurrent(row["recurrent"]),
            row["cache"] == "yes",
        )
        for row in rows("architectures")
    }


def architecture(name: str) -> Architecture | None:
    """What is known of an architecture, or None: llama.cpp did not know it when the table was made."""
    return _known().get(name)


def names() -> frozenset[str]:
    """Every architecture that is known."""
    return frozenset(_known())
