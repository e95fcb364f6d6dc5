"""Engines' logs: the last few starts, each within a bound."""

from __future__ import annotations

import os

import pytest

from llmgw_agent import logs
from llmgw_agent.logs import Logs


def test_a_log_past_its_bound_is_cut_while_the_engine_writes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_BYTES", 100)
    log = Logs(tmp_path).new("m/cpu/0", 1, 1)
    with log.open("ab", buffering=0) as engine:  # to append, as an engine holds it
        engine.write(b"a" * 101)
        logs.bound(log)
        engine.write(b"b")
        logs.bound(log)

    assert log.read_bytes() == b"b"
    assert log.with_suffix(".log.1").read_bytes() == b"a" * 101


def test_a_log_that_is_not_there_needs_no_bound(tmp_path):
    logs.bound(tmp_path / "none.log")


def test_the_newest_starts_are_kept_over_all_generations(tmp_path):
    kept = Logs(tmp_path)
    for generation, start in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (10, 1)]:
        kept.new("m/cpu/0", generation, start).touch()

    names = [log.name for log in kept.starts("m/cpu/0")]

    assert names == ["000010-0001.log", "000003-0001.log", "000002-0002.log", "000002-0001.log", "000001-0002.log"]


@pytest.mark.parametrize(("days", "there"), [(13, True), (15, False)])
def test_an_id_that_has_not_been_started_for_two_weeks_leaves_nothing(tmp_path, days, there):
    kept = Logs(tmp_path)
    old = kept.new("old/cpu/0", 1, 1)
    old.touch()
    then = old.stat().st_mtime - days * 86400
    os.utime(old.parent, (then, then))

    kept.new("m/cpu/0", 1, 1)

    assert old.exists() == there
