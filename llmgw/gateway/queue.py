"""Requests that wait for a slot: one line a model, first come first served, with a bound on each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from llmgw.core.table import Serving, TableModel
from llmgw.gateway import openai
from llmgw.gateway.bounds import Bounds
from llmgw.gateway.ledger import Hold, Ledger
from llmgw.gateway.pick import Key, Outlook, of_profile, outlook, pick


class _Waiter:
    """One request in a line."""

    __slots__ = ("avoid", "granted", "profile", "since")

    def __init__(self, avoid: frozenset[Key], profile: str, since: float, granted: asyncio.Future[Hold]) -> None:
        self.avoid, self.profile, self.since, self.granted = avoid, profile, since, granted


class Lines:
    """Grants slots: at once where one is free, else in the order of coming.

    A slot that becomes free is taken for the first in line by whoever frees it,
    before anybody else runs: nobody overtakes, and none is woken for nothing.
    """

    def __init__(self, find: Callable[[str], TableModel | None], ledger: Ledger, bounds: Bounds) -> None:
        self._find, self._ledger, self._bounds = find, ledger, bounds
        self.cold: Callable[[], None] = lambda: None
        """Called when a model of which nothing is ready is first asked."""
        self._lines: dict[str, deque[_Waiter]] = {}
        ledger.freed = self.wake

    async def enter(self, name: str, avoid: frozenset[Key] = frozenset(), profile: str = "") -> Hold:
        """A slot of a replica of this model that is not in `avoid`, of one profile where one is named.

        Raises:
            ApiError: there is none, and none to wait for, or not in time.
        """
        model = self._find(name)
        if model is None:
            raise openai.unknown_model(name)
        model = of_profile(model, profile)
        replica = pick(model, self._ledger, avoid)
        if replica is not None:
            return self._ledger.take(name, replica)
        ahead = outlook(model, avoid)
        if ahead is Outlook.NOTHING:
            raise _nothing(model)
        line = self._lines.setdefault(name, deque())
        now = asyncio.get_running_loop().time()
        if len(line) >= self._bounds.waiting:
            raise openai.queue_full(name, retry_after_s=max(1.0, now - line[0].since))
        if not line and not any(r.state is Serving.READY for r in model.replicas):
            self.cold()
        waiter = _Waiter(avoid, profile, now, asyncio.get_running_loop().create_future())
        return await self._wait(name, line, waiter, ahead)

    async def _wait(self, name: str, line: deque[_Waiter], waiter: _Waiter, ahead: Outlook) -> Hold:
        # A request that has failed on a replica has waited its turn already.
        (line.appendleft if waiter.avoid else line.append)(waiter)
        limit = self._bounds.full_wait_s if ahead is Outlook.FULL else self._bounds.start_wait_s
        hold = None
        try:
            async with asyncio.timeout(limit):
                hold = await waiter.granted
        except TimeoutError:
            raise openai.unavailable(
                f"{name} had no free slot for {limit:.0f} s"
                if ahead is Outlook.FULL
                else f"{name} was not ready within {limit:.0f} s",
                loading=ahead is Outlook.STARTING,
            ) from None
        else:
            return hold
        finally:
            line.remove(waiter)
            if not line:
                self._lines.pop(name, None)
            if hold is None:
                _give_up(waiter.granted)

    def wake(self, name: str) -> None:
        """Grant what can be granted, and refuse those for whom there is nothing left to wait for."""
        if name not in self._lines:
            return
        found = self._find(name)
        for waiter in tuple(self._lines[name]):
            if waiter.granted.done():
                continue
            model = None if found is None else of_profile(found, waiter.profile)
            replica = None if model is None else pick(model, self._ledger, waiter.avoid)
            if model is None:
                waiter.granted.set_exception(openai.unavailable(f"{name} was removed from the catalog"))
            elif replica is not None:
                waiter.granted.set_result(self._ledger.take(name, replica))
            elif outlook(model, waiter.avoid) is Outlook.NOTHING:
                waiter.granted.set_exception(_nothing(model))

    def wake_all(self) -> None:
        """The table has changed."""
        for name in tuple(self._lines):
            self.wake(name)

    def waiting(self) -> dict[str, int]:
        """Requests waiting by model; those without any are not in it."""
        return {name: len(line) for name, line in sorted(self._lines.items())}


def _give_up(granted: asyncio.Future[Hold]) -> None:
    """What was granted in the very moment its client left, or its time was over, is given back."""
    if granted.done() and not granted.cancelled() and granted.exception() is None:
        granted.result().release()


def _nothing(model: TableModel) -> openai.ApiError:
    why = model.why or ("it is stopped" if model.state == "stopped" else "its replicas do not answer")
    return openai.unavailable(f"nothing serves {model.name}: {why}", retry_after_s=30)
