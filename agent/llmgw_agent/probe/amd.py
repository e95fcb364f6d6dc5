"""AMD cards, as amd-smi tells of them in JSON, whose shapes differ by version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from llmgw_agent.probe.card_class import card_class
from llmgw_agent.probe.holders import largest, program, rounded
from llmgw_agent.protocol import Card

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
"""amd-smi counts in powers of two, whichever way it writes them."""


def read(static: bytes, metric: bytes, process: bytes, *, ours: Collection[int]) -> list[Card]:
    """The cards.

    Args:
        static: of `amd-smi static --asic --vram --json`.
        metric: of `amd-smi metric --mem-usage --ecc --json`.
        process: of `amd-smi process --json`.
        ours: pids of our engines, whose memory on a card is not others'.
    """
    now, running = _by_card(metric), _by_card(process)
    cards = []
    for number, said in _by_card(static).items():
        name, memory = str(_at(said, "asic", "market_name") or ""), _bytes(_at(said, "vram", "size"))
        serial = str(_at(said, "asic", "asic_serial") or "").removeprefix("0x").lower()
        if memory is None or not re.fullmatch(r"[0-9a-f]{1,16}", serial):
            continue  # what has no memory of its own, or no name to give to an engine
        moving = now.get(number, {})
        used, running_here = _bytes(_at(moving, "mem_usage", "used_vram")), list(_processes(running.get(number, {})))
        own = sum(held for pid, held, _ in running_here if pid in ours)
        errors = _at(moving, "ecc", "total_uncorrectable_count")
        cards.append(
            Card(
                # As ROCR_VISIBLE_DEVICES takes it.
                f"GPU-{serial:0>16}",
                name,
                "amd",
                card_class(name, memory),
                memory,
                None if used is None else rounded(max(0, used - own)),
                processes=largest(p for p in running_here if p[0] not in ours),
                errors=("uncorrectable ecc",) if isinstance(errors, int) and errors > 0 else (),
            )
        )
    return cards


def held(process: bytes, ours: Collection[int]) -> Counter[int]:
    """Bytes that processes of ours hold, on all cards together."""
    found: Counter[int] = Counter()
    for said in _by_card(process).values():
        found.update({pid: size for pid, size, _ in _processes(said) if pid in ours})
    return found


def _by_card(said: bytes) -> dict[int, Mapping[str, Any]]:
    """What is said of each card, by its number. A list, or one under `gpu_data` in later versions."""
    try:
        value = msgspec.json.decode(said)
    except msgspec.DecodeError:
        return {}
    rows = value.get("gpu_data") if isinstance(value, dict) else value
    return {
        row["gpu"]: row
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and isinstance(row.get("gpu"), int)
    }


def _processes(said: Mapping[str, Any]) -> Iterator[tuple[int, int, str]]:
    listed = said.get("process_list")
    for entry in listed if isinstance(listed, list) else ():
        of = _at(entry, "process_info")
        pid, held, name = _at(of, "pid"), _bytes(_at(of, "memory_usage", "vram_mem")), _at(of, "name")
        if isinstance(pid, int) and held is not None:
            yield pid, held, "" if name == "N/A" else program(str(name or ""))


def _at(value: Any, *way: str) -> Any:
    """What is at the end of a way, or None where it does not lead there."""
    for key in way:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _bytes(said: Any) -> int | None:
    """A size as `{value, unit}`. None where it is not one."""
    value, unit = _at(said, "value"), _UNITS.get(str(_at(said, "unit")))
    return value * unit if isinstance(value, int) and value >= 0 and unit else None
