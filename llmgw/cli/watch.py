"""What happens to a fleet, told as it happens: lines for what changes, bars for what takes long."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from llmgw.cli.seen import Operator
from llmgw.core.holdings import HoldingState
from llmgw.core.live import Live
from llmgw.core.status import FleetStatus, ModelStatus
from llmgw.errors import OperatorError, Unreachable
from llmgw.net.http import Client
from llmgw.sources.readme import headline, ready_of
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
        self._wrong: dict[str, str] = {}
        """What was told as being wrong and is so still: the line of its end, by the line of its beginning."""
        self._as_asked: bool | None = None
        self._bars = Bars(say)

    async def until(
        self, done: Callable[[Live], bool], *, within_s: float, what: str, failed: Callable[[Live], str] = lambda _: ""
    ) -> Live:
        """Tell what happens until something is so.

        Args:
            done: whether it is.
            within_s: how long to wait for it.
            what: what is waited for, as an error says it.
            failed: why it cannot come about by itself any more; empty while it can.

        Raises:
            Unreachable: it did not come about in time.
            OperatorError: it cannot come about.
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
                    self.tell(live)
                    if done(live):
                        return live
                    if why := failed(live):
                        raise OperatorError(f"{what} cannot come about", why=why, do="see to that, and begin again")
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

    def tell(self, live: Live) -> None:
        """Tell what is new in this, and what of the last time is over."""
        self._bars.show(list(transfers(live)))
        if live.status is None:
            self._compare({f"trouble: {_first(t)}": f"trouble over: {_first(t)}" for t in live.trouble})
            return
        for model in live.status.models:
            self._once(model.name, _line(model))
        for name in self._told.keys() - {model.name for model in live.status.models}:
            del self._told[name]
            self._say(f"{name} gone")
        self._compare(_wrong(live.status, live.trouble))
        if live.status.as_asked is not self._as_asked:
            if live.status.as_asked:
                self._say(headline(live.status))
            self._as_asked = live.status.as_asked

    def _compare(self, wrong: dict[str, str]) -> None:
        """Tell what is wrong since the last time, and what is no more."""
        for line in wrong:
            if line not in self._wrong:
                self._say(line)
        for line, over in self._wrong.items():
            if line not in wrong:
                self._say(over)
        self._wrong = wrong

    def _once(self, key: str, line: str) -> None:
        if self._told.get(key) != line:
            self._told[key] = line
            self._say(line)


def _wrong(status: FleetStatus, trouble: Iterable[str]) -> dict[str, str]:
    """The line that tells of each thing that is wrong, and the one that tells of its end."""
    problems = {f"problem: {p}": f"problem gone: {_first(p)}" for p in status.problems}
    held = {f"held: {h}": f"held no more: {_first(h)}" for h in status.held}
    frozen = {f"{m.name} {m.frozen}": f"{m.name} is as its file asks again" for m in status.models if m.frozen}
    return {**problems, **held, **frozen, **{f"trouble: {_first(t)}": f"trouble over: {_first(t)}" for t in trouble}}


def _first(text: str) -> str:
    return text.partition("\n")[0]


def _line(model: ModelStatus) -> str:
    why = next((c for c in model.conditions if c.stalled), None) or next(iter(model.conditions), None)
    told = f": {why.why}" + (f"; {why.next}" if why.next else "") if why else ""
    return f"{model.name} {ready_of(model)} {model.state}{told}"


def transfers(live: Live) -> Iterator[Transfer]:
    """What is on its way to the mirror and to nodes."""
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
