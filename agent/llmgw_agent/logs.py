"""What engines printed: a file for each start, the last few kept, none without a bound."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from msgspec import json

from llmgw_agent import durable
from llmgw_agent.protocol import Dossier
from llmgw_agent.records import slug

KEEP_STARTS = 5
"""Of one id, over all its generations."""
KEEP_DAYS = 14
"""Of an id that has not been started for so long nothing is kept."""
MAX_BYTES = 16 << 20
"""A log longer than this is moved to `….1`, and the one before it is dropped."""


class Logs:
    """The folder of all logs: `<id>/<generation>-<start>.log`, and beside it why that start failed."""

    def __init__(self, folder: Path) -> None:
        self._folder = durable.private_folder(folder)

    def new(self, replica_id: str, generation: int, start: int) -> Path:
        """The file for one start. What is too old goes."""
        durable.private_folder(self._folder)
        self._drop_old_ids()
        folder = durable.private_folder(self._folder / slug(replica_id))
        for old in self.starts(replica_id)[KEEP_STARTS - 1 :]:
            for file in (old, old.with_suffix(".log.1"), old.with_suffix(".json")):
                file.unlink(missing_ok=True)
        os.utime(folder)
        return self.path(replica_id, generation, start)

    def starts(self, replica_id: str) -> list[Path]:
        """The logs of an id, the newest first."""
        return sorted((self._folder / slug(replica_id)).glob("*.log"), reverse=True)

    def start_of(self, log: Path) -> int:
        """Which start of its generation a log is of; 0 when it is none of these logs."""
        found = re.match(r"\d+-(\d{1,9})\.log", log.name)
        return int(found[1]) if found and log.is_relative_to(self._folder) else 0

    def path(self, replica_id: str, generation: int, start: int) -> Path:
        """Where the output of a start goes."""
        return self._folder / slug(replica_id) / f"{generation:06}-{start:04}.log"

    def _drop_old_ids(self) -> None:
        limit = time.time() - KEEP_DAYS * 86400
        for folder in self._folder.iterdir():
            if folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)


def explain(log: Path, dossier: Dossier) -> None:
    """Leave beside a log why that start failed. On a full disk it is in the report all the same."""
    with suppress(OSError):
        durable.write(log.with_suffix(".json"), json.encode(dossier))


def bound(log: Path) -> None:
    """Keep a log that an engine writes to under its bound.

    The engine holds the file itself, opened to append: so it is copied and cut,
    and not renamed. A line written in between may be lost.
    """
    try:
        if log.stat().st_size <= MAX_BYTES:
            return
        shutil.copyfile(log, log.with_suffix(".log.1"))
        os.truncate(log, 0)
    except OSError:
        # A full disk must not end the watch over an engine.
        return
