"""What gateways read of control, the table, and what they tell it, demand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
from aiohttp import web

from llmgw.core.observed import DemandSeen, Load
from llmgw.core.table import Demand, Table
from llmgw.net.answers import refusal
from llmgw.net.decoding import decode
from llmgw.net.port import body_of

LONGEST_WAIT_S = 20.0
SILENT_AFTER_S = 20.0
"""A gateway tells its demand every five seconds."""
GIVEN_UP_AFTER_S = 600.0
"""A gateway that has been silent for so long is asked nothing: its clients have gone elsewhere."""


class Asked(NamedTuple):
    """The last demand of one gateway."""

    demand: Demand
    at: float
    """Monotonic time."""
    since: float
    """When its process was first heard of: it cannot know of earlier requests."""


class Tables:
    """The newest table, and who waits for a newer one."""

    def __init__(self, *, on_demand: Callable[[], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start with no table: gateways wait for the first."""
        self._table: Table | None = None
        self._body = b""
        self._changed = asyncio.Condition()
        self._on_demand, self._monotonic = on_demand, monotonic
        self._began = monotonic()
        self._demands: dict[str, Asked] = {}
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
            demand = decode(await body_of(request), Demand)
        except msgspec.DecodeError as e:
            return refusal(422, "this demand cannot be read", str(e)[:300], "use this version's gateway")
        last = self._demands.get(gateway)
        again = last is not None and last.demand.boot == demand.boot
        # One that was overtaken on its way says less than what is known.
        if last is None or not again or demand.seq > last.demand.seq:
            now = self._monotonic()
            self._demands[gateway] = Asked(demand, now, last.since if last and again else now)
            if any(m.waiting for m in demand.models.values()):
                self._on_demand()
        return web.Response(status=204)

    def demand_seen(self, gateways: Iterable[str]) -> DemandSeen:
        """What these gateways are asked, summed. One that was never heard of is silent, and later given up."""
        now = self._monotonic()
        ages = {name: now - (self._demands[name].at if name in self._demands else self._began) for name in gateways}
        spoken = [self._demands[n] for n, age in ages.items() if n in self._demands and age < GIVEN_UP_AFTER_S]
        models = sorted({model for asked in spoken for model in asked.demand.models})
        silent = tuple(sorted(n for n, age in ages.items() if SILENT_AFTER_S < age < GIVEN_UP_AFTER_S))
        return DemandSeen({model: _summed(model, spoken, now) for model in models}, silent, whole=not silent)


def _summed(model: str, spoken: Iterable[Asked], now: float) -> Load:
    of = [(asked, asked.demand.models[model]) for asked in spoken if model in asked.demand.models]
    rates = [d.rps for _, d in of]
    return Load(
        waiting=sum(d.waiting for _, d in of),
        in_flight=sum(d.in_flight for _, d in of),
        idle_for_s=min(
            now - asked.at + d.idle_for_s if d.idle_for_s is not None else now - asked.since for asked, d in of
        ),
        rps=None if None in rates else sum(r for r in rates if r is not None),
    )


def _seconds(text: str) -> float:
    return min(float(text), LONGEST_WAIT_S) if text.isdecimal() else 0.0
