"""A web application on one port, and the bounds on whoever connects to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError

from llmgw.errors import OperatorError
from llmgw.net.answers import refusal
from llmgw.net.listen import listener

log = logging.getLogger(__name__)

IDLE_S = 10.0
"""A connection without a request, or with one that is not whole yet, is closed after this."""
MAX_HEADER_BYTES = 8190

_FULL = (
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


class Port:
    """One application, served."""

    def __init__(self, app: web.Application, *, most: int, idle_s: float = IDLE_S) -> None:
        """Nothing listens yet.

        Args:
            app: what answers.
            most: connections at one time; one more is told to come back.
            idle_s: how long a connection may be without a request.
        """
        self._most = most
        app.middlewares.insert(0, _guard)
        app.on_response_prepare.append(_finish)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_http_log,
            handle_signals=False,
            keepalive_timeout=idle_s,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            shutdown_timeout=1.0,
        )
        self._listening: asyncio.Server | None = None

    async def open(self, who: str, address: tuple[str, int], *, flag: str) -> tuple[str, int]:
        """Listen; the address, with the port that was found where 0 was asked for.

        Raises:
            Refused: the address is taken.
        """
        sock = listener(who, address, flag=flag)
        await self._runner.setup()
        door = partial(_Door, self._runner, self._most)
        self._listening = await asyncio.get_running_loop().create_server(door, sock=sock)
        host, port = sock.getsockname()[:2]
        return str(host), int(port)

    async def close(self) -> None:
        """Stop listening, and end every connection within about a second."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()


class _Door(asyncio.Protocol):
    """Where a connection comes in: to the application, or out again where it is one too many."""

    def __init__(self, runner: web.AppRunner, most: int) -> None:
        self._runner, self._most = runner, most

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Here and not where protocols are made: connections that come together
        # are all made before the first is counted.
        assert isinstance(transport, asyncio.Transport)
        server = self._runner.server
        if server is None or len(server.connections) >= self._most:
            transport.write(_FULL)
            transport.close()
            return
        handler = server()
        transport.set_protocol(handler)
        handler.connection_made(transport)


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error in our own shape; a bug answers 500, is logged, and the next request is served."""
    try:
        return await handler(request)
    except web.HTTPException as e:
        allowed = e.headers.get(hdrs.ALLOW)
        why = f"it takes {allowed.replace(',', ', ')}" if allowed else f"the mirror answers {e.status} there"
        do = "use one of these" if allowed else "ask for one of the paths in docs/mirror.md"
        return refusal(e.status, f"{request.method} of this path: {e.reason.lower()}", why, do)
    except OperatorError as e:
        return refusal(400, e.what, e.why, e.do)
    except Exception:
        log.exception("a request ended in an internal error")
        return refusal(500, "internal error", "the mirror has a bug here", "look into its log")


async def _finish(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "llmgw"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if response.status >= 400:
        # What follows on such a connection may be the rest of something that was not understood.
        response.force_close()
        response.headers["Connection"] = "close"
