"""History as files of the status branch: `history/<month>.jsonl`, a line for each thing that happened.

A file is of the month in which its lines were written, and is only ever added to.
One that has grown large is followed by `<month>.2.jsonl`, since each commit
carries the whole of the file that it adds to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from llmgw.core.history import Line
from llmgw.sources.objects import YEAR_10000
from llmgw.units import KIB

FOLDER = "history"
PART_BYTES = 256 * KIB
"""No line is added to a file that has come to this: some 30 kB of it go into a commit, packed."""
LARGEST = 2**53
"""Of the numbers in a line: a larger one was written by hand."""

NAME = re.compile(r"(\d{4}-\d{2})(?:\.(\d{1,6}))?\.jsonl")


def iso(at: float) -> str:
    """`2026-12-01T03:04:05Z`."""
    return datetime.fromtimestamp(min(max(at, 0), YEAR_10000 - 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def month_of(name: str) -> str:
    """`2026-12` of a file of that month. Empty: it is none of ours."""
    found = NAME.fullmatch(name)
    return found[1] if found else ""


def in_order(names: Iterable[str]) -> list[str]:
    """The names of ours, oldest first."""
    found = ((m[1], int(m[2] or 1), name) for name in names if (m := NAME.fullmatch(name)))
    return [name for *_, name in sorted(found)]


def written(line: Line) -> bytes:
    """One line of a file, without its end."""
    fields = {k: v for k, v in msgspec.to_builtins(line).items() if k != "at"}
    return msgspec.json.encode({"time": iso(line.at), **fields})


def appended(
    lines: Sequence[bytes], names: Iterable[str], read: Callable[[str], bytes], now: float
) -> dict[str, bytes]:
    """What the youngest file becomes with these lines, by path; nothing where it has all of them.

    Args:
        lines: as `written`.
        names: of the files that are there.
        read: the content of one.
        now: UTC seconds.
    """
    here = in_order(names)
    month = iso(now)[:7]
    name = f"{month}.jsonl"
    before = b""
    # A clock that was set back does not begin a month anew.
    if here and month_of(here[-1]) >= month:
        name = here[-1]
        before = read(name)
    # An answer may get lost when the push was not: then they are there already.
    there = set(before.splitlines())
    new = [line for line in lines if line not in there]
    if not new:
        return {}
    if len(before) >= PART_BYTES:
        found = NAME.fullmatch(name)
        assert found is not None
        name, before = f"{found[1]}.{int(found[2] or 1) + 1}.jsonl", b""
    if before and not before.endswith(b"\n"):
        before += b"\n"
    return {f"{FOLDER}/{name}": before + b"".join(line + b"\n" for line in new)}


def read_lines(files: Mapping[str, bytes]) -> tuple[list[Line], list[str]]:
    """All lines in the order of their time, and a sentence for each that cannot be read.

    Args:
        files: content by name.
    """
    lines: list[Line] = []
    wrong: list[str] = []
    for name in in_order(files):
        for number, raw in enumerate(files[name].splitlines(), 1):
            try:
                lines.append(_line(raw))
            except (ValueError, msgspec.ValidationError, RecursionError) as e:
                why = " ".join(str(e).split())[:200]
                wrong.append(f"{FOLDER}/{name}:{number} is no line of history: {why}")
    return sorted(lines, key=lambda line: line.at), wrong


def _line(raw: bytes) -> Line:
    fields: Any = json.loads(raw)
    if not isinstance(fields, dict):
        raise ValueError("it is no mapping")  # noqa: TRY004 - what is wrong is the text
    time = fields.pop("time", None)
    if not isinstance(time, str) or not time.endswith("Z"):
        raise ValueError("it has no time")
    at = datetime.strptime(time, "%Y-%m-%dT%H:%M:%S%z")
    line = msgspec.convert({"at": int(at.timestamp()), **fields}, Line)
    if not (0 <= line.generation < LARGEST and 0 <= line.attempts < LARGEST):
        raise ValueError("it has a number that cannot be")
    line.model  # noqa: B018 - raises ValueError where it is no replica's id
    return line
