"""One question to an engine of this node: a small HTTP client that cannot hang and keeps nothing open."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from msgspec import Struct

from llmgw_agent import durable

MAX_BYTES = 8 << 20
"""An answer longer than this is not one we asked for."""


class Endpoint(Struct, frozen=True):
    """Where an engine listens, and what it should answer as."""

    address: str
    port: int
    key: str
    served_name: str
    kind: str
    """chat, completion or embedding."""


class Reply(Struct, frozen=True):
    status: int
    text: str

    @property
    def value(self) -> Any:
        """The JSON it carries, or None."""
        try:
            return durable.decode(self.text.encode(), Any)
        except durable.Damaged:
            return None


class NoAnswerError(Exception):
    """It did not answer in time, or not with HTTP. What that means is the caller's to say."""


async def ask(at: Endpoint, path: str, *, body: object = None, within_s: float) -> Reply:
    """Its answer to a GET, or to a POST of `body`.

    A connection of its own for each question: engines close theirs without
    saying so, and a watch every few seconds gains nothing from keeping one.

    Raises:
        NoAnswerError: nothing, or no whole answer, came within `within_s`.
    """
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(at.address, at.port, limit=MAX_BYTES)
            try:
                writer.write(_request(at, path, body))
                await writer.drain()
                return await _reply(reader)
            finally:
                writer.close()
    except (TimeoutError, OSError, EOFError, ValueError, asyncio.LimitOverrunError) as e:
        raise NoAnswerError(f"{path}: {str(e) or type(e).__name__}") from None


def _request(at: Endpoint, path: str, body: object) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        f"Host: {at.address}:{at.port}",
        f"Authorization: Bearer {at.key}",
        "Accept: application/json",
        "Connection: close",
        *([] if body is None else ["Content-Type: application/json", f"Content-Length: {len(data)}"]),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


async def _reply(reader: asyncio.StreamReader) -> Reply:
    said = re.match(rb"HTTP/1\.[01] (\d{3})\b", await reader.readline())
    if said is None:
        raise ValueError("not an answer in HTTP")
    status = int(said[1])
    length, chunked = None, False
    while (line := (await reader.readline()).decode("latin-1").strip().lower()) != "":
        name, _, value = line.partition(":")
        if name == "content-length":
            length = int(value)
        chunked = chunked or (name == "transfer-encoding" and "chunked" in value)
    if chunked:
        data = await _chunks(reader)
    elif length is None:
        data = await _rest(reader)
    elif length > MAX_BYTES:
        raise ValueError(f"an answer of {length} bytes")
    else:
        data = await reader.readexactly(length)
    return Reply(status, data.decode(errors="replace"))


async def _rest(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while piece := await reader.read(MAX_BYTES):
        data += piece
        if len(data) > MAX_BYTES:
            raise ValueError("an endless answer")
    return data


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while size := int((await reader.readline()).partition(b";")[0], 16):
        if len(data) + size > MAX_BYTES:
            raise ValueError("an endless answer")
        data += (await reader.readexactly(size + 2))[:-2]
    return data
