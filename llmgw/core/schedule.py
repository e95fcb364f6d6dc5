"""Which bounds a schedule sets at a moment: the one module of the core that knows of days and time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from llmgw.catalog.scaling import Scaling, ScheduleEntry
from llmgw.catalog.server import FreezeWindow

MINUTE_S = 60


def bounds(scaling: Scaling, now: float) -> tuple[int, int]:
    """The least and the most replicas at a moment.

    Of the schedule's entries the one that began last counts, and of two that began
    together the one written last.

    Args:
        scaling: of the model.
        now: UTC seconds.
    """
    began = [(at, n) for n, e in enumerate(scaling.schedule) if (at := _began(e, int(now) // MINUTE_S)) is not None]
    if not began:
        return scaling.min, scaling.max
    entry = scaling.schedule[max(began)[1]]
    most = scaling.max if entry.max is None else entry.max
    return min(entry.min, most), most


def is_open(window: FreezeWindow, now: float) -> bool:
    """Whether a window that began last is still open."""
    began = _began(window, int(now) // MINUTE_S)
    return began is not None and now - began < window.duration


def _began(entry: ScheduleEntry | FreezeWindow, minute: int) -> float | None:
    """When an entry last began, in UTC seconds; None: never, or its expression means no time at all."""
    return _last(entry.cron, entry.time_zone, minute)


@lru_cache(maxsize=4096)
def _last(cron: str, zone: str, minute: int) -> float | None:
    # The search starts one minute on, since it looks for times before its start.
    start = datetime.fromtimestamp((minute + 1) * MINUTE_S, UTC).astimezone(_zone(zone))
    starts = [start]
    if start.fold:
        # The clock was put back: what it will show again before it is past, it has shown, and that began then.
        while start.fold:
            start = (start.astimezone(UTC) + timedelta(seconds=MINUTE_S)).astimezone(start.tzinfo)
        starts.append(start)
    began = (at for s in starts if (at := _before(cron, s)) is not None and at <= minute * MINUTE_S)
    return max(began, default=None)


def _before(cron: str, start: datetime) -> float | None:
    try:
        return next(CronSim(cron, start, reverse=True)).timestamp()
    except (CronSimError, StopIteration):
        return None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # The catalog was checked where the zone is known: here the machine lacks the database.
        return ZoneInfo("UTC")
