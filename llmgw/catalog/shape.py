"""How a new value is written: as its neighbours are, and as the file writes most of its values."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from llmgw.catalog import scalars
from llmgw.catalog.document import Value
from llmgw.catalog.spans import Lines, Span, walk

_PLAIN = re.compile(r"[A-Za-z0-9_./~+$^-]([^\n\r\t:#]|:(?=[^\s]))*", re.ASCII)
_PLAIN_IN_FLOW = re.compile(r"[A-Za-z0-9_./+-][A-Za-z0-9 _./+@=~^%:-]*", re.ASCII)
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
"""Words that some readers of YAML take for something else, whatever their case."""


@dataclass(frozen=True, slots=True)
class Shaper:
    """The style of one file."""

    text: str
    lines: Lines
    step: int
    """Columns that a mapping in a mapping is indented."""
    dash: int
    """Columns that the dash of a list is indented below its key."""
    lists_in_flow: bool
    """Whether a list of nothing but scalars is written in brackets."""
    mappings_in_flow: bool
    """Whether a mapping of nothing but scalars is."""
    quote: str = ""
    """That all text is in, of a file that is written as JSON is."""

    @staticmethod
    def of(text: str, root: Span) -> Shaper:
        """The style that most of a file is in."""
        lines = Lines(text)
        steps: Counter[int] = Counter()
        dashes: Counter[int] = Counter()
        leaves: Counter[tuple[bool, bool]] = Counter()
        for span in walk(root):
            for entry in span.entries or ():
                value, column = entry.value, lines.column(entry.key.start)
                if value.entries and not value.flow:
                    steps[lines.column(value.start) - column] += 1
                elif value.items and not value.flow:
                    dashes[lines.column(value.start) - column] += 1
                if value.parts and not any(part.parts for part in value.parts):
                    leaves[value.items is not None, value.flow] += 1
        listed, mapped = (root.flow or leaves[kind, True] >= leaves[kind, False] for kind in (True, False))
        keys = {entry.key.style for span in walk(root) for entry in span.entries or ()}
        quote = '"' if root.flow and keys == {'"'} else ""
        return Shaper(text, lines, _most(steps, 2), _most(dashes, 2), listed, mapped, quote)

    def inline(self, value: Value, like: Span | None = None, *, flow: bool = False) -> str:
        """A value on the line it is on.

        Args:
            value: to be written.
            like: a value whose style it takes: the one it replaces, or its neighbour.
            flow: whether it stands in brackets.
        """
        if isinstance(value, dict):
            pad = self._pad(like)
            inner = ", ".join(
                f"{self.key(name, like, flow=True)}: {self.inline(part, _entry(like, name), flow=True)}"
                for name, part in value.items()
            )
            return f"{{{pad}{inner}{pad}}}" if inner else "{}"
        if isinstance(value, list):
            pad = self._pad(like)
            beside = neighbour(like)
            inner = ", ".join(self.inline(part, beside, flow=True) for part in value)
            return f"[{pad}{inner}{pad}]" if inner else "[]"
        return scalar(value, like.style if like and like.style else self.quote, flow=flow)

    def key(self, name: str, like: Span | None, *, flow: bool = False) -> str:
        """A key, quoted where all of its neighbours are."""
        styles = {entry.key.style for entry in like.entries or ()} if like else set()
        return scalar(name, styles.pop() if len(styles) == 1 else self.quote, flow=flow)

    def in_flow(self, value: Value, like: Span | None) -> bool:
        """Whether a value is written on one line: all scalars are."""
        if not isinstance(value, dict | list) or not value:
            return True
        if like is not None and like.parts:
            return like.flow
        parts = value.values() if isinstance(value, dict) else value
        leaves = self.mappings_in_flow if isinstance(value, dict) else self.lists_in_flow
        return leaves and not any(isinstance(part, dict | list) for part in parts)

    def block(self, value: Value, column: int, like: Span | None = None) -> list[str]:
        """A value on lines of its own, the first without its indentation.

        Args:
            value: to be written.
            column: that its lines begin at.
            like: a value whose style it takes.
        """
        if self.in_flow(value, like):
            return [self.inline(value, like)]
        if isinstance(value, dict):
            found = [self.entry(name, part, column, like) for name, part in value.items()]
            return [
                found[0][0],
                *found[0][1:],
                *(line for lines in found[1:] for line in _indented(lines, column)),
            ]
        assert isinstance(value, list)
        beside = neighbour(like)
        listed = [self.block(item, column + 2, beside) for item in value]
        dashed = [[f"- {first}", *rest] for first, *rest in listed]
        return [
            *dashed[0],
            *(line for lines in dashed[1:] for line in _indented(lines, column)),
        ]

    def entry(
        self,
        name: str,
        value: Value,
        column: int,
        like: Span | None = None,
        *,
        joint: str = ": ",
    ) -> list[str]:
        """A key with its value, the first line without its indentation.

        Args:
            name: the key.
            value: its value.
            column: that the key begins at.
            like: the mapping, or another one, whose style it takes.
            joint: what stands between the key and a value on the same line.
        """
        key, old = self.key(name, like), _entry(like, name)
        if self.in_flow(value, old):
            return [f"{key}{joint}{self.inline(value, old)}"]
        below = column + (self.step if isinstance(value, dict) else self.dash)
        first, *rest = self.block(value, below, old)
        return [f"{key}:", f"{' ' * below}{first}", *rest]

    def joint(self, owner: Span) -> str:
        """What stands between a key and its value, where that is the same in all of a mapping."""
        inline = [e for e in owner.entries or () if not e.value.empty and self._same_line(e.key, e.value)]
        found = {self.text[e.key.end : e.value.start] for e in inline}
        return found.pop() if len(found) == 1 and len(inline) > 1 else ": "

    def _same_line(self, one: Span, other: Span) -> bool:
        return self.lines.start(one.start) == self.lines.start(other.start)

    def _pad(self, like: Span | None) -> str:
        return " " if like and like.flow and like.parts and self.text[like.start + 1] == " " else ""


def scalar(value: Value, style: str = "", *, flow: bool = False) -> str:
    """A scalar as it is written.

    Args:
        value: text, a number, true, false or nothing.
        style: the quote that text is in, where it can be; empty: none, where it can be.
        flow: whether it stands in brackets.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if style == '"' or not _may_be_plain(value, flow=flow):
        return json.dumps(value, ensure_ascii=False)
    return value


