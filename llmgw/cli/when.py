"""Times as a person gives them, and as they are shown: UTC, always."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from llmgw.errors import Misused
from llmgw.sources.history_files import iso
from llmgw.units import parse_duration

FORMS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m")
_AGO = re.compile(r"(\d{1,6}) ?(minute|hour|day|week)s? ago")
_SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86_400.0, "week": 604_800.0}


def when(text: str, now: float) -> float | None:
    """UTC seconds of `2026-12-01`, `2026-12-01T10:00Z`, `2 days ago` or `90m ago`. None: it is no time.

    Args:
        text: what was given.
        now: UTC seconds.
    """
    given = " ".join(text.split())
    if found := _AGO.fullmatch(given):
        return now - int(found[1]) * _SECONDS[found[2]]
    if given.endswith(" ago"):
        try:
            return now - parse_duration(given.removesuffix(" ago"))
        except ValueError:
            return None
    moment = given.removesuffix("Z").replace(" ", "T")
    for form in FORMS:
        try:
            return datetime.strptime(moment, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def asked(text: str, flag: str, now: float) -> float:
    """The same, of a flag that takes nothing else; a duration alone is so long ago.

    Raises:
        Misused: it is no time.
    """
    found = when(text, now)
    if found is None:
        found = when(f"{text} ago", now)
    if found is None:
        raise Misused(
            f"{flag} {text} is no time",
            why="it is none of the forms that are known",
            do="write it like 2026-12-01, 2026-12-01T10:00Z (UTC), or 2d",
        )
    return found


def utc(at: float) -> str:
    """`2026-12-01 02:10`."""
    return iso(at)[:16].replace("T", " ")


def utc_s(at: float) -> str:
    """`2026-12-01 02:10:05`."""
    return iso(at)[:19].replace("T", " ")
