"""What happens to a fleet, told as it happens: lines for what changes, bars for what takes long."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llmgw.cli.seen import Operator
from llmgw.core.holdings import HoldingState
from llmgw.core.live import Live
from llmgw.core.status import ModelStatus
from llmgw.errors import OperatorError, Unreachable
from llmgw.net.http import Client
from llmgw.sources.readme import ready_of
from llmgw.units import show_bytes

EVERY_S = 0.25
STEPS = 4
"""Without a terminal a transfer is told in quarters."""


class Transfer(NamedTuple):
    """Bytes on their way."""

    what: str
    done: int
    total: int


class Watcher:
    """Asks control how the fleet is, and tells what is new."""

    def __init__(self, who: Operator, *, say: Callable[[str], None]) -> None:
        """Ask nothing yet.

        Args:
            who: where control is.
            say: tells a line.
        """
        self._client = Client(who.control, name="control", key_file=who.key_file, timeout_s=5.0)
        self._say = say
        self._told: dict[str, str] = {}
        self._bars = Bars(say)

    async def until(self, done: Callable[[Live], bool], *, within_s: float, what: str) -> Live:
        """Tell what happens until something is so.

        Args:
            done: whether it is.
            within_s: how long to wait for it.
            what: what is waited for, as an error says it.

        Raises:
            Unreachable: it did not come about in time.
        """
        deadline = time.monotonic() + within_s
        last = "control has not answered yet"
        try:
            while time.monotonic() < deadline:
                try:
                    live = await self._client.get("/v1/status", Live)
                except OperatorError as e:
                    last = e.sentence
                else:
                    self._tell(live)
                    if done(live):
                        return live
                    last = "; ".join((*(h.sentence for h in live.held), *live.trouble)) or "it is still under way"
                await asyncio.sleep(EVERY_S)
        finally:
            self._bars.close()
        raise Unreachable(f"{what} did not come about in {within_s:.0f}s", why=last, do="see llmgw status --live")

    async def forever(self) -> None:
        """Tell what happens until cancelled."""
        while True:
            await self.until(lambda _: False, within_s=float("inf"), what="")

    async def close(self) -> None:
        """End the connection."""
        await self._client.close()

    def _tell(self, live: Live) -> None:
        self._bars.show(list(_transfers(live)))
        for model in live.status.models if live.status else ():
            self._once(model.name, _line(model))
            if model.frozen:
                self._once(f"{model.name} frozen", f"{model.name} {model.frozen}")
        for problem in live.status.problems if live.status else ():
            self._once(problem, f"problem: {problem}")
        for trouble in live.trouble:
            self._once(trouble, f"trouble: {trouble.splitlines()[0]}")

    def _once(self, key: str, line: str) -> None:
        if self._told.get(key) != line:
            self._told[key] = line
            self._say(line)


def _line(model: ModelStatus) -> str:
    why = next((c for c in model.conditions if c.stalled), None) or next(iter(model.conditions), None)
    told = f": {why.why}" + (f"; {why.next}" if why.next else "") if why else ""
    return f"{model.name} {ready_of(model)} {model.state}{told}"


def _transfers(live: Live) -> Iterator[Transfer]:
    if live.observed.mirror is not None:
        for holding in live.observed.mirror.holdings:
            if holding.state in (HoldingState.FETCHING, HoldingState.VERIFYING) and holding.total_bytes:
                yield Transfer(f"mirror fetches {holding.key}", holding.done_bytes, holding.total_bytes)
    for node in live.observed.nodes:
        for version in node.versions:
            if version.state == "arriving" and version.total_bytes:
                yield Transfer(f"{node.name} fetches {version.key}", version.bytes, version.total_bytes)


class Bars:
    """Transfers: a bar each on a terminal, a line for each quarter elsewhere."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Draw nothing yet."""
        self._say = say
        self._drawn: Any = None
        self._rows: dict[str, Any] = {}
        self._quarters: dict[str, int] = {}

    def show(self, transfers: list[Transfer]) -> None:
        """Show how far each is."""
        if sys.stdout.isatty():
            self._draw(transfers)
            return
        for what, done, total in transfers:
            quarter = done * STEPS // total
            if quarter > self._quarters.get(what, -1):
                self._quarters[what] = quarter
                self._say(f"{what}: {show_bytes(done)} of {show_bytes(total)}")

    def _draw(self, transfers: list[Transfer]) -> None:
        if not transfers:
            self.close()
            return
        if self._drawn is None:
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            self._drawn = Progress(
                TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), transient=True
            )
            self._drawn.start()
        for what, done, total in transfers:
            if what not in self._rows:
                self._rows[what] = self._drawn.add_task(what, total=total)
            self._drawn.update(self._rows[what], completed=done)

    def close(self) -> None:
        """Take the bars away."""
        if self._drawn is not None:
            self._drawn.stop()
            self._drawn, self._rows = None, {}
