"""What gateways read of control, the table, and what they tell it, demand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from aiohttp import web

from llmgw.core.table import Demand, Table
from llmgw.net.answers import refusal

LONGEST_WAIT_S = 20.0


class Asked(NamedTuple):
    """The last demand of one gateway."""

    demand: Demand
    at: float
    """Monotonic time."""


class Tables:
    """The newest table, and who waits for a newer one."""

    def __init__(self, *, on_demand: Callable[[], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start with no table: gateways wait for the first."""
        self._table: Table | None = None
        self._body = b""
        self._changed = asyncio.Condition()
        self._on_demand, self._monotonic = on_demand, monotonic
        self.demands: dict[str, Asked] = {}
        """By gateway."""

    async def publish(self, table: Table) -> None:
        """Set the table, and answer those that wait for it."""
        if self._table is not None and self._table.version == table.version:
            return
        self._table, self._body = table, msgspec.json.encode(table)
        async with self._changed:
            self._changed.notify_all()

    async def get(self, request: web.Request) -> web.Response:
        """`GET /gateway/v1/table`: at once, or with `If-None-Match` and `?wait=S` when it is another one."""
        has = request.headers.get("If-None-Match", "").strip('"')
        wait = _seconds(request.query.get("wait", "0"))
        try:
            async with asyncio.timeout(wait), self._changed:
                await self._changed.wait_for(lambda: self._table is not None and self._table.version != has)
        except TimeoutError:
            pass
        if self._table is None:
            return web.Response(status=204)  # none yet, which is not an empty one
        headers = {"ETag": f'"{self._table.version}"'}
        if self._table.version == has:
            return web.Response(status=304, headers=headers)
        return web.Response(body=self._body, content_type="application/json", headers=headers)

    async def demand(self, request: web.Request, gateway: str) -> web.Response:
        """`POST /gateway/v1/demand`."""
        try:
            demand = msgspec.json.decode(await request.read(), type=Demand)
        except msgspec.MsgspecError as e:
            return refusal(422, "this demand cannot be read", str(e)[:300], "use this version's gateway")
        last = self.demands.get(gateway)
        # One that was overtaken on its way says less than what is known.
        if last is None or last.demand.boot != demand.boot or demand.seq > last.demand.seq:
            self.demands[gateway] = Asked(demand, self._monotonic())
            if any(m.waiting for m in demand.models.values()):
                self._on_demand()
        return web.Response(status=204)


def _seconds(text: str) -> float:
    return min(float(text), LONGEST_WAIT_S) if text.isdecimal() else 0.0
