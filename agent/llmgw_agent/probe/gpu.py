"""NVIDIA cards, as nvidia-smi tells of them; in a child that is not waited for when its driver hangs."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from llmgw_agent.protocol import Card

DEADLINE_S = 5.0

CARD_FIELDS = "uuid,name,memory.total,memory.used,compute_cap"
PROCESS_FIELDS = "gpu_uuid,pid,used_memory"

NOMINAL_GIB = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 256, 288)
"""What cards are sold with. Drivers report a little less or more: ECC and reserved memory vary."""

_MIB = 1 << 20
_DROPPED = {"nvidia", "amd", "geforce", "tesla", "quadro", "instinct", "radeon", "gpu", "graphics", "generation"}
_DROPPED |= {"server", "workstation", "edition"}
_DROPPED |= {"sxm", "sxm2", "sxm3", "sxm4", "sxm5", "pcie", "hbm2", "hbm2e", "hbm3", "hbm3e", "nvl", "oam"}


class Cards(Struct, frozen=True):
    """The cards of a machine, and why they could not be read where a driver is there."""

    cards: tuple[Card, ...] = ()
    problem: str = ""


async def look(path: Iterable[Path], ours: Collection[int]) -> Cards:
    """The cards now. None where there is no nvidia-smi.

    `ours`: pids of our engines, whose memory on a card is not others'.
    """
    program = shutil.which("nvidia-smi", path=":".join(map(str, path)))
    if program is None:
        return Cards()
    try:
        cards = await _query(program, f"--query-gpu={CARD_FIELDS}")
        processes = await _query(program, f"--query-compute-apps={PROCESS_FIELDS}")
    except TimeoutError:
        return Cards(problem=f"nvidia-smi does not answer within {DEADLINE_S:g} s: the driver hangs, or a card does")
    except OSError as e:
        return Cards(problem=f"nvidia-smi could not be run: {e.strerror}")
    if isinstance(cards, Failed):
        return Cards(problem=cards.said)
    return Cards(parse(cards, "" if isinstance(processes, Failed) else processes, ours))


class Failed(Struct, frozen=True):
    """nvidia-smi ended with an error, and said this."""

    said: str


async def _query(program: str, query: str) -> str | Failed:
    child = await asyncio.create_subprocess_exec(
        program,
        query,
        "--format=csv,noheader,nounits",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await child.communicate()
    finally:
        if child.returncode is None:
            # Killed, and waited for a moment only: in an uninterruptible call it ends when the driver lets it.
            with suppress(ProcessLookupError, TimeoutError):
                child.kill()
                await asyncio.wait_for(child.wait(), 1)
    text = out.decode(errors="replace").strip()
    if child.returncode:
        return Failed(text.partition("\n")[0][:200] or f"nvidia-smi ended with code {child.returncode}")
    return text


def parse(cards: str, processes: str, ours: Collection[int]) -> tuple[Card, ...]:
    """Cards out of nvidia-smi's two lists. A field it does not know is [N/A], and a row without memory no card."""
    held: Counter[str] = Counter()
    for row in _rows(processes, 3):
        uuid, pid, used = row
        if _number(pid) in ours:
            held[uuid] += _mib(used) or 0
    found = []
    for uuid, name, total, used, capability in _rows(cards, 5):
        memory, in_use = _mib(total), _mib(used)
        if memory is None:
            # Unified memory: it has none of its own, and what it shares is host memory.
            continue
        others = None if in_use is None else max(0, in_use - held[uuid])
        known = "" if "N/A" in capability else capability
        found.append(Card(uuid, name, "nvidia", card_class(name, memory), memory, others, known))
    return tuple(sorted(found, key=lambda c: c.uuid))


def card_class(name: str, memory_bytes: int) -> str:
    """The catalog's name of a card: the product without its maker and form, and the memory it is sold with."""
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    kept = [w for w in words if w not in _DROPPED and not re.fullmatch(r"\d+gb|\d+g", w)]
    return "-".join([*(kept or ["card"]), f"{nominal_gib(memory_bytes)}g"])


def nominal_gib(memory_bytes: int) -> int:
    """The smallest size that is sold and within -8 and +1 percent; else what it is, rounded."""
    gib = memory_bytes / 2**30
    return next((n for n in NOMINAL_GIB if n * 0.92 <= gib <= n * 1.01), round(gib))


def _rows(text: str, width: int) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [row for row in rows if len(row) == width and row[0].startswith(("GPU-", "MIG-"))]


def _mib(cell: str) -> int | None:
    number = _number(cell)
    return None if number is None else number * _MIB


def _number(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"[0-9]{1,15}", cell) else None
