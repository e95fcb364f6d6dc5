"""Programs that are not ours and hold memory, so that a person can find what is in the way."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from llmgw_agent.protocol import ForeignProcess

MOST = 5
"""That are named."""
ROUND_BYTES = 64 << 20
"""Less is noise, and would make every report a new one."""
LEAST_BYTES = 1 << 30
"""Of a machine's memory: who holds less is in nobody's way."""

PROC = Path("/proc")


def rounded(size: int) -> int:
    """A size as it is reported."""
    return size // ROUND_BYTES * ROUND_BYTES


def largest(found: Iterable[tuple[int, int, str]]) -> tuple[ForeignProcess, ...]:
    """The largest of some programs, each given as pid, bytes and name. What rounds to nothing is left out."""
    named = (ForeignProcess(pid, rounded(size), name) for pid, size, name in found if size >= ROUND_BYTES)
    return tuple(sorted(named, key=lambda p: (-p.bytes, p.pid))[:MOST])


def program(said: str) -> str:
    """A program's name without its folder and its words: those may hold what is nobody's business."""
    words = said.split()
    name = words[0].rpartition("/")[2] if words else ""
    return "" if name.startswith("[") else "".join(c for c in name if c.isprintable())[:64]


def of_memory(ours: Collection[int], proc: Path = PROC) -> tuple[ForeignProcess, ...]:
    """Who holds most of the machine's memory, what is shared with files left out. Those that ended meanwhile do not.

    Args:
        ours: pids of our engines.
        proc: where the kernel tells of processes.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdecimal() or int(folder.name) in ours:
            continue
        with suppress(OSError, ValueError, IndexError):
            resident, shared = (folder / "statm").read_bytes().split()[1:3]
            own = (int(resident) - int(shared)) * page
            if own >= LEAST_BYTES:
                found.append((int(folder.name), own, program((folder / "comm").read_text(errors="replace"))))
    return largest(found)
