"""How fast memory is read: measured once a boot, kept, and never taken from another machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.waiting import until
from llmgw_agent.probe import bandwidth
from llmgw_agent.probe.bandwidth import Rates, kept, last_level_cache, measure, measured
from llmgw_agent.process import boot_id

SMALL = 4 << 20
"""It fits a cache, so nothing is said of the memory by it: that it is read at all is."""


BEFORE = Rates(40.0, 10.0)


def test_one_core_is_never_quicker_than_all_together():
    rates = measure(threads=2, buffer_bytes=SMALL)

    assert rates is not None
    assert 0 < rates.core_gbs <= rates.all_gbs <= 5000


def never():
    raise AssertionError("it was measured again")


def test_a_boot_measures_once(tmp_path):
    assert measured(tmp_path / "rates.json", "boot-1", lambda: BEFORE) == BEFORE
    assert measured(tmp_path / "rates.json", "boot-1", never) == BEFORE
    assert kept(tmp_path / "rates.json") == BEFORE


def test_a_slower_measurement_of_the_next_boot_does_not_count(tmp_path):
    measured(tmp_path / "rates.json", "boot-1", lambda: BEFORE)

    assert measured(tmp_path / "rates.json", "boot-2", lambda: Rates(12.0, 11.0)) == Rates(40.0, 11.0)


def test_a_machine_with_no_room_keeps_what_it_measured_when_it_had(tmp_path):
    measured(tmp_path / "rates.json", "boot-1", lambda: BEFORE)

    assert measured(tmp_path / "rates.json", "boot-2", lambda: None) == BEFORE


ANOTHERS = b'{"machine": "another", "boot": "b", "rates": {"all_gbs": 9, "core_gbs": 9}}'


@pytest.mark.parametrize("held", [b"", b"{", ANOTHERS], ids=["empty", "cut", "another machine's"])
def test_a_damaged_file_and_another_machine_s_are_measured_anew(tmp_path, held):
    (tmp_path / "rates.json").write_bytes(held)

    assert kept(tmp_path / "rates.json") is None
    assert measured(tmp_path / "rates.json", "b", lambda: BEFORE) == BEFORE


def test_too_little_memory_to_tell_it_from_the_cache_is_not_measured():
    assert bandwidth._buffer_bytes(available=1 << 29, cache=1 << 20) is None
    assert bandwidth._buffer_bytes(available=1 << 30, cache=1 << 20) == 256 << 20
    assert bandwidth._buffer_bytes(available=1 << 40, cache=384 << 20) == bandwidth.MOST_BYTES


def test_the_last_level_is_the_largest_cache(tmp_path):
    for index, size in enumerate(("64K", "1024K", "32768K", "what")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}/size").write_text(f"{size}\n")

    assert last_level_cache(tmp_path) == 32 << 20
    assert last_level_cache(tmp_path / "none") == 0


async def test_a_node_reports_what_it_measured_before_at_once_and_measures_again_after_a_boot(agents, control):
    file = agents.settings.state / "bandwidth.json"
    measured(file, "an earlier boot", lambda: Rates(4000.0, 3000.0))
    await agents.start(pace=replace(agents.settings.pace, measure_memory_after_s=0.0))

    inventory = await until(lambda: control.report and control.report.inventory)

    # No machine of tests reads so fast: what it finds now is less, and counts for nothing.
    assert (inventory.memory_gbs, inventory.memory_core_gbs) == (4000.0, 3000.0)
    await until(lambda: boot_id().encode() in file.read_bytes())
    assert kept(file) == Rates(4000.0, 3000.0)