def literal(value: str, indent: str, line_end: str) -> str:
    """Text of several lines as a block: `|-` where it does not end in a line end."""
    body = value.removesuffix("\n")
    chomp = "" if value.endswith("\n") else "-"
    return line_end.join([f"|{chomp}", *(f"{indent}{line}" if line else "" for line in body.split("\n"))])


def _may_be_plain(text: str, *, flow: bool) -> bool:
    fits = (_PLAIN_IN_FLOW if flow else _PLAIN).fullmatch(text) is not None
    starts_as_another = text.startswith(("- ", "---", "...")) or text in ("-", "~")
    if not fits or starts_as_another or text.endswith((" ", ":")) or text.lower() in _WORDS or not text.isprintable():
        return False
    try:
        return isinstance(scalars.resolve(text), str)
    except ValueError:
        return False


def _entry(like: Span | None, name: str) -> Span | None:
    found = like.entry(name) if like and like.entries is not None else None
    return found.value if found else None


def neighbour(owner: Span | None, index: int = -1) -> Span | None:
    """An item whose style new ones take: none where the items are of several styles."""
    items = owner.items or [] if owner else []
    return items[index] if len({item.style for item in items}) == 1 else None


def _indented(lines: list[str], column: int) -> list[str]:
    return [f"{' ' * column}{lines[0]}", *lines[1:]]


def _most(counts: Counter[Any], otherwise: int) -> int:
    found: list[tuple[int, int]] = counts.most_common(1)
    return found[0][0] if found else otherwise
