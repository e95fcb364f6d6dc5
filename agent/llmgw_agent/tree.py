"""What an engine and everything it started use, and whether they are doing anything."""

from __future__ import annotations

from contextlib import suppress

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
    rounded = memory // ROUND_BYTES * ROUND_BYTES
    return Usage(tuple(pids), rounded, own, moved)
