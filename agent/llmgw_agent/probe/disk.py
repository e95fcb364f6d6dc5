"""How fast weights come: off this node's disk, and from the mirror.

The disk is read past the page cache, since a model that was not loaded lately
comes from there. Where the filesystem cannot do that, nothing is said.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from llmgw_agent import durable

LEAST_BYTES = 64 << 20
"""Less is over before a disk or a connection has come up to its speed."""
MOST_BYTES = 512 << 20
BLOCK_BYTES = 4 << 20
BUDGET_S = 2.0


class Rates(Struct, frozen=True, omit_defaults=True):
    """10^9 bytes a second. None: nothing large enough was read yet."""

    read_gbs: float | None = None
    fetch_gbs: float | None = None


def kept(file: Path) -> Rates:
    """What was measured on this machine before."""
    try:
        return durable.decode(file.read_bytes(), Rates)
    except (OSError, durable.Damaged):
        return Rates()


def keep(file: Path, rates: Rates) -> None:
    """Write down what was measured, for the next start. Raises OSError."""
    durable.write(file, msgspec.json.encode(rates))


def rate(size: int, seconds: float) -> float | None:
    """So many bytes in so many seconds, to two digits: it is no news that it was a little different this time."""
    if size < LEAST_BYTES or seconds <= 0:
        return None
    return float(f"{size / seconds / 1e9:.2g}")


def read_gbs(file: Path) -> float | None:
    """How fast a file comes off its disk; at most half a gigabyte of it is read, in two seconds.

    None: it is too small, it cannot be read, or its filesystem reads through a cache only.
    """
    try:
        at = os.open(file, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with mmap.mmap(-1, BLOCK_BYTES) as block:
            came, began = 0, time.perf_counter()
            until = began + BUDGET_S
            while came < MOST_BYTES and time.perf_counter() < until:
                read = os.readv(at, [block])
                came += read
                if read < BLOCK_BYTES:
                    break  # the end of it
            return rate(came, time.perf_counter() - began)
    except OSError:
        return None
    finally:
        os.close(at)
