"""Where an entry goes into a mapping or a list, and what is taken out with one.

Each answer is a list of cuts: a span of the text and what stands there
afterwards. Everything outside them stays as it is, to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from llmgw.catalog.document import Value
from llmgw.catalog.shape import Shaper, literal, neighbour
from llmgw.catalog.spans import Entry, Lines, Span

_FOR_EDITORS = "yaml-language-server:"
"""In a comment that is of the whole file, whatever it stands above."""
_REST = re.compile(r"[ \t]*(#.*)?$")


class Cut(NamedTuple):
    """What stands in place of a part of the text."""

    start: int
    end: int
    new: str


class Unclear(Exception):
    """A style in which it is not clear what the change would take with it."""


def apply(text: str, cuts: Sequence[Cut]) -> str:
    """The text with every cut made."""
    for cut in sorted(cuts, reverse=True):
        text = text[: cut.start] + cut.new + text[cut.end :]
    return text


def replace(style: Shaper, old: Span, value: Value, key: Span | None, *, flow: bool) -> list[Cut]:
    """Another value in place of one.

    Args:
        style: of the file.
        old: the value that is there.
        value: the one that comes.
        key: of the value, where it is in a mapping.
        flow: whether it stands in brackets.
    """
    text, lines = style.text, style.lines
    new = style.inline(value, old if isinstance(value, str) == bool(old.style) else None, flow=flow)
    if old.empty:
        return [Cut(old.start, old.end, new if text[old.start - 1].isspace() else f" {new}")]
    if old.style in ("|", ">"):
        header = text[old.start : lines.end(old.start)]
        if isinstance(value, str) and "\n" in value.rstrip("\n"):
            inside = re.match(r"[ ]*", text[lines.after(old.start) :])
            return [
                Cut(
                    old.start,
                    old.end,
                    literal(value, inside[0] if inside else "  ", lines.line_end(old.start)),
                )
            ]
        comment = re.search(r"[ \t]+#.*", header)
        return [Cut(old.start, old.end, new + (comment[0] if comment else ""))]
    if key is not None and not old.flow and old.parts:
        # The block is below its key, and a comment beside the key stays there.
        colon = text.index(":", key.end) + 1
        if lines.start(colon) != lines.start(old.start):
            return [Cut(colon, colon, f" {new}"), Cut(lines.end(colon), old.end, "")]
    return [Cut(old.start, old.end, new)]


def add_entry(style: Shaper, owner: Span, name: str, value: Value, after: Entry | None) -> list[Cut]:
    """A key that was not there.

    Args:
        style: of the file.
        owner: the mapping it goes into.
        name: the key.
        value: its value.
        after: the entry it follows; None: the last one.
    """
    entries = owner.entries or []
    if owner.flow:
        new = f"{style.key(name, owner, flow=True)}{style.joint(owner)}{style.inline(value, flow=True)}"
        return _add_in_flow(
            style.lines,
            owner,
            [(e.key.start, e.value.end) for e in entries],
            _index(entries, after),
            new,
        )
    column = style.lines.column(entries[0].key.start)
    shaped = style.entry(name, value, column, owner, joint=style.joint(owner))
    before = after or entries[-1]
    if _open_ended(style.text, before.value):
        # A line after it would give its text a line end that it does not have.
        line_end, start = style.lines.line_end(before.key.start), before.key.start
        return [
            Cut(
                start,
                start,
                "".join(f"{line}{line_end}" for line in shaped) + " " * column,
            )
        ]
    return [_line_after(style.lines, before.value.end, column, shaped)]


def add_item(style: Shaper, owner: Span, value: Value, index: int) -> list[Cut]:
    """An item that was not there.

    Args:
        style: of the file.
        owner: the list it goes into.
        value: the item.
        index: of the item it follows; -1 in an empty list.
    """
    items, lines = owner.items or [], style.lines
    if owner.flow:
        new = style.inline(value, neighbour(owner, index), flow=True)
        return _add_in_flow(lines, owner, [(i.start, i.end) for i in items], index, new)
    column, last = lines.column(owner.start), items[index]
    beside = lines.indent(last.start)[column + 1 :]
    gap = len(beside) if beside and not beside.strip() else 1
    first, *rest = style.block(value, column + 1 + gap, neighbour(owner, index))
    return [_line_after(lines, last.end, column, [f"-{' ' * gap}{first}", *rest])]


def drop_entry(style: Shaper, owner: Span, entry: Entry) -> list[Cut]:
    """A key and its value, taken out of a mapping that has others."""
    lines, entries = style.lines, owner.entries or []
    index, start, end = _index(entries, entry), entry.key.start, entry.value.end
    if owner.flow:
        return _drop_in_flow(lines, owner, [(e.key.start, e.value.end) for e in entries], index)
    if not lines.indent(start).strip():
        return [_whole_lines(lines, start, end)]
    if index or not lines.indent(start).strip(" -") == "":
        raise Unclear
    # The first key of an item stands beside the dash, and the next one takes its place.
    following = entries[1].key.start
    between = style.text[end:following]
    return [Cut(start, end if "#" in between else following, "")]


def drop_item(style: Shaper, owner: Span, index: int) -> list[Cut]:
    """An item, taken out of a list that has others."""
    lines, items = style.lines, owner.items or []
    if owner.flow:
        return _drop_in_flow(lines, owner, [(i.start, i.end) for i in items], index)
    column = lines.column(owner.start)
    dash = _dash(lines, items[index].start, column)
    if lines.indent(dash).strip():
        raise Unclear
    return [_whole_lines(lines, _heading(lines, dash), max(items[index].end, dash + 1))]


def _heading(lines: Lines, dash: int) -> int:
    """Where the comment begins that stands right above an item and belongs to it; the item where there is none."""
    column, first = lines.column(dash), lines.start(dash)
    while first:
        above = lines.start(first - (2 if lines.text[first - 2 : first] == "\r\n" else 1))
        line = lines.text[above:first]
        if not re.match(rf"[ ]{{{column}}}#", line) or _FOR_EDITORS in line:
            break
        first = above
    return first


def _open_ended(text: str, span: Span) -> bool:
    """Whether a value ends in a block of text, and the file with it, in the middle of a line."""
    while span.parts:
        span = span.parts[-1]
    return span.style in ("|", ">") and span.end == len(text)


def _dash(lines: Lines, start: int, column: int) -> int:
    """The dash of an item, which may be some lines above what the item has first."""
    line = lines.start(start)
    while True:
        dash = line + column
        if lines.text[dash : dash + 1] == "-" and dash < lines.end(line):
            return dash
        if line == 0:
            raise Unclear
        line = lines.start(line - (2 if lines.text[line - 2 : line] == "\r\n" else 1))


def _line_after(lines: Lines, end: int, column: int, shaped: list[str]) -> Cut:
    """New lines after the one that a value ends on, and after the comments that are indented below it."""
    at = here = lines.end(end)
    while (following := lines.after(here)) > here:
        line = lines.text[following : lines.end(following)]
        if line.strip() and not (line.lstrip().startswith("#") and len(line) - len(line.lstrip()) > column):
            break
        here = lines.end(following)
        at = here if line.strip() else at
    line_end = lines.line_end(at)
    first, *rest = shaped
    return Cut(at, at, "".join(f"{line_end}{line}" for line in (" " * column + first, *rest)))


def _whole_lines(lines: Lines, start: int, end: int) -> Cut:
    first, after = lines.start(start), lines.after(end)
    if after == lines.end(end) and first:
        # The last line has no line end, and the one before it keeps none either.
        return Cut(first - (2 if lines.text[first - 2 : first] == "\r\n" else 1), after, "")
    return Cut(first, after, "")


def _own_lines(lines: Lines, start: int, end: int) -> bool:
    """Whether nothing but it, a comma and a comment is on its lines."""
    rest = lines.text[end : lines.end(end)]
    return not lines.indent(start).strip() and _REST.match(rest.lstrip(" \t").removeprefix(",")) is not None


def _add_in_flow(lines: Lines, owner: Span, parts: Sequence[tuple[int, int]], index: int, new: str) -> list[Cut]:
    if not parts:
        return [Cut(owner.start + 1, owner.start + 1, new)]
    start, end = parts[index]
    if not _own_lines(lines, start, end):
        return [Cut(end, end, f"{_separator(lines.text, parts, index)}{new}")]
    stop = lines.end(end)
    line = f"{lines.line_end(end)}{lines.indent(start)}{new}"
    if lines.text[end:stop].lstrip(" \t").startswith(","):
        return [Cut(stop, stop, f"{line},")]
    if end == stop:
        return [Cut(end, end, f",{line}")]
    return [Cut(end, end, ","), Cut(stop, stop, line)]


def _drop_in_flow(lines: Lines, owner: Span, parts: Sequence[tuple[int, int]], index: int) -> list[Cut]:
    text = lines.text
    start, end = parts[index]
    if len(parts) == 1:
        inner = text[owner.start + 1 : owner.end - 1]
        if "\n" in inner and "#" not in inner:
            return [Cut(owner.start + 1, owner.end - 1, "")]
        return [Cut(start, _past_comma(text, end), "")]
    last = index == len(parts) - 1
    if _own_lines(lines, start, end):
        cuts = [_whole_lines(lines, start, end)]
        if last and _past_comma(text, end) == end:
            comma = _comma(text, parts[index - 1][1])
            cuts.append(Cut(comma, comma + 1, ""))
        return cuts
    first, stop = (parts[index - 1][1], end) if last else (start, parts[index + 1][0])
    if "#" in text[first:start] or "#" in text[end:stop]:
        raise Unclear
    return [Cut(first, stop, "")]


def _separator(text: str, parts: Sequence[tuple[int, int]], index: int) -> str:
    """What stands between this part and its neighbour, where that is a comma and spaces."""
    one = index if index + 1 < len(parts) else index - 1
    found = text[parts[one][1] : parts[one + 1][0]] if one >= 0 else ""
    return found if re.fullmatch(r", *", found) else ", "


def _past_comma(text: str, end: int) -> int:
    found = re.compile(r"[ \t]*,").match(text, end)
    return found.end() if found else end


def _comma(text: str, at: int) -> int:
    """The comma after a value, past comments."""
    found = re.compile(r"(?:\s|#.*)*").match(text, at)
    assert found is not None, "it matches nothing as well"
    return found.end()


def _index(entries: Sequence[Entry], entry: Entry | None) -> int:
    return next((i for i, e in enumerate(entries) if e is entry), len(entries) - 1)
