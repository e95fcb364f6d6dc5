"""What an engine and everything it started use, and whether they are doing anything."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import psutil
from msgspec import Struct

ROUND_BYTES = 1 << 20


class Usage(Struct, frozen=True):
    """One look at a process and its descendants."""

    pids: tuple[int, ...] = ()
    memory_bytes: int = 0
    """Resident, mapped weights included."""
    own_bytes: int = 0
    """Resident and shared with no file: what the machine counts as used because of it."""
    moved_bytes: int = 0
    """Read and written since each of them started."""
    most_bytes: int = 0
    """The most that was ever resident of it, as the kernel kept it; of several processes, what is now."""


def look(pid: int) -> Usage:
    """How much this process and its descendants use. Those that ended meanwhile, or may not be read, count nothing."""
    pids, memory, own, moved = [], 0, 0, 0
    with suppress(psutil.Error):
        main = psutil.Process(pid)
        for process in (main, *main.children(recursive=True)):
            with suppress(psutil.Error):
                figures = process.memory_info()
                pids.append(process.pid)
                memory += figures.rss
                own += max(0, figures.rss - figures.shared)
                io = process.io_counters()
                moved += io.read_chars + io.write_chars + io.read_bytes + io.write_bytes
    # What each of several had at its most was not at one time.
    most = _most(pid) if pids == [pid] else None
    return Usage(tuple(pids), _rounded(memory), own, moved, max(_rounded(most or 0), _rounded(memory)))


def _most(pid: int) -> int | None:
    """VmHWM: bytes of a process that were resident at its most. None where the kernel does not say."""
    with suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(found[1]) << 10 if found else None
    return None


def _rounded(size: int) -> int:
    return size // ROUND_BYTES * ROUND_BYTES
