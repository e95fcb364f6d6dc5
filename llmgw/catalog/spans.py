"""Where each value of a YAML file begins and ends, to the character.

Read from the events of the parser that reads the catalog, so what can be found
here is what is read there. A file is only looked at after `parse` found nothing
wrong with it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from yaml import CBaseLoader, events

from llmgw.catalog.problem import Steps

_BREAK = re.compile(r"\r\n|\r|\n")
_BLOCK = frozenset("|>")


@dataclass(slots=True)
class Span:
    """One value: a scalar, a list or a mapping."""

    start: int
    end: int
    """After its last character, and before the line end that a block has."""
    style: str = ""
    """Of a scalar: empty where it is plain, a quote, `|` or `>`."""
    flow: bool = False
    """Written in braces or brackets."""
    entries: list[Entry] | None = None
    """Of a mapping."""
    items: list[Span] | None = None
    """Of a list."""

    @property
    def parts(self) -> list[Span]:
        """What it holds, in order."""
        return [e.value for e in self.entries] if self.entries is not None else self.items or []

    @property
    def empty(self) -> bool:
        """Whether nothing is written: the value of `key:`."""
        return self.start == self.end and self.entries is None and self.items is None

    def entry(self, key: str) -> Entry | None:
        """The entry of this key, of a mapping."""
        return next((e for e in self.entries or () if e.name == key), None)


@dataclass(slots=True)
class Entry:
    """One key of a mapping, and its value."""

    name: str
    key: Span
    value: Span


@dataclass(slots=True)
class _Open:
    span: Span
    key: tuple[str, Span] | None = None


@dataclass(slots=True)
class _Reading:
    text: str
    root: Span | None = None
    stack: list[_Open] = field(default_factory=list)

    def take(self, event: Any) -> None:
        kind, start, end = type(event), event.start_mark.index, event.end_mark.index
        if kind is events.ScalarEvent:
            style = event.style or ""
            if style in _BLOCK:
                end = self._end_of_block(start, end)
            self._put(Span(start, end, style), event.value)
        elif kind is events.MappingStartEvent:
            self._open(Span(start, end, flow=bool(event.flow_style), entries=[]))
        elif kind is events.SequenceStartEvent:
            self._open(Span(start, end, flow=bool(event.flow_style), items=[]))
        elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
            span = self.stack.pop().span
            # A block's own end is where the next thing begins, comments and empty lines between.
            span.end = end if span.flow else max((part.end for part in span.parts), default=span.end)

    def _open(self, span: Span) -> None:
        self._put(span, "")
        self.stack.append(_Open(span))

    def _put(self, span: Span, name: str) -> None:
        if not self.stack:
            self.root = span
            return
        top = self.stack[-1]
        if top.span.items is not None:
            top.span.items.append(span)
        elif top.key is None:
            top.key = (name, span)
        elif top.span.entries is not None:
            top.span.entries.append(Entry(top.key[0], top.key[1], span))
            top.key = None

    def _end_of_block(self, start: int, end: int) -> int:
        """Where a block scalar's last line ends. With `+` the empty lines after it are part of it."""
        written = self.text[start:end]
        header = _BREAK.split(written, maxsplit=1)[0].partition("#")[0]
        if "+" in header:
            last = re.search(r"(\r\n|\r|\n)[ \t]*\Z", written)
            return start + last.start() if last else end
        return start + len(written.rstrip())


def spans(text: str) -> Span:
    """Every value of a file that `parse` found nothing wrong with, which is not empty."""
    reading = _Reading(text)
    parser = CBaseLoader(text)
    while (event := parser.get_event()) is not None:
        reading.take(event)
    assert reading.root is not None, "an empty file has nothing to edit"
    return reading.root


def follow(root: Span, at: Steps) -> Span | None:
    """The value at `at`, or None where there is none."""
    here: Span | None = root
    for step in at:
        if here is None:
            return None
        if isinstance(step, str):
            entry = here.entry(step)
            here = entry.value if entry else None
        else:
            here = here.items[step] if here.items is not None and step < len(here.items) else None
    return here


def walk(span: Span) -> Iterator[Span]:
    """It and every value in it."""
    yield span
    for part in span.parts:
        yield from walk(part)


def comments(text: str) -> Iterator[str]:
    """Every comment of a file that `parse` found nothing wrong with, from top to bottom."""
    scalars = sorted((s.start, s.end) for s in _scalars(spans(text)))
    for found in re.finditer(r"(?m)(?:^|(?<=[ \t]))#.*", text):
        before = bisect_right(scalars, (found.start(), len(text))) - 1
        if before < 0 or scalars[before][1] <= found.start():
            yield found[0].rstrip()


def _scalars(root: Span) -> Iterator[Span]:
    for span in walk(root):
        if span.entries is None and span.items is None:
            yield span
        yield from (entry.key for entry in span.entries or ())


@dataclass(frozen=True, slots=True)
class Lines:
    """Where a text's lines begin and end."""

    text: str

    def start(self, at: int) -> int:
        """Where the line of this character begins."""
        found = self.text.rfind("\n", 0, at) + 1
        return max(found, self.text.rfind("\r", found, at) + 1)

    def end(self, at: int) -> int:
        """Where the line of this character ends, before its line end."""
        found = _BREAK.search(self.text, at)
        return found.start() if found else len(self.text)

    def after(self, at: int) -> int:
        """Where the next line begins; the end of the text where there is none."""
        found = _BREAK.search(self.text, at)
        return found.end() if found else len(self.text)

    def column(self, at: int) -> int:
        """How far from the start of its line a character is."""
        return at - self.start(at)

    def indent(self, at: int) -> str:
        """What stands before this character on its line."""
        return self.text[self.start(at) : at]

    def line_end(self, at: int) -> str:
        """The line end of the line of this character; of a last line without one, that of another."""
        found = _BREAK.search(self.text, at) or _BREAK.search(self.text)
        return found[0] if found else "\n"

    def number(self, at: int) -> int:
        """Which line a character is on, counted from 1."""
        return len(_BREAK.findall(self.text, 0, at)) + 1
