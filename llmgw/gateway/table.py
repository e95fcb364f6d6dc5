"""The table in use: followed from control, kept on disk, and served on with while control is away."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmgw.core.table import Table, TableModel
from llmgw.errors import OperatorError
from llmgw.gateway.link import ControlLink
from llmgw.net.decoding import decode

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.5
RETRY_MOST_S = 15.0


@dataclass(frozen=True)
class Snapshot:
    """One table, with its names looked up. Never changed: a new table is a new snapshot."""

    table: Table
    names: Mapping[str, TableModel]
    """By name and alias."""

    @classmethod
    def of(cls, table: Table) -> Snapshot:
        names = {alias: m for m in table.models for alias in m.aliases}
        # A name is never taken over by another model's alias.
        return cls(table, {**names, **{m.name: m for m in table.models}})

    def find(self, name: str) -> TableModel | None:
        return self.names.get(name)


class TableFollower:
    """Has the last table control gave, and waits for the next."""

    def __init__(self, link: ControlLink, file: Path, wait_s: float) -> None:
        """`file` is where the table is kept; `wait_s` is how long control holds a request for the next."""
        self._link, self._file, self._wait_s = link, file, wait_s
        self.changed: Callable[[], None] = lambda: None
        """Called after each new table."""
        self.current: Snapshot | None = None
        """None: control has never given one to this gateway."""
        self.away = ""
        """What is wrong with control. Empty: it answered the last time."""

    def load(self) -> None:
        """Take up the table of before the restart, if there is one that can be read."""
        try:
            kept = self._file.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("the kept table cannot be read: %s", error)
            return
        try:
            self.current = Snapshot.of(decode(kept, Table))
        except msgspec.DecodeError as error:
            log.warning("the kept table is of no use, and control is waited for: %s", error)

    def find(self, name: str) -> TableModel | None:
        return None if self.current is None else self.current.find(name)

    async def run(self) -> None:
        """Follow control until cancelled."""
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            began, was_away = loop.time(), bool(self.away)
            try:
                news = await self._once()
            except OperatorError as error:
                self._say_away(error)
                failures += 1
                await asyncio.sleep(_pause(failures))
                continue
            self._say_back()
            failures = 0
            # Whoever answers at once that nothing is new is not asked again at once.
            if not news and not was_away and loop.time() - began < 1:
                await asyncio.sleep(1)

    async def _once(self) -> bool:
        """One look. Whether the table is another now."""
        version = "" if self.current is None else self.current.table.version
        # Control that was away is not waited for with its next news: it is back as soon as it answers at all.
        body = await self._link.table(version, 0 if self.away else self._wait_s)
        if body is None:
            return False
        try:
            table = decode(body, Table)
        except msgspec.DecodeError as error:
            raise OperatorError(
                "control's table is not understood",
                why=str(error),
                do="see that control and gateway are of versions that go together",
            ) from None
        if self.current is not None and table.version == self.current.table.version:
            return False
        self.current = Snapshot.of(table)
        self.changed()
        log.info("a new table is in use", extra={"table": table.version, "models": len(table.models)})
        await asyncio.to_thread(self._keep, body)
        return True

    def _keep(self, body: bytes) -> None:
        # It holds the engines' keys: nobody else reads it, and half of one is never found.
        part = self._file.with_name(self._file.name + ".part")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
                f.write(body)
                f.flush()
                os.fsync(f.fileno())
            part.replace(self._file)
        except OSError as error:
            log.warning("the table cannot be kept for a restart: %s", error)

    def _say_away(self, error: OperatorError) -> None:
        # Said when it begins and when it becomes something else, and not each time.
        if error.what != self.away:
            log.warning("serving on with the last table: %s", error.sentence)
        self.away = error.what

    def _say_back(self) -> None:
        if self.away:
            log.info("control answers again")
        self.away = ""


def _pause(failures: int) -> float:
    # Half of it by chance, so that gateways do not come back to a restarted control as one.
    most = min(RETRY_MOST_S, RETRY_FIRST_S * 2 ** min(failures, 10))
    return random.uniform(most / 2, most)  # noqa: S311
