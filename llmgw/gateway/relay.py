"""HTTP on both sides: bytes between one client's request and one replica's answer.

This is the only module of the data path that knows how HTTP is spoken. It is
given what to send and what to pass bytes through; what is sent, where to and
what an answer means is decided by those who call it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import aiohttp
from aiohttp import web

from llmgw.gateway.bounds import Bounds
from llmgw.net.port import Door, room, say_seldom

log = logging.getLogger(__name__)

EVENT_STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}


class Lost(Exception):
    """The connection to a replica failed, before its answer or in the middle of it."""

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale
        """It was an idle one from before, which the engine closed in the moment it was used."""


class Late(Exception):
    """A replica said nothing for too long. It may be at work all the same, so nobody else is asked."""


class BadBody(Exception):
    """A client's body that cannot be had. `status` is what to answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ClientLeft(Exception):
    """The client has gone, or does not read what it asked for."""


class Through(Protocol):
    """What a stream is passed through on its way."""

    over: bool

    def feed(self, data: bytes) -> bytes: ...


class Inbound:
    """One request of a client, and the way back to it."""

    def __init__(self, request: web.BaseRequest, bounds: Bounds) -> None:
        self._request, self._bounds = request, bounds
        self._response: web.StreamResponse | None = None
        self._starting = asyncio.Lock()
        self.method = request.method
        self.path = request.path
        self.peer = request.remote or ""
        self.head = {"server": "llmgw"}
        """Headers that go out with whatever is answered."""
        self.wrote_at = 0.0
        """When the last piece of a stream went out, in the loop's time. 0: none has."""
        self._finished = False

    @property
    def started(self) -> bool:
        """Whether a status is on its way, and can be no other any more."""
        return self._response is not None

    @property
    def response(self) -> web.StreamResponse:
        assert self._response is not None, "every request is answered"
        return self._response

    def header(self, name: str) -> list[str]:
        return self._request.headers.getall(name, [])

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            BadBody: over the limit, too slow, or not what its headers say.
        """
        limit, idle_s = self._bounds.body_bytes, self._bounds.body_idle_s
        if (self._request.content_length or 0) > limit:
            raise BadBody(413, f"the body is over {limit} bytes")
        if "100-continue" in self._request.headers.get("expect", "").lower():
            transport = self._request.transport
            if transport is not None:
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces, size = [], 0
        try:
            async with asyncio.timeout(idle_s) as idle:
                while piece := await self._request.content.readany():
                    idle.reschedule(asyncio.get_running_loop().time() + idle_s)
                    size += len(piece)
                    if size > limit:
                        raise BadBody(413, f"the body is over {limit} bytes")
                    pieces.append(piece)
        except TimeoutError:
            raise BadBody(408, f"nothing of the body came for {idle_s:.0f} s") from None
        except (web.RequestPayloadError, aiohttp.http_exceptions.HttpProcessingError):
            raise BadBody(400, "the body is not what its headers say") from None
        return b"".join(pieces)

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """The whole of an answer."""
        await self._start(web.Response(status=status, headers={**self.head, **headers}, body=body))
        await self._gone_if_stuck(self.response.write_eof())

    async def write(self, data: bytes) -> None:
        """A piece of a stream of events, which the first one begins."""
        async with self._starting:
            if self._finished:
                return  # a comment that was about to be said when the stream ended
            if self._response is None:
                await self._start(web.StreamResponse(headers={**EVENT_STREAM, **self.head}))
        self.wrote_at = asyncio.get_running_loop().time()
        await self._gone_if_stuck(self.response.write(data))

    async def finish(self) -> None:
        """The end of a stream."""
        self._finished = True
        await self._gone_if_stuck(self.response.write_eof())

    async def _start(self, response: web.StreamResponse) -> None:
        self._response = response
        await self._gone_if_stuck(response.prepare(self._request))

    async def _gone_if_stuck(self, writing: Awaitable[Any]) -> None:
        try:
            async with asyncio.timeout(self._bounds.write_s):
                await writing
        except (TimeoutError, ConnectionError):
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ClientLeft from None


class Answer:
    """What a replica answers: its head at once, its body as it comes."""

    def __init__(self, response: aiohttp.ClientResponse, bounds: Bounds) -> None:
        self._response, self._bounds = response, bounds
        self.status = response.status
        self.content_type = response.content_type
        self._limit_s = bounds.first_s

    async def read(self) -> bytes:
        """The whole body.

        Raises:
            Lost: it broke off, or is larger than any answer.
            Late: the replica stopped sending.
        """
        pieces, size = [], 0
        while piece := await self._piece():
            size += len(piece)
            if size > self._bounds.answer_bytes:
                raise Lost(f"its answer is over {self._bounds.answer_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    async def pour(self, through: Through, into: Inbound) -> None:
        """Each piece through `through` and on to the client, as it comes, until either says it is over.

        Raises:
            Lost: the answer broke off.
            Late: the replica stopped sending.
            ClientLeft: the client did.
        """
        while piece := await self._piece():
            out = through.feed(piece)
            if out:
                await into.write(out)
            if through.over:
                return

    def close(self) -> None:
        """Done with it: what was not read is not wanted, and the engine sees it."""
        self._response.close()

    async def _piece(self) -> bytes:
        """What has come since the last one; empty at the end."""
        try:
            async with asyncio.timeout(self._limit_s):
                piece = await self._response.content.readany()
        except TimeoutError:
            raise Late(f"it sent nothing for {self._limit_s:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Lost(_text(error)) from None
        self._limit_s = self._bounds.idle_s
        return piece


class Upstream:
    """Connections to replicas. Streams get their own each: llama-server closes after one without saying so."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_mark_reused)
        common: dict[str, Any] = {
            "trust_env": False,
            "cookie_jar": aiohttp.DummyCookieJar(),
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=bounds.connect_s),
        }
        # How many requests there may be is bounded by the replicas' slots, and not again here.
        self._kept = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=bounds.kept_s),
            trace_configs=[trace],
            **common,
        )
        self._fresh = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True), **common)

    async def close(self) -> None:
        await self._kept.close()
        await self._fresh.close()

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        stream: bool = False,
        limit_s: float | None = None,
    ) -> Answer:
        """The head of the replica's answer, within `limit_s` if it is given.

        Raises:
            Lost: there is none, and another replica may be asked.
            Late: it did not come in time.
        """
        limit_s = limit_s or self._bounds.first_s
        if not stream:
            try:
                return await self._once(self._kept, method, url, headers, body, limit_s)
            except Lost as error:
                if not error.stale:
                    raise
        return await self._once(self._fresh, method, url, headers, body, limit_s)

    async def _once(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        limit_s: float,
    ) -> Answer:
        connection = SimpleNamespace(reused=False)
        try:
            async with asyncio.timeout(limit_s):
                response = await session.request(
                    method,
                    url,
                    headers={**headers, "accept-encoding": "identity", "user-agent": "llmgw"},
                    data=io.BytesIO(body) if body else None,
                    allow_redirects=False,
                    trace_request_ctx=connection,
                )
        except aiohttp.ConnectionTimeoutError:
            raise Lost(f"no connection within {self._bounds.connect_s:.0f} s") from None
        except TimeoutError:
            raise Late(f"it did not answer within {limit_s:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            stale = connection.reused and isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
            raise Lost(_text(error), stale=stale) from None
        return Answer(response, self._bounds)


class Listener:
    """Takes clients' connections, and answers each request with what `handler` writes to it."""

    def __init__(
        self,
        handler: Callable[[Inbound], Awaitable[None]],
        malformed: Callable[[int, str], bytes],
        bounds: Bounds,
    ) -> None:
        """`malformed` makes the body of an answer to what is not HTTP, of a status and why."""
        self._handler = handler
        self._malformed = malformed
        self._bounds = bounds
        self._busy = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._server: asyncio.Server | None = None
        # Without handler_cancellation a client that leaves is noticed at the next write, which may never come.
        self._manager = web.Server(self._handle, handler_cancellation=True)

    async def open(self, sock: socket.socket) -> tuple[str, int]:
        """Listen on a bound socket; the answer is where that is."""
        loop, most = asyncio.get_running_loop(), room(self._bounds.connections, each=2)
        say_seldom(loop, "the gateway")
        door = partial(Door, self._connection, lambda: len(self._manager.connections), most, self._full())
        self._server = await loop.create_server(door, sock=sock)
        bound = sock.getsockname()
        return bound[0], bound[1]

    async def close(self, patience_s: float) -> None:
        """Take nothing new, let what is under way end in `patience_s`, and end the rest."""
        if self._server is not None:
            self._server.close()
        self._manager.pre_shutdown()
        try:
            async with asyncio.timeout(patience_s):
                await self._quiet.wait()
        except TimeoutError:
            log.warning("requests are cut off: they did not end in time", extra={"requests": self._busy})
        await self._manager.shutdown(0.1)

    def _connection(self) -> _Connection:
        return _Connection(self._manager, self._malformed, self._bounds.client_idle_s)

    def _full(self) -> bytes:
        body = self._malformed(503, "the gateway has as many connections as it can take; come back in a moment")
        head = f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: {len(body)}"
        return f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._busy += 1
        self._quiet.clear()
        try:
            inbound = Inbound(request, self._bounds)
            await self._handler(inbound)
            return inbound.response
        finally:
            self._busy -= 1
            if not self._busy:
                self._quiet.set()


class _Connection(web.RequestHandler):
    """A client's connection. What is not HTTP is answered like any other error, and is no news."""

    __slots__ = ("_malformed",)

    def __init__(self, manager: web.Server, malformed: Callable[[int, str], bytes], idle_s: float) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=idle_s,
            access_log=None,  # type: ignore[arg-type]  # None is how it is turned off
        )
        self._malformed = malformed

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("a request was not answered", exc_info=exc)
        else:
            log.info("a request is refused: it is not HTTP as it should be", extra={"peer": request.remote})
        # The first line: the rest shows the bytes that were sent.
        why = ((message or "").strip() or "the request is not HTTP as it should be").splitlines()[0]
        response = web.Response(status=status, body=self._malformed(status, why), content_type="application/json")
        response.force_close()
        return response


async def _mark_reused(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
    context.trace_request_ctx.reused = True


def _text(error: Exception) -> str:
    """What happened, in words that name no address: clients are shown them."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "the name of its node is not known"
        case aiohttp.ClientPayloadError():
            return "its answer broke off"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without an answer"
        case aiohttp.ClientResponseError():
            return "its answer is not HTTP as it should be"
        case OSError() if error.errno:
            return os.strerror(error.errno).lower()
        case _:
            return type(error).__name__
