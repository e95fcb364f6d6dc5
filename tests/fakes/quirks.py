"""An engine on a raw socket that plays whatever bytes a test gives it, and remembers what it was sent.

It runs inside the test's own loop, on a real socket: what no HTTP library would
send, such as half a chunk followed by a reset, is played as engines were seen to.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass
class Request:
    """What arrived."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    """The head as it came, to look for what must not be in it."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection(asyncio.Protocol):
    """One connection, and the requests on it in turn."""

    def __init__(self, engine: QuirkEngine) -> None:
        self.engine = engine
        self.gone = asyncio.Event()
        """Set when the other side has closed or reset it, or this one has."""
        self._news = asyncio.Event()
        self._buffer = bytearray()
        self._drained = asyncio.Event()
        self._drained.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.engine.connections += 1
        self.engine.open.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._news.set()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self._news.set()
        self._drained.set()
        self.engine.open.discard(self)
        self.engine.losses.append(asyncio.get_running_loop().time())

    async def send(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)
            await self._drained.wait()

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        """End it with a RST in place of a FIN."""
        found = self.transport.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    async def _serve(self) -> None:
        while (request := await self._request()) is not None:
            self.engine.received.append(request)
            if request.path == "/slots":
                busy = self.engine.slots.pop(0) if len(self.engine.slots) > 1 else self.engine.slots[0]
                slots = [{"id": n, "is_processing": n < busy} for n in range(4)] if isinstance(busy, int) else busy
                await self.send(answer(slots))
                continue
            self.engine.at_work += 1
            try:
                await self.engine.play(self, request)
            finally:
                self.engine.at_work -= 1

    async def _request(self) -> Request | None:
        while b"\r\n\r\n" not in self._buffer:
            if self.gone.is_set():
                return None
            self._news.clear()
            await self._news.wait()
        end = self._buffer.index(b"\r\n\r\n") + 4
        raw = bytes(self._buffer[:end])
        first, *lines = raw.decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", 0))
        while len(self._buffer) < end + size:
            if self.gone.is_set():
                return None
            self._news.clear()
            await self._news.wait()
        body = bytes(self._buffer[end : end + size])
        del self._buffer[: end + size]
        method, path, _ = first.split(" ")
        return Request(method, path, headers, raw, body)


Play = Callable[[Connection, Request], Awaitable[None]]


def answer(value: Any, status: int = 200, **headers: str) -> bytes:
    """A whole JSON answer; `value` as bytes goes out as it is."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    said = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in said.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    # As llama-server says it, and then closes all the same.
    b"Keep-Alive: timeout=5, max=100\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def piece(data: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_PIECE = b"0\r\n\r\n"


def chunk(text: str | None = None, *, finish: str | None = None, model: str = "m", **more: Any) -> dict[str, Any]:
    """One chunk of a chat."""
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [choice],
        **more,
    }


USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}


def usage_chunk(model: str = "m") -> dict[str, Any]:
    return {**chunk(model=model), "choices": [], "usage": USAGE}


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()) + b"\n\n"


def chat_events(*texts: str, usage: bool = True, done: bool = True) -> bytes:
    """A whole stream of events, as an engine would send it."""
    out = b"".join(event(chunk(text)) for text in texts) + event(chunk(finish="stop"))
    return out + (event(usage_chunk()) if usage else b"") + (event(b"[DONE]") if done else b"")


def chat_answer(text: str = "hello", model: str = "m") -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": USAGE,
    }


def plays_bytes(data: bytes, *, end: str = "close") -> Play:
    """Sends these bytes and then ends the connection as `end` says: close, reset, keep or hang."""

    async def play(connection: Connection, _: Request) -> None:
        await connection.send(data)
        if end == "close":
            connection.close()
        elif end == "reset":
            connection.reset()
        elif end == "hang":
            await connection.gone.wait()

    return play


def plays_stream(*pieces: bytes, end: str = "close", last: bool = True) -> Play:
    """A chunked stream of these pieces, whole unless `last` is False."""
    return plays_bytes(STREAM_HEAD + b"".join(map(piece, pieces)) + (LAST_PIECE if last else b""), end=end)


async def well_behaved(connection: Connection, request: Request, *, begun: bool = False) -> None:
    """Answers as llama-server does: JSON on a connection that is kept, a stream on one that is then closed.

    `begun` is a stream whose head, and perhaps more, is out already.
    """
    if request.path == "/v1/embeddings":
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, -1.25, 3.0]}]
        await connection.send(answer({"object": "list", "model": "m", "data": data, "usage": {"prompt_tokens": 4}}))
    elif request.json.get("stream"):
        await connection.send((b"" if begun else STREAM_HEAD) + piece(chat_events("hel", "lo")) + LAST_PIECE)
        connection.close()
    else:
        await connection.send(answer(chat_answer()))


@dataclass(eq=False)
class QuirkEngine:
    """The engine; a test changes what it plays at any time."""

    play: Play = well_behaved
    received: list[Request] = field(default_factory=list)
    connections: int = 0
    """How many there were."""
    open: set[Connection] = field(default_factory=set)
    losses: list[float] = field(default_factory=list)
    """When connections ended, in the loop's time."""
    slots: list[int | bytes] = field(default_factory=lambda: [0])
    """How many slots it says are at work, one for each time it is asked; the last one stays.
    Bytes go out as they are."""
    at_work: int = 0
    """Requests being played."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[Request]:
        """The requests that were not for /slots."""
        return [r for r in self.received if r.path != "/slots"]

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.die()

    async def die(self) -> None:
        """Everything ends at once, as with SIGKILL."""
        self._server.close()
        tasks = [c._task for c in self.open]
        for connection in tuple(self.open):
            connection.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
