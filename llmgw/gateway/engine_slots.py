"""Slots that a request left behind: llama-server goes on with a cancelled one until its own next result."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from llmgw.core.table import TableReplica
from llmgw.gateway.bounds import Bounds
from llmgw.gateway.ledger import Hold, Ledger
from llmgw.gateway.pick import Key, key_of
from llmgw.gateway.relay import Late, Lost, Upstream
from llmgw.net.decoding import decoder

LINGERS = frozenset({"llamacpp"})
"""Engines that do not notice a client that left before the first token."""


class _Slot(Struct):
    is_processing: bool = False


_SLOTS = decoder(list[_Slot])


class EngineSlots:
    """Gives lingering slots back once the engine says that they are idle."""

    def __init__(self, upstream: Upstream, ledger: Ledger, bounds: Bounds) -> None:
        self._upstream, self._ledger, self._bounds = upstream, ledger, bounds
        self._until: dict[Key, float] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def abandoned(self, hold: Hold) -> None:
        """The request that had this slot is over before its first token."""
        if hold.replica.engine not in LINGERS:
            return
        loop = asyncio.get_running_loop()
        hold.linger()
        self._until[hold.key] = loop.time() + self._bounds.slot_give_up_s
        if hold.key not in self._tasks:
            self._tasks[hold.key] = loop.create_task(self._follow(hold.model, hold.replica))

    async def close(self) -> None:
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, model: str, replica: TableReplica) -> None:
        key = key_of(replica)
        loop = asyncio.get_running_loop()
        try:
            while self._ledger.lingering(key) and loop.time() < self._until[key]:
                await asyncio.sleep(self._bounds.slot_look_s)
                busy = await self._busy(replica)
                if busy is not None:
                    self._ledger.settle(key, model, busy)
        finally:
            # However that ended: a slot that nobody follows would be taken for good. Forgotten before
            # anything else runs, so that a slot left behind from now on is followed anew.
            del self._tasks[key]
            self._ledger.settle(key, model, 0)

    async def _busy(self, replica: TableReplica) -> int | None:
        """How many slots the engine has at work. None: it does not say. An engine that is gone has none."""
        headers = {"authorization": f"Bearer {replica.key}"} if replica.key else {}
        try:
            answer = await self._upstream.ask("GET", f"{replica.url}/slots", headers=headers, limit_s=5)
        except Lost:
            return 0
        except Late:
            return None
        try:
            return sum(s.is_processing for s in _SLOTS(await answer.read()))
        except (msgspec.DecodeError, Lost, Late):
            return None
        finally:
            answer.close()
