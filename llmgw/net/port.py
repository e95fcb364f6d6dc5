"""A web application on one port, and the bounds on whoever connects to it."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Middleware

from llmgw.errors import OperatorError
from llmgw.net.answers import refusal
from llmgw.net.listen import listener

log = logging.getLogger(__name__)

IDLE_S = 10.0
"""A connection without a request, or with one that is not whole yet, is closed after this."""
BODY_S = 30.0
"""A body that is not here by then is not waited for."""
MAX_HEADER_BYTES = 8190
KEPT_DESCRIPTORS = 128
"""Of those a process may have: for files, the log, and calls of its own."""
FEWEST = 16
SAY_AGAIN_S = 60.0
"""Until a lack of descriptors is said once more: the library says it at each try, a hundred a second."""

FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 21\r\n\r\ntoo many connections\n"
)

_http_log = logging.getLogger(f"{__name__}.http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _in_a_sentence(record: logging.LogRecord) -> bool:
    """What is no proper request is the client's affair: no traceback of ours."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        record.exc_info, record.levelno, record.levelname = None, logging.INFO, "INFO"
    return True


_http_log.addFilter(_in_a_sentence)


def room(most: int, *, each: int) -> int:
    """How many connections there may be at one time, of the descriptors this process may have.

    Args:
        most: however many there are.
        each: descriptors that one connection takes.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return most
    return min(most, max(FEWEST, (limit - KEPT_DESCRIPTORS) // each))


async def body_of(request: web.Request, *, within_s: float | None = None) -> bytes:
    """The whole body.

    Raises:
        web.HTTPException: it does not come, or is larger than the application takes.
    """
    within_s = BODY_S if within_s is None else within_s
    try:
        async with asyncio.timeout(within_s):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"the body was not here after {within_s:g} s") from None


class Port:
    """One application, served."""

    def __init__(
        self,
        app: web.Application,
        *,
        who: str,
        most: int,
        each: int = 1,
        idle_s: float = IDLE_S,
        ends_with_client: bool = False,
        ending_s: float = 1.0,
    ) -> None:
        """Nothing listens yet.

        Args:
            app: what answers.
            who: the process, as errors name it.
            most: connections at one time; one more is told to come back.
            each: descriptors that one connection takes.
            idle_s: how long a connection may be without a request.
            ends_with_client: whether an answer is given up when its client has left.
            ending_s: what an answer may still take when the port closes.
        """
        self._who, self._most, self._each, self._idle_s = who, most, each, idle_s
        app.middlewares.insert(0, _guard(who))
        app.on_response_prepare.append(_finish)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_http_log,
            handle_signals=False,
            keepalive_timeout=idle_s,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            shutdown_timeout=ending_s,
            handler_cancellation=ends_with_client,
        )
        self._listening: asyncio.Server | None = None

    async def open(
        self, who: str, address: tuple[str, int], *, flag: str, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Listen; the address, with the port that was found where 0 was asked for.

        Raises:
            Refused: the address is taken.
        """
        sock = listener(who, address, flag=flag)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None, "it is there from setup to cleanup"
        door = partial(Door, server, lambda: len(server.connections), room(self._most, each=self._each))
        loop = asyncio.get_running_loop()
        say_seldom(loop, who)
        handshake_s = self._idle_s if tls else None
        self._listening = await loop.create_server(door, sock=sock, ssl=tls, ssl_handshake_timeout=handshake_s)
        host, port = sock.getsockname()[:2]
        return str(host), int(port)

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()


class Door(asyncio.Protocol):
    """Where a connection comes in: to who answers, or out again where it is one too many."""

    def __init__(
        self, make: Callable[[], asyncio.Protocol], taken: Callable[[], int], most: int, full: bytes = FULL
    ) -> None:
        """One connection's.

        Args:
            make: what speaks on a connection that comes in.
            taken: how many there are.
            most: how many there may be.
            full: what one too many is told.
        """
        self._make, self._taken, self._most, self._full = make, taken, most, full

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Here and not where protocols are made: connections that come together
        # are all made before the first is counted.
        assert isinstance(transport, asyncio.Transport)
        if self._taken() >= self._most:
            transport.write(self._full)
            transport.close()
            return
        handler = self._make()
        transport.set_protocol(handler)
        handler.connection_made(transport)


def say_seldom(loop: asyncio.AbstractEventLoop, who: str) -> None:
    """Have a lack of descriptors said once a minute, and everything else as before."""
    before, said_at = loop.get_exception_handler(), float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said_at
        error = context.get("exception")
        lacks = isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}
        if not (lacks and str(context.get("message", "")).startswith("socket.accept")):
            (before or _as_usual)(loop, context)
        elif loop.time() - said_at >= SAY_AGAIN_S:
            said_at = loop.time()
            log.error("%s takes no more connections: %s; raise its limit of open files", who, error)

    loop.set_exception_handler(handle)


def _as_usual(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.default_exception_handler(context)


def _guard(who: str) -> Middleware:
    """Every error in our own shape; a bug answers 500, is logged, and the next request is served."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as e:
            what = f"{request.method} of this path: {e.reason.lower()}"
            return refusal(e.status, what, f"the answer is {e.status}", f"see what the documentation of {who} says")
        except OperatorError as e:
            return refusal(400, e.what, e.why, e.do)
        except Exception:
            log.exception("a request ended in an internal error", extra={"path": request.path})
            return refusal(500, "internal error", f"{who} has a bug here", "look into its log, and report it")

    return guard


async def _finish(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "llmgw"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if response.status >= 400:
        # What follows on such a connection may be the rest of something that was not understood.
        response.force_close()
        response.headers["Connection"] = "close"
