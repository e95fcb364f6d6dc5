"""The gateway's process: its parts put together, from the first bound port to the last open stream."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from llmgw.gateway import openai
from llmgw.gateway.bounds import Bounds
from llmgw.gateway.demand import Activity, DemandTeller
from llmgw.gateway.engine_slots import EngineSlots
from llmgw.gateway.forward import Forwarder
from llmgw.gateway.front import Front
from llmgw.gateway.ledger import Ledger
from llmgw.gateway.link import ControlLink
from llmgw.gateway.queue import Lines
from llmgw.gateway.relay import Listener, Upstream
from llmgw.gateway.table import TableFollower
from llmgw.gateway.usage import Usage
from llmgw.net.listen import listener

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GatewayConfig:
    """What a gateway has to know before it has heard from control."""

    control: str
    """Where control is: http://host:port."""
    name: str
    """As server.yaml calls this gateway."""
    key_file: Path
    """Its key for control, read at each use."""
    state: Path
    """A directory for the last table."""
    listen: tuple[str, int]
    open: bool = False
    """Serve other machines too while there are no client keys."""
    ca_file: Path | None = None
    """The authority of control's certificate, where it is not one of the system's."""
    bounds: Bounds = field(default_factory=Bounds)


class _Parts:
    """The parts of one gateway, each told of the others it needs."""

    def __init__(self, config: GatewayConfig) -> None:
        now, bounds = asyncio.get_running_loop().time, config.bounds
        self.link = ControlLink(config.control, config.key_file, config.ca_file)
        self.upstream = Upstream(bounds)
        self.follower = TableFollower(self.link, config.state / "table.json", bounds.table_wait_s)
        ledger = Ledger(now, bounds.suspect_s)
        self.slots = EngineSlots(self.upstream, ledger, bounds)
        lines = Lines(self.follower.find, ledger, bounds)
        activity = Activity(now)
        self.teller = DemandTeller(
            self.link,
            config.name,
            lambda: activity.demand(lines.waiting(), ledger.in_flight()),
            bounds.demand_every_s,
        )
        lines.cold, self.follower.changed = self.teller.soon, lines.wake_all
        forwarder = Forwarder(
            lines=lines, ledger=ledger, upstream=self.upstream, slots=self.slots, bounds=bounds, now=now
        )
        front = Front(
            follower=self.follower,
            lines=lines,
            ledger=ledger,
            forwarder=forwarder,
            usage=Usage(),
            activity=activity,
            now=now,
            open_to_all=config.open,
        )
        self.listener = Listener(front.handle, _malformed, bounds)

    async def follow(self) -> None:
        """Keep up with control, until cancelled."""
        await asyncio.gather(self.follower.run(), self.teller.run())

    async def close(self) -> None:
        """Give up connections. What was under way has ended before."""
        await self.slots.close()
        await self.upstream.close()
        await self.link.close()


async def serve(config: GatewayConfig, *, ready: Callable[[tuple[str, int]], None] | None = None) -> None:
    """Serve until cancelled, or told by SIGTERM or SIGINT to stop; then let streams end.

    `ready` is called with the address and port once clients can connect.

    Raises:
        Refused: it cannot listen where it should.
    """
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        parts = _Parts(config)
        stack.push_async_callback(parts.close)
        parts.follower.load()
        where = await parts.listener.open(listener("the gateway", config.listen, flag="--listen"))
        stack.push_async_callback(parts.listener.close, config.bounds.stop_s)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
            stack.callback(loop.remove_signal_handler, number)
        tasks = {loop.create_task(parts.follow()), loop.create_task(_wait(stop))}
        stack.push_async_callback(_end, tasks)
        log.info("the gateway serves", extra={"host": where[0], "port": where[1]})
        if ready is not None:
            ready(where)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a bug in following control stops the process, with its traceback


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _malformed(status: int, why: str) -> bytes:
    return openai.ApiError(status, why, retry=False).body()
