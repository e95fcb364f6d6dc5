"""The gateway's process: its parts put together, from the first bound port to the last open stream."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from llmgw.errors import Refused
from llmgw.gateway import openai
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

log = logging.getLogger(__name__)

STOP_S = 10.0
"""How long streams may go on after the gateway was told to stop."""


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


async def serve(config: GatewayConfig, *, ready: Callable[[tuple[str, int]], None] | None = None) -> None:
    """Serve until cancelled, or told by SIGTERM or SIGINT to stop.

    Raises:
        Refused: it cannot listen where it should.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        link = ControlLink(config.control, config.key_file, config.ca_file)
        stack.push_async_callback(link.close)
        upstream = Upstream()
        stack.push_async_callback(upstream.close)
        follower = TableFollower(link, config.state / "table.json")
        follower.load()
        ledger = Ledger(loop.time)
        slots = EngineSlots(upstream, ledger)
        stack.push_async_callback(slots.close)
        activity = Activity(loop.time)
        lines = Lines(follower.find, ledger)
        teller = DemandTeller(link, config.name, lambda: activity.demand(lines.waiting(), ledger.in_flight()))
        lines.cold, follower.changed = teller.soon, lines.wake_all
        front = Front(
            follower=follower,
            lines=lines,
            ledger=ledger,
            forwarder=Forwarder(lines=lines, ledger=ledger, upstream=upstream, slots=slots, now=loop.time),
            usage=Usage(),
            activity=activity,
            now=loop.time,
            open_to_all=config.open,
        )
        listener = Listener(front.handle, lambda status, why: openai.ApiError(status, why, retry=False).body())
        try:
            where = await listener.open(*config.listen)
        except OSError as error:
            raise _cannot_listen(*config.listen, error) from None
        stack.push_async_callback(listener.close, STOP_S)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
            stack.callback(loop.remove_signal_handler, number)
        followers = asyncio.gather(follower.run(), teller.run())
        stack.push_async_callback(_end, followers)
        log.info("the gateway serves", extra={"host": where[0], "port": where[1]})
        if ready is not None:
            ready(where)
        stopping = loop.create_task(stop.wait())
        stack.push_async_callback(_end, stopping)
        waited: set[asyncio.Future[Any]] = {followers, stopping}
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if followers in done:
            followers.result()  # a bug: it stops the process, with its traceback


async def _end(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _cannot_listen(host: str, port: int, error: OSError) -> Refused:
    why = f"{host}:{port}: {error.strerror or error}"
    if error.errno != errno.EADDRINUSE:
        return Refused("the gateway cannot listen", why=why, do="give --listen an address of this machine")
    return Refused(
        "the gateway cannot listen",
        why=f"{host}:{port} is taken by {_holder(port)}",
        do="stop that, or give --listen another port",
    )


def _holder(port: int) -> str:
    """Who listens on this port, as far as this user may know."""
    try:
        for c in psutil.net_connections("tcp"):
            if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid:
                return f"process {c.pid} ({psutil.Process(c.pid).name()})"
    except (psutil.Error, OSError):
        pass
    return "another process"
