"""Comments while a stream has nothing to say: clients give up on a silent one after minutes."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from llmgw.gateway.relay import ClientLeft, Inbound

COMMENT = b": waiting\n\n"


class KeepAlive:
    """While it lasts, the client hears something at least every `every_s`.

    The first comment commits the status 200, so it is entered once a request is
    admitted. A client that does not take its comments is left to those who write to it.
    """

    def __init__(self, inbound: Inbound, every_s: float) -> None:
        self._inbound, self._every_s = inbound, every_s
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._timer = self._loop.call_later(self._every_s, self._look)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    def _look(self) -> None:
        last = max(self._begun, self._inbound.wrote_at)
        due = last + self._every_s
        if due <= self._loop.time():
            if self._writing is None or self._writing.done():
                self._writing = self._loop.create_task(self._write())
            due = self._loop.time() + self._every_s
        self._timer = self._loop.call_at(due, self._look)

    async def _write(self) -> None:
        try:
            await self._inbound.write(COMMENT)
        except ClientLeft:
            return
