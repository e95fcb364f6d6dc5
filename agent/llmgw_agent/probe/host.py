"""The machine itself: cores, memory, disk."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
from msgspec import Struct

from llmgw_agent import folder_id

_MIB = 1 << 20
_GIB = 1 << 30


class Host(Struct, frozen=True):
    """What one look at the machine found."""

    hostname: str
    cpu_cores: int
    memory_bytes: int
    memory_used_bytes: int
    """Rounded to 64 MiB: less is noise, and would make every report a new one."""
    disk_free_bytes: int | None
    """On the filesystem of the weights, rounded to 64 MiB. None: it could not be read."""
    weights_id: str = ""
    """Which folder of weights that is. Empty is unknown."""


def look(weights: Path) -> Host:
    """The machine as it is now. Cores are those this process may use, where the owner has limited them."""
    memory = psutil.virtual_memory()
    return Host(
        # A name of bytes that are no text could not be reported.
        hostname=socket.gethostname().encode(errors="replace").decode(),
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory.total,
        memory_used_bytes=_rounded(memory.total - memory.available),
        disk_free_bytes=_free(weights),
        weights_id=folder_id.of(weights),
    )


def used_by_others(host: Host, ours_bytes: int, reserve_bytes: int) -> int:
    """Host memory that is not an engine's: what is used less what ours use, and never less than the reserve."""
    return _rounded(max(reserve_bytes, host.memory_used_bytes - ours_bytes))


def kernel_out_of_memory_kills() -> int | None:
    """How often the kernel has ended a process for want of memory since it booted. None: it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _free(folder: Path) -> int | None:
    try:
        return _rounded(psutil.disk_usage(str(folder)).free)
    except OSError:
        return None


def _rounded(size: int) -> int:
    return size // (64 * _MIB) * (64 * _MIB)
