"""A schedule's five fields name a time, as the library that follows them sees it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.catalog.cron import cron_problem


def good(cron: str) -> bool:
    return not list(cron_problem(cron, ("cron",)))


@pytest.mark.parametrize(
    "cron", ["* * * * *", "0 7 * * 1-5", "*/5 0,12 1-7/2 JAN-MAR mon", "0 0 29 2 *", "0 0 * * 7", "5/10 * * * sun,3"]
)
def test_a_time_is_named(cron):
    assert good(cron)
    next(CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("cron", "what"),
    [
        ("60 * * * *", "`cron` has the minute `60`"),
        ("* 24 * * *", "`cron` has the hour `24`"),
        ("* * 0 * *", "`cron` has the day of the month `0`"),
        ("* * * 13 *", "`cron` has the month `13`"),
        ("* * * * 8", "`cron` has the day of the week `8`"),
        ("* * * * mo", "`cron` has the day of the week `mo`"),
        ("*/0 * * * *", "`cron` has the minute `*/0`"),
        ("5-1 * * * *", "`cron` has the minute `5-1`"),
        ("1,, * * * *", "`cron` has the minute `1,,`"),
        ("0 0 30 2 *", "`cron` names no day"),
        ("0 0 31 4,6 *", "`cron` names no day"),
    ],
)
def test_what_names_no_time_is_refused(cron, what):
    (finding,) = cron_problem(cron, ("cron",))

    assert finding.what == what
    assert finding.do


numbers = st.integers(0, 62).map(str)
parts = st.one_of(
    st.just("*"),
    numbers,
    st.tuples(numbers, numbers).map("-".join),
    st.tuples(st.sampled_from(["*", "1-9", "3"]), st.integers(0, 9).map(str)).map("/".join),
    st.sampled_from(["MON", "jan", "x", ""]),
)
fields = st.lists(parts, min_size=1, max_size=2).map(",".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(fields.filter(bool), min_size=5, max_size=5).map(" ".join))
def test_what_is_taken_here_is_followed_there(cron):
    if good(cron):
        try:
            next(CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration) as e:
            raise AssertionError(cron) from e
