"""What is known of a card by its name; what its driver says of it comes first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from llmgw.planning.tables import rows
from llmgw.units import GIB

USABLE_SHARE = 0.97
"""Of a card's memory: error correction and the driver have the rest."""
APPLE_SHARES = ((36, 2 / 3), (1 << 20, 3 / 4))
"""What macOS lets a GPU have: of memories up to so many GiB, and of larger ones."""


@dataclass(frozen=True, slots=True)
class Card:
    """One line of cards.csv."""

    vendor: str
    name: str
    memory_bytes: int | None
    """None: it uses the machine's."""
    bandwidth_gbs: float
    capability: float | None
    """NVIDIA's compute capability."""
    fp8: str
    """native, weight-only or no."""
    bf16: bool
    shared: bool
    """Whether its memory is the machine's."""
    prefill_tflops: float | None = None
    """10^12 operations a second that a prompt of a model of eight thousand million weights was seen to come to.
    None: nobody has measured it."""

    @property
    def usable_bytes(self) -> int | None:
        """What an engine can have of it, where the driver was not asked."""
        return None if self.memory_bytes is None else usable(self.memory_bytes, apple=self.vendor == "apple")


def usable(memory_bytes: int, *, apple: bool = False) -> int:
    """What an engine can have of a card's memory."""
    share = USABLE_SHARE
    if apple:
        share = next(part for limit, part in APPLE_SHARES if memory_bytes <= limit * GIB)
    return int(memory_bytes * share)


FILLER = frozenset(
    (
        "nvidia",
        "amd",
        "intel",
        "apple",
        "geforce",
        "rtx",
        "gtx",
        "radeon",
        "rx",
        "tesla",
        "quadro",
        "instinct",
        "arc",
        "generation",
        "graphics",
        "gpu",
        "core",
    )
)
"""Words that tell no two cards apart, and that one driver says and another does not."""
FORMS = {"pcie": "pcie", "sxm": "sxm", "sxm2": "sxm", "sxm4": "sxm", "sxm5": "sxm", "hbm3": "sxm", "nvl": "nvl"}
"""How a card is built in: it tells two apart where it is said."""
VARIANTS = frozenset(
    ("ti", "super", "xt", "xtx", "gre", "max", "pro", "ultra", "ada", "laptop", "mobile", "q", "d", "s")
)
"""Words that make another card of one: a name with one of these more is not in the table."""
_MEMORY = re.compile(r"(\d+)gb")


@cache
def cards() -> tuple[Card, ...]:
    """Every card of the table, by name."""
    found = (
        Card(
            row["vendor"],
            row["name"],
            round(float(row["memory_gb"]) * GIB) if row["memory_gb"] else None,
            float(row["bandwidth_gbs"]),
            float(row["compute_capability"]) if row["compute_capability"] else None,
            row["fp8"],
            row["bf16"] == "yes",
            row["shared_memory"] == "yes",
            float(row["prefill_tflops"]) if row["prefill_tflops"] else None,
        )
        for row in rows("cards")
    )
    return tuple(sorted(found, key=lambda card: card.name))


def find(name: str, memory_bytes: int | None = None) -> Card | None:
    """The card that a driver, or a person, calls by a name; None where the table has none of that name.

    Args:
        name: such as `NVIDIA GeForce RTX 4090`, or `4090 24GB`.
        memory_bytes: as the driver says it: it tells apart cards that were sold under one name.
    """
    said, forms, memory = _words(name)
    wanted = memory_bytes / GIB if memory_bytes else memory
    best: tuple[int, int, float, str] | None = None
    chosen = None
    for card in cards():
        words, built, _ = _words(card.name)
        if not words or not words <= said or (said - words) & VARIANTS:
            continue
        held = card.memory_bytes / GIB if card.memory_bytes else None
        off = abs(held - wanted) if held and wanted else 0.0
        rank = (-len(words), -len(built & forms) + len(built - forms if forms else ()), off, card.name)
        if best is None or rank < best:
            best, chosen = rank, card
    return chosen


def _words(name: str) -> tuple[frozenset[str], frozenset[str], float | None]:
    """What tells a card apart: its words, how it is built in, and its GB where they are said."""
    plain = re.sub(r"\([^)]*\)", " ", name.lower())
    words = re.findall(r"[a-z0-9]+", plain)
    memory = [float(found[1]) for word in words if (found := _MEMORY.fullmatch(word))]
    kept = frozenset(w for w in words if w not in FILLER and w not in FORMS and not _MEMORY.fullmatch(w))
    return kept, frozenset(FORMS[w] for w in words if w in FORMS), memory[0] if memory else None
