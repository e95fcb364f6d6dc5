"""What the kernel's log says of cards: NVIDIA's Xids, by the address of the card."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

KMSG = Path("/dev/kmsg")

OF_THE_CARD = frozenset({46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143})
"""Xids after which NVIDIA says to reset the card, or to start the machine anew. The others are mostly the program's
own doing, such as 13, 31 and 43: an engine that reads past its memory makes no card suspect."""

COUNTS_S = 3600.0
"""How long one is held against its card: nothing in the log says that the card was reset since."""

MOST_RECORDS = 20_000
"""Of one look: as many as the kernel keeps."""

_XID = re.compile(rb"NVRM: Xid \(PCI:([0-9A-Fa-f:]{4,16})(?:\.[0-9])?\): ([0-9]{1,4})\b")


class KernelLog:
    """The log, read on from where it was left."""

    def __init__(self, path: Path = KMSG) -> None:
        """Read nothing yet."""
        self._path = path
        self._file: int | None = None
        self._seen: dict[str, dict[int, float]] = defaultdict(dict)
        """By address and Xid, the seconds since boot of the last one."""

    def xids(self) -> Mapping[str, tuple[int, ...]]:
        """The Xids of late, sorted, by address as `address` writes it. None where the log may not be read."""
        for line in self._new():
            head, _, said = line.partition(b";")
            found = _XID.search(said)
            fields = head.split(b",")
            if found and len(fields) > 2 and fields[2].isdigit():
                code = int(found[2])
                if code in OF_THE_CARD:
                    self._seen[address(found[1].decode())][code] = int(fields[2][:18]) / 1e6
        since = time.clock_gettime(time.CLOCK_MONOTONIC) - COUNTS_S
        late = {card: tuple(sorted(x for x, at in seen.items() if at > since)) for card, seen in self._seen.items()}
        return {card: xids for card, xids in late.items() if xids}

    def close(self) -> None:
        """Let go of the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _new(self) -> list[bytes]:
        """The records that came since the last look. Each is read with one call; a file has them in lines."""
        records: list[bytes] = []
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            for _ in range(MOST_RECORDS):
                try:
                    block = os.read(self._file, 1 << 16)
                except BrokenPipeError:
                    continue  # some were overwritten before they were read
                if not block:
                    break
                records += block.splitlines()
        except OSError:
            pass  # nothing more to read, or it may not be read at all
        return records


def address(pci: str) -> str:
    """A card's address without its function, in one form: `0000:1a:00`, whoever says it and however long."""
    domain, _, rest = pci.lower().partition(".")[0].partition(":")
    return f"{domain[-4:]:0>4}:{rest}"
