"""What an agent must know of its replicas when it starts again, one folder a replica and generation.

replicas/<id>@<generation>/record.json   written and on disk before its content is reported
replicas/<id>@<generation>/key           the engine's own key, 0600
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from llmgw_agent import durable
from llmgw_agent.process import Identity
from llmgw_agent.protocol import Dossier, InstalledEngine, ReplicaOrder
from llmgw_agent.supervisor import State

LOG = logging.getLogger(__name__)

Key = tuple[str, int]
"""Id and generation: two generations of one id are two replicas."""


def boot_clock() -> float:
    """Seconds since the boot: one clock for every process until the next boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Started(Struct, frozen=True, omit_defaults=True):
    """One start of an engine: what it was started as, and the process that came of it."""

    order: ReplicaOrder
    """As it was then: what runs, whatever the orders say by now."""
    engine: InstalledEngine
    marker: str
    address: str
    port: int
    log: str
    """The file its output goes to."""
    key: str = ""
    """The engine's own key, besides the file it was given: without it nobody can use the engine."""
    process: Identity | None = None
    """None while it is being made: after a crash in that moment only the marker finds it."""
    at_s: float = 0.0
    """When, on the clock that starts with the boot."""
    kernel_kills: int | None = None
    """How often the kernel had ended something for want of memory by then."""

    @property
    def log_path(self) -> Path:
        return Path(self.log)


class Record(Struct, frozen=True, omit_defaults=True):
    """One replica, as it should be found again."""

    order: ReplicaOrder
    state: State
    boot: str
    """The boot all the times below belong to."""
    since_s: float
    """Since when it is in this state."""
    attempts: int = 0
    starts: int = 0
    """Of all kinds, to give each its own log."""
    dossier: Dossier | None = None
    started: Started | None = None
    memory_peak_bytes: int = 0
    card_peak_bytes: int = 0


class Records:
    """The folder of all records."""

    def __init__(self, folder: Path) -> None:
        self._folder = durable.private_folder(folder)

    def load(self) -> list[Record]:
        """Every record that can be read, by name. One that cannot is set aside and said."""
        found = []
        for file in sorted(self._folder.glob("*/record.json")):
            try:
                found.append(durable.decode(file.read_bytes(), Record))
            except (OSError, durable.Damaged) as e:
                why = {"file": str(file), "why": str(e)}
                LOG.warning("a replica's record cannot be read and is set aside", extra=why)
                with suppress(OSError):  # a disk that takes nothing leaves it where it is
                    file.replace(file.with_suffix(".unreadable"))
        return found

    def save(self, record: Record) -> None:
        folder = durable.private_folder(self._of((record.order.id, record.order.generation)))
        durable.write(folder / "record.json", msgspec.json.encode(record))

    def forget(self, key: Key) -> None:
        shutil.rmtree(self._of(key), ignore_errors=True)

    def has(self, key: Key) -> bool:
        """Whether a record of this replica is on disk."""
        return (self._of(key) / "record.json").exists()

    def key_file(self, key: Key) -> Path:
        """The file with the replica's engine key."""
        return self._of(key) / "key"

    def new_key(self, key: Key) -> str:
        """A new random key for its engine, on disk for it to read."""
        value = secrets.token_urlsafe(32)
        self.keep_key(key, value)
        return value

    def keep_key(self, key: Key, value: str) -> None:
        """Have the key of its engine on disk."""
        durable.private_folder(self._of(key))
        durable.write(self.key_file(key), value.encode())

    def engine_key(self, key: Key) -> str:
        """The key in its file; empty when it is lost, or damaged."""
        found = durable.read_text(self.key_file(key)) or ""
        # It goes into a header: nothing else than what we made may reach one.
        return found if found.isascii() and found.isprintable() else ""

    def _of(self, key: Key) -> Path:
        return self._folder / f"{slug(key[0])}@{key[1]}"


def slug(replica_id: str) -> str:
    """An id as one file name, whatever it holds."""
    name = quote(replica_id, safe="")[:200]
    # No name leads out of its folder, or is left out of a look at it.
    return f"%2E{name[1:]}" if name.startswith(".") else name
