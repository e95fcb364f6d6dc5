"""The time zones there are, out of the database of the system or of Python.

It is read where a zone other than UTC is written and not at import, which would
cost every command a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from llmgw.catalog.problem import Finding, Steps


def zone_problem(zone: str, at: Steps) -> Iterator[Finding]:
    """What is wrong with a name of a time zone that has the right form."""
    # A machine without the database knows none, and there any name will do.
    if _known(zone) or not _known("Etc/GMT"):
        return
    close = get_close_matches(zone, sorted(available_timezones()), n=1)
    why = "the IANA database has no zone of that name"
    do = f"write `{close[0]}`" if close else "write one like `Europe/Berlin`, or UTC"
    yield Finding(at, f"`{at[-1]}` cannot be `{zone}`", why, do)


@lru_cache(1000)
def _known(zone: str) -> bool:
    if zone == "UTC":
        return True
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
