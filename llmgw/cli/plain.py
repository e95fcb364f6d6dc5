"""What was written by others, on a terminal: nothing in it moves the cursor, colours a line or begins one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

import msgspec

WIDTH = 80
"""Columns of a terminal that nobody has made wider."""


def visible(text: str) -> str:
    """The same, with what a terminal would obey or not show as its number: a line's end too."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def say(lines: Iterable[str]) -> None:
    """Print lines, each as one."""
    for line in lines:
        print(visible(line))


def para(text: str, *, first: str = "", rest: str = "  ") -> Iterator[str]:
    """A sentence on as many lines as it takes.

    Args:
        text: the sentence; its own line ends are spaces.
        first: what the first line begins with.
        rest: what the others begin with.
    """
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    ) or [first.rstrip()]


def say_json(value: object) -> None:
    """Print a value as JSON. It is the same value: what is not shown is written as JSON writes it."""
    text = msgspec.json.format(msgspec.json.encode(value)).decode()
    print(re.sub(r"[^\n -~]", lambda found: _escaped(found[0]), text))


def _escaped(c: str) -> str:
    if c.isprintable():
        return c
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in _pairs(c))


def _pairs(c: str) -> Iterator[bytes]:
    """UTF-16's units, as JSON writes a character beyond the first 65,536."""
    data = c.encode("utf-16-be", "surrogatepass")
    yield from (data[i : i + 2] for i in range(0, len(data), 2))
