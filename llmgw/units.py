"""Bytes, durations and ranges as people write them, and as they read them back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_BYTES = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_NUMBER = r"(\d+(?:\.\d+)?)"


def parse_bytes(text: str) -> int:
    """Bytes of `24GiB`, `80GB` or `98362432`. GB is 10^9, GiB is 2^30.

    Raises:
        ValueError: not a size; its text says what one looks like.
    """
    found = re.fullmatch(rf"{_NUMBER}\s*([KMGT]?i?B|)", text.strip())
    if not found or found[2] not in _BYTES:
        raise ValueError(f"{text!r} is not a size; write one like 24GiB or 80GB")
    return round(float(found[1]) * _BYTES[found[2]])


def parse_duration(text: str) -> float:
    """Seconds of `15m`, `90s`, `1h30m` or `2d`.

    Raises:
        ValueError: not a duration; its text says what one looks like.
    """
    one = rf"{_NUMBER}(ms|[smhdw])"
    # The whole is matched first: a search for parts in a long text of digits would be quadratic.
    if not re.fullmatch(f"(?:{one})+", text.strip()):
        raise ValueError(f"{text!r} is not a duration; write one like 90s, 15m or 1h30m")
    return sum(float(n) * _SECONDS[u] for n, u in re.findall(one, text))


class Span(NamedTuple):
    """From one number to another, both included. None: no end on that side."""

    low: float | None
    high: float | None

    def holds(self, number: float) -> bool:
        """Whether a number is in it."""
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)


def parse_span(text: str, one: Callable[[str], float]) -> Span:
    """The range of `2..4`, `80GB..` or `..9.0`.

    Args:
        text: the range.
        one: reads either end.

    Raises:
        ValueError: not a range, or one that ends before it begins.
    """
    begin, dots, end = text.partition("..")
    if not dots or not (begin or end):
        raise ValueError(f"{text!r} is not a range; write one like 2..4 or 80GB..")
    span = Span(one(begin) if begin else None, one(end) if end else None)
    if span.low is not None and span.high is not None and span.low > span.high:
        raise ValueError(f"{text!r} ends before it begins")
    return span


def show_span(span: Span) -> str:
    """`8..9.5`: as `parse_span` reads it."""
    return "..".join("" if end is None else f"{end:.12g}" for end in span)


def show_size_span(span: Span) -> str:
    """`80000000000B..`: as `parse_span` reads it with sizes."""
    return "..".join("" if end is None else f"{end:.0f}B" for end in span)


def show_bytes(n: int) -> str:
    """`98.4 MB`: decimal units, as disks and networks are sold."""
    size = float(n)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{n} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def show_gib(n: int) -> str:
    """`7.8 GiB`: binary units, as memory is sold."""
    return f"{n / GIB:.1f} GiB"


def show_duration(seconds: float) -> str:
    """`45s`, `12m`, `3h`, `2d`: the largest unit that does not round to one."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"
