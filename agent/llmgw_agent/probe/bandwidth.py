"""How fast this machine reads its memory: what bounds an engine on a CPU.

A token of an answer reads the whole model once, so the rate of reading is its
speed. It is measured by looking for a byte that is not there: the C library
does that at the memory's rate, and without Python's lock, so that threads read
at the same time.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

from llmgw_agent import durable
from llmgw_agent.process import boot_id

LEAST_BYTES = 256 << 20
"""Less than this, or than `CACHES` times the last-level cache, would be read from the cache."""
MOST_BYTES = 2 << 30
CACHES = 8
PASSES = 4
"""Of each kind. The best counts: whatever else runs makes one slower, and nothing makes one quicker."""
BUDGET_S = 1.0
"""No pass begins after this."""


class Rates(Struct, frozen=True):
    """10^9 bytes a second."""

    all_gbs: float
    """With every core reading."""
    core_gbs: float
    """With one."""


class _Kept(Struct, frozen=True):
    machine: str
    """Rates of another machine, or of one that was changed, are not its own."""
    boot: str
    rates: Rates


def measure(*, threads: int | None = None, buffer_bytes: int | None = None) -> Rates | None:
    """The rates now, in about a second of all cores. None: there is not enough memory to tell them from the cache's.

    Args:
        threads: that read together. None: one for each core that may be used.
        buffer_bytes: that they read. None: by the cache and what is free.
    """
    cores = threads or len(os.sched_getaffinity(0))
    size = buffer_bytes or _buffer_bytes(psutil.virtual_memory().available, last_level_cache())
    if size is None:
        return None
    with mmap.mmap(-1, size) as buffer:
        whole = (ctypes.c_char * size).from_buffer(buffer)
        try:
            start, part = ctypes.addressof(whole), size // cores
            parts = [(start + n * part, part) for n in range(cores)]
            # Each writes the part that it will read: then it is near it.
            _together(lambda at, length: ctypes.memset(at, 0, length), parts)
            until = time.monotonic() + BUDGET_S
            every = _best(parts, until)
            alone = _best(parts[:1], until)
        finally:
            del whole
    return Rates(round(max(every, alone), 1), round(alone, 1))


def kept(file: Path) -> Rates | None:
    """What was measured of this machine before, at whatever boot. None: nothing was."""
    found = _read(file)
    return found.rates if found is not None else None


def measured(file: Path, boot: str = "", take: Callable[[], Rates | None] = measure) -> Rates | None:
    """The rates of this machine: measured once a boot, and never less than what was measured before.

    Args:
        file: where they are kept.
        boot: the boot it is measured in. Empty: this one.
        take: measures now.
    """
    before, boot = _read(file), boot or boot_id()
    if before is not None and before.boot == boot:
        return before.rates
    found = take()
    if before is not None:
        # Engines that went on through a restart of the agent read as well, and made it slower.
        now = found or before.rates
        found = Rates(max(now.all_gbs, before.rates.all_gbs), max(now.core_gbs, before.rates.core_gbs))
    if found is not None:
        durable.write(file, msgspec.json.encode(_Kept(_machine(), boot, found)))
    return found


def _best(parts: list[tuple[int, int]], until: float) -> float:
    """10^9 bytes a second of the quickest pass. There is always one."""
    best = 0.0
    for _ in range(PASSES):
        began = time.perf_counter()
        _together(_scan, parts)
        best = max(best, sum(length for _, length in parts) / (time.perf_counter() - began) / 1e9)
        if time.monotonic() > until:
            break
    return best


def _together(do: Callable[[int, int], object], parts: list[tuple[int, int]]) -> None:
    workers = [threading.Thread(target=do, args=part, daemon=True) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


_memchr = ctypes.CDLL(None).memchr
_memchr.restype = ctypes.c_void_p
_memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


def _scan(start: int, length: int) -> object:
    return _memchr(start, 1, length)


def _buffer_bytes(available: int, cache: int) -> int | None:
    """How much is read, or None where there is too little: a quarter of what is free at the most."""
    least = max(LEAST_BYTES, CACHES * cache)
    size = min(least, MOST_BYTES, available // 4)
    return size if size >= min(least, MOST_BYTES) else None


def last_level_cache(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the largest cache of a core. 0: the kernel does not say."""
    sizes = [durable.read_text(path) or "" for path in sorted(cpu.glob("index*/size"))]
    numbers = [text.strip().removesuffix("K") for text in sizes]
    return max((int(text) << 10 for text in numbers if text.isdigit()), default=0)


def _machine() -> str:
    """What makes it another machine: its processor, its cores and its memory."""
    info = durable.read_text(Path("/proc/cpuinfo")) or ""
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "")
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {psutil.virtual_memory().total} bytes"


def _read(file: Path) -> _Kept | None:
    """What is kept of this machine."""
    try:
        found = durable.decode(file.read_bytes(), _Kept)
    except (OSError, durable.Damaged):
        return None
    return found if found.machine == _machine() else None
