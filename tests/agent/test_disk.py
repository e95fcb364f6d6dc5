"""How fast weights come: off the disk, past its cache, and from the mirror."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmgw_agent.probe import disk


def a_file(at: Path, size: int) -> Path:
    with at.open("wb") as file:
        file.truncate(size)
    return at


def test_a_large_file_says_how_fast_its_disk_is(tmp_path: Path) -> None:
    file = a_file(tmp_path / "m.gguf", disk.LEAST_BYTES)
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this filesystem reads through its cache only")

    found = disk.read_gbs(file)

    assert found is not None
    assert 0.001 < found < 1000


def test_what_is_small_or_gone_or_no_file_says_nothing(tmp_path: Path) -> None:
    small = a_file(tmp_path / "small", disk.LEAST_BYTES - 1)

    assert [disk.read_gbs(path) for path in (small, tmp_path / "gone", tmp_path)] == [None, None, None]


@pytest.mark.parametrize(
    ("size", "seconds", "gbs"),
    [(10**9, 1.0, 1.0), (10**10, 7.0, 1.4), (10**9, 0.0, None), (disk.LEAST_BYTES - 1, 1.0, None)],
)
def test_a_rate_is_of_what_was_large_enough_to_two_digits(size: int, seconds: float, gbs: float | None) -> None:
    assert disk.rate(size, seconds) == gbs


def test_what_was_measured_is_known_after_a_restart_and_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    file = tmp_path / "disk.json"
    assert disk.kept(file) == disk.Rates()

    disk.keep(file, disk.Rates(1.2, 0.11))
    assert disk.kept(file) == disk.Rates(1.2, 0.11)

    file.write_bytes(b"{")
    assert disk.kept(file) == disk.Rates()
