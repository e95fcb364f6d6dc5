"""Bounds and windows that follow the calendar."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from llmgw.catalog.scaling import Scaling
from llmgw.catalog.server import FreezeWindow
from llmgw.core.schedule import bounds, is_open

DAYS = Scaling.model_validate(
    {
        "min": 1,
        "max": 8,
        "schedule": [
            {"cron": "0 7 * * 1-5", "time_zone": "Europe/Berlin", "min": 4},
            {"cron": "0 20 * * *", "time_zone": "Europe/Berlin", "min": 0, "max": 2},
        ],
    }
)


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        pytest.param("2026-11-30 06:59", (0, 2), id="the evening before goes on"),
        pytest.param("2026-11-30 07:00", (4, 8), id="from the minute it begins"),
        pytest.param("2026-11-30 20:00", (0, 2), id="until the next begins"),
        pytest.param("2026-11-29 12:00", (0, 2), id="on a day that it does not name"),
        pytest.param("2026-03-30 07:00", (4, 8), id="by the clock on the wall, after it was put forward"),
    ],
)
def test_of_a_schedules_entries_the_one_that_began_last_counts(when, expected):
    assert bounds(DAYS, at(when)) == expected


def test_without_a_schedule_or_with_one_that_never_comes_the_models_own_bounds_count():
    never = {"cron": "0 0 30 2 *", "min": 5}

    assert bounds(Scaling(max=3), at("2026-11-30 12:00")) == (1, 3)
    assert bounds(Scaling.model_validate({"max": 3, "schedule": [never]}), at("2026-11-30 12:00")) == (1, 3)


def test_a_least_above_the_most_is_the_most():
    both = Scaling.model_validate({"max": 3, "schedule": [{"cron": "* * * * *", "min": 5}]})

    assert bounds(both, at("2026-11-30 12:00")) == (3, 3)


@pytest.mark.parametrize(
    ("when", "open_"),
    [("2026-11-27 17:59", False), ("2026-11-27 18:00", True), ("2026-11-30 05:59", True), ("2026-11-30 06:00", False)],
)
def test_a_window_is_open_from_its_beginning_until_its_end(when, open_):
    weekend = FreezeWindow.model_validate(
        {"name": "weekend", "cron": "0 18 * * 5", "time_zone": "Europe/Berlin", "duration": "60h"}
    )

    assert is_open(weekend, at(when)) is open_


@pytest.mark.parametrize(
    ("when", "open_"),
    [
        ("2027-10-31T00:29", False),
        ("2027-10-31T00:30", True),
        ("2027-10-31T00:59", True),
        ("2027-10-31T01:00", True),
        ("2027-10-31T01:29", True),
        ("2027-10-31T01:31", True),
        ("2027-10-31T04:29", True),
        ("2027-10-31T04:30", False),
        ("2027-03-28T00:59", False),
        ("2027-03-28T01:01", True),
        ("2027-03-28T05:00", False),
    ],
)
def test_what_began_goes_on_while_the_clock_is_put_back_or_forward(when, open_):
    zone = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}
    window = FreezeWindow.model_validate({"name": "night", "duration": "4h", **zone})
    scaling = Scaling.model_validate(
        {"max": 8, "schedule": [{**zone, "min": 3}, {"cron": "29 6 * * *", "time_zone": "UTC", "min": 1}]}
    )

    assert is_open(window, at(when, "UTC")) is open_
    if open_:
        assert bounds(scaling, at(when, "UTC")) == (3, 8)


def test_what_comes_each_hour_comes_in_both_of_two_that_are_called_alike():
    hourly = {"name": "hourly", "cron": "0 * * * *", "time_zone": "Europe/Berlin", "duration": "30m"}
    window = FreezeWindow.model_validate(hourly)

    opened = [is_open(window, at(f"2027-10-31T0{h}:{m}", "UTC")) for h in range(3) for m in ("10", "40")]

    assert opened == [True, False] * 3
