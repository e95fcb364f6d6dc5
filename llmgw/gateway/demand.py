"""What is asked of this gateway, told to control: every few seconds, and at once when a cold model is asked."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from llmgw.core.table import Demand, ModelDemand
from llmgw.errors import OperatorError
from llmgw.gateway.link import ControlLink

log = logging.getLogger(__name__)

RATE_OVER_S = 60
"""Seconds over which requests are counted."""


class DemandTeller:
    """Posts the demand. One that is lost is replaced by the next: each is the whole of it."""

    def __init__(
        self,
        link: ControlLink,
        gateway: str,
        measure: Callable[[], Mapping[str, ModelDemand]],
        every_s: float,
    ) -> None:
        self._link, self._gateway, self._measure, self._every_s = link, gateway, measure, every_s
        self._boot = uuid.uuid4().hex
        self._seq = 0
        self._soon = asyncio.Event()
        self._away = False

    def soon(self) -> None:
        """Do not wait for the next time."""
        self._soon.set()

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            await self._post()
            try:
                async with asyncio.timeout(self._every_s):
                    await self._soon.wait()
            except TimeoutError:
                continue
            # Many cold models asked at once are one message.
            await asyncio.sleep(0.05)

    async def _post(self) -> None:
        self._soon.clear()
        self._seq += 1
        demand = Demand(gateway=self._gateway, boot=self._boot, seq=self._seq, models=dict(self._measure()))
        try:
            await self._link.demand(msgspec.json.encode(demand))
        except OperatorError as error:
            if not self._away:
                log.warning("demand is not told: %s", error.sentence)
            self._away = True
        else:
            self._away = False


class Activity:
    """When each model was last asked, and how often lately."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ended: dict[str, float] = {}
        self._lately: dict[str, deque[list[int]]] = {}
        """By model: [second, requests that ended in it], of the last minute."""

    def ended(self, model: str) -> None:
        """A request for it is over, however it ended."""
        now = self._now()
        self._ended[model] = now
        lately = self._lately.setdefault(model, deque(maxlen=RATE_OVER_S))
        if lately and lately[-1][0] == int(now):
            lately[-1][1] += 1
        else:
            lately.append([int(now), 1])

    def _rps(self, model: str) -> float:
        since = self._now() - RATE_OVER_S
        return round(sum(n for second, n in self._lately.get(model, ()) if second > since) / RATE_OVER_S, 3)

    def demand(self, waiting: Mapping[str, int], in_flight: Mapping[str, int]) -> dict[str, ModelDemand]:
        """Of every model that was asked since the start, by name."""
        return {
            name: ModelDemand(
                waiting=waiting.get(name, 0),
                in_flight=in_flight.get(name, 0),
                idle_for_s=round(self._now() - self._ended[name], 3) if name in self._ended else None,
                rps=self._rps(name),
            )
            for name in sorted({*waiting, *in_flight, *self._ended})
        }
