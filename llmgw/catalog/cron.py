"""Whether five fields of cron name a time: what a pattern cannot say of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from llmgw.catalog.problem import Finding, Steps

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: n for n, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 7, {name: n for n, name in enumerate(_DAYS)}),
)
_PART = re.compile(r"(\*|(\w+)(-(\w+))?)(/(\d{1,2}))?", re.ASCII)
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of each month, in the longest year."""


def cron_problem(cron: str, at: Steps) -> Iterator[Finding]:
    """What is wrong with an expression of five fields."""
    read: list[set[int]] = []
    for text, (name, low, high, words) in zip(cron.split(" "), _FIELDS, strict=True):
        found = _values(text, low, high, words)
        if found is None:
            why = f"the {name} is {low} to {high}, `*`, a range, a step like `*/2`, or a list of these"
            yield Finding(at, f"`cron` has the {name} `{text[:40]}`", why, "write one like `0 7 * * 1-5`")
            return
        read.append(found)
    _, _, days, months, weekdays = read
    if len(weekdays) >= len(_DAYS) and not any(d <= _LONGEST[m - 1] for d, m in product(days, months)):
        yield Finding(at, "`cron` names no day", "no such month has such a day", "write a day that there is")


def _values(text: str, low: int, high: int, words: dict[str, int]) -> set[int] | None:
    """What one field stands for, or None where it is none."""
    values: set[int] = set()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            return None
        begin, end = _end(found[2], words, low), _end(found[4], words, high if found[6] or not found[2] else None)
        end = begin if end is None else end
        if begin is None or end is None or found[6] in {"0", "00"} or not low <= begin <= end <= high:
            return None
        values |= set(range(begin, end + 1, int(found[6] or 1)))
    return values


def _end(text: str | None, words: dict[str, int], absent: int | None) -> int | None:
    if text is None:
        return absent
    named = words.get(text.upper())
    return named if named is not None else int(text) if re.fullmatch(r"[0-9]{1,2}", text) else None
