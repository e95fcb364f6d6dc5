"""The catalog's name of a card, made of what its driver calls it."""

from __future__ import annotations

import re

NOMINAL_GIB = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 256, 288)
"""What cards are sold with. Drivers report a little less or more: ECC and reserved memory vary."""

_DROPPED = {"nvidia", "amd", "geforce", "tesla", "quadro", "instinct", "radeon", "gpu", "graphics", "generation"}
_DROPPED |= {"server", "workstation", "edition"}
_DROPPED |= {"sxm", "sxm2", "sxm3", "sxm4", "sxm5", "pcie", "hbm2", "hbm2e", "hbm3", "hbm3e", "nvl", "oam"}


def card_class(name: str, memory_bytes: int) -> str:
    """The product without its maker and form, and the memory it is sold with: `l40s-48g`."""
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    kept = [w for w in words if w not in _DROPPED and not re.fullmatch(r"\d+gb|\d+g", w)]
    return "-".join([*(kept or ["card"]), f"{nominal_gib(memory_bytes)}g"])


def nominal_gib(memory_bytes: int) -> int:
    """The smallest size that is sold and within -8 and +1 percent; else what it is, rounded."""
    gib = memory_bytes / 2**30
    return next((n for n in NOMINAL_GIB if n * 0.92 <= gib <= n * 1.01), round(gib))
