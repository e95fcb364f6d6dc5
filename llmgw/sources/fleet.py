"""The agents' side of control: reports in, orders out.

An agent's call is answered as soon as its orders differ from those it says it
has obeyed, and after twenty seconds at the latest. Nothing here decides
anything: it keeps the last whole report of each node, and how old it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from aiohttp import web
from msgspec import UNSET

from llmgw.core.observed import NodeSeen
from llmgw.net.answers import refusal
from llmgw_agent.protocol import PROTOCOL, REPORT_EVERY_S, Orders, Report, digest, split_id

LARGEST_REPORT_BYTES = 8 << 20
"""A report of a thousand replicas with their dossiers is under two."""


@dataclass(slots=True)
class _Known:
    """What one node has said, and what it is to be told."""

    report: Report | None = None
    """The last whole one."""
    digest: str = ""
    obeyed: tuple[int, int] = (0, 0)
    at: float | None = None
    """Monotonic time of its last call, whole or `same`."""
    orders: Orders | None = None
    calls: int = 0
    """Calls so far: a newer one ends the wait of an older one."""
    told: asyncio.Condition = field(default_factory=asyncio.Condition)


class Reports:
    """The last whole report of every node, and the orders each is to be told."""

    def __init__(self, *, on_news: Callable[[], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing known.

        Args:
            on_news: called when a report says something new.
            monotonic: the clock ages are measured with.
        """
        self._known: dict[str, _Known] = {}
        self._seeds: dict[str, NodeSeen] = {}
        self._on_news, self._monotonic = on_news, monotonic

    def seed(self, nodes: Iterable[NodeSeen]) -> None:
        """Take up what the status branch recorded of nodes that have not reported yet."""
        self._seeds = {n.name: msgspec.structs.replace(n, age_s=None) for n in nodes}

    def seen(self, names: Iterable[str]) -> tuple[NodeSeen, ...]:
        """The named nodes as they last reported, sorted."""
        return tuple(self._seen(name) for name in sorted(names))

    def _seen(self, name: str) -> NodeSeen:
        known = self._known.get(name)
        if known is None or known.report is None or known.at is None:
            return self._seeds.get(name, NodeSeen(name))
        report = known.report
        return NodeSeen(
            name,
            age_s=self._monotonic() - known.at,
            boot=report.boot,
            inventory=None if report.inventory is UNSET else report.inventory,
            replicas=() if report.replicas is UNSET else report.replicas,
            versions=() if report.versions is UNSET else report.versions,
            obeyed=known.obeyed,
            agent_version=report.agent_version,
        )

    async def publish(self, orders: Mapping[str, Orders]) -> None:
        """Set what nodes are to be told, and answer those that wait for it."""
        for name, new in orders.items():
            known = self._known.setdefault(name, _Known())
            if known.orders != new:
                known.orders = new
                async with known.told:
                    known.told.notify_all()

    async def handle(self, request: web.Request, node: str) -> web.Response:
        """Answer one report of a node whose key has been checked."""
        try:
            report = msgspec.json.decode(await request.read(), type=Report)
            for replica in () if report.replicas is UNSET else report.replicas:
                split_id(replica.id)
        except (msgspec.MsgspecError, ValueError, UnicodeDecodeError) as e:
            return refusal(422, "this report cannot be read", str(e)[:300], "see which version of llmgw-agent this is")
        if report.node != node:
            return refusal(
                403,
                f"this is not the key of {report.node}",
                f"it is {node}'s",
                "give each node the key made for it",
            )
        if report.protocol not in (PROTOCOL, PROTOCOL - 1):
            return refusal(
                426,
                f"this agent speaks protocol {report.protocol}",
                f"this control speaks {PROTOCOL} and {PROTOCOL - 1}",
                "install an agent of this version; its engines go on meanwhile",
            )
        known = self._known.setdefault(node, _Known())
        if report.same and report.same != known.digest:
            return refusal(409, "the whole report is needed", "this control has not had it", "send it whole")
        self._take(known, report)
        return await self._answer(known)

    def _take(self, known: _Known, report: Report) -> None:
        obeyed = (report.obeyed_epoch, report.obeyed_seq)
        late = known.at is None or self._monotonic() - known.at > REPORT_EVERY_S * 2
        new = late or obeyed != known.obeyed
        known.at, known.obeyed = self._monotonic(), obeyed
        if not report.same:
            fresh = digest(report)
            new = new or fresh != known.digest
            known.report, known.digest = report, fresh
        if new:
            self._on_news()

    async def _answer(self, known: _Known) -> web.Response:
        known.calls += 1
        mine = known.calls
        async with known.told:
            known.told.notify_all()  # an older call of this node has nothing to wait for any more

            def told() -> bool:
                return known.calls != mine or _differ(known)

            try:
                async with asyncio.timeout(REPORT_EVERY_S):
                    await known.told.wait_for(told)
            except TimeoutError:
                return web.Response(status=204)
        if known.orders is None or not _differ(known):
            return web.Response(status=204)
        return web.Response(body=msgspec.json.encode(known.orders), content_type="application/json")


def _differ(known: _Known) -> bool:
    """Whether the node has orders it has not obeyed. None yet, while control settles, is not empty ones."""
    return known.orders is not None and (known.orders.epoch, known.orders.seq) != known.obeyed
