"""How commands print what they found: text for people, JSON for programs, both of one value."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


def as_json(value: msgspec.Struct) -> str:
    """A value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()


def columns(rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are as wide as what is in them; the first row is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def count(n: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
