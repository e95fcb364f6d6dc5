"""The agents' side of control: reports in, orders out.

An agent's call is answered as soon as its orders differ from those it says it
has obeyed, and after twenty seconds at the latest. Nothing here decides
anything: it keeps the last whole report of each node, and how old it is.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from aiohttp import web
from msgspec import UNSET

from llmgw.core.observed import NodeSeen
from llmgw.net.answers import refusal
from llmgw.net.decoding import decode
from llmgw.net.port import body_of
from llmgw_agent.protocol import (
    PROTOCOL,
    REPORT_EVERY_S,
    SILENT_AFTER_S,
    Orders,
    ReplicaReport,
    Report,
    digest,
    split_id,
)

log = logging.getLogger(__name__)

LARGEST_REPORT_BYTES = 8 << 20
"""A report of a thousand replicas with their dossiers is under two."""

LONG_S = 3600.0
"""Nobody asks how much longer than this a replica has been in its phase."""

LARGEST_COUNT = 2**53
"""Counts are counted on from: one at the end of what fits would be the end for every node."""


@dataclass(slots=True)
class _Known:
    """What one node has said, and what it is to be told."""

    report: Report | None = None
    """The last whole one. What a later one left out is as it was said before."""
    digest: str = ""
    said_at: float = 0.0
    """Monotonic time at which that one came: every age in it has grown since."""
    peer: str = ""
    """Where the agent calls from."""
    since: float = 0.0
    """Monotonic time at which this very agent was first heard of."""
    refused: str = ""
    """The last other agent that came with this name."""
    refused_at: float = float("-inf")
    """Monotonic time of that."""
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
        report, now = known.report, self._monotonic()
        return NodeSeen(
            name,
            age_s=now - known.at,
            boot=report.boot,
            inventory=None if report.inventory is UNSET else report.inventory,
            replicas=() if report.replicas is UNSET else _aged(report.replicas, now - known.said_at),
            versions=() if report.versions is UNSET else report.versions,
            obeyed=known.obeyed,
            agent_version=report.agent_version,
            trouble="" if report.trouble is UNSET else report.trouble,
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
            report = decode(await body_of(request), Report)
            _check(report)
        except (msgspec.DecodeError, ValueError) as e:
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
        if (other := self._other(known, report, request.remote or "")) is not None:
            return other
        whole = known.report if report.same and report.same == known.digest else _whole(report, known.report)
        if whole is None:
            return refusal(409, "the whole report is needed", "this control has not had it", "send it whole")
        self._take(known, report, whole)
        return await self._answer(known)

    def trouble(self) -> tuple[str, ...]:
        """Nodes whose name a second agent uses, sorted: a sentence each."""
        since = self._monotonic() - SILENT_AFTER_S
        return tuple(
            f"a second agent calls itself {name} and is refused; stop one of the two, or give it a name of its own"
            for name, known in sorted(self._known.items())
            if known.refused_at > since
        )

    def _other(self, known: _Known, report: Report, peer: str) -> web.Response | None:
        """The refusal of a second agent with a node's name; None where it is the only one.

        Each would be told to drain what the other runs. One that does not say which it
        is, as an older one, cannot be told from another.
        """
        mine = known.report.instance if known.report is not None else ""
        now = self._monotonic()
        if mine and report.instance not in ("", mine):
            if known.at is not None and now - known.at < SILENT_AFTER_S:
                if known.refused != report.instance:
                    log.warning(
                        "a second agent calls itself %s: it is at %s, the first at %s",
                        report.node,
                        peer,
                        known.peer,
                        extra={"node": report.node},
                    )
                known.refused, known.refused_at = report.instance, now
                return refusal(
                    409,
                    f"another agent reports as {report.node}",
                    f"the one at {known.peer} does for {now - known.since:.0f} s, and spoke {now - known.at:.0f} s ago",
                    f"stop one of the two, or give this one a name and a key of its own; when the other has been "
                    f"silent for {SILENT_AFTER_S:.0f} s this one takes its place",
                )
            log.warning("another agent is %s now, at %s", report.node, peer, extra={"node": report.node})
        if known.report is None or report.instance != mine:
            known.since = now
        known.peer = peer
        return None

    def _take(self, known: _Known, report: Report, whole: Report) -> None:
        obeyed = (report.obeyed_epoch, report.obeyed_seq)
        late = known.at is None or self._monotonic() - known.at > REPORT_EVERY_S * 2
        new = late or obeyed != known.obeyed
        known.at, known.obeyed = self._monotonic(), obeyed
        if not report.same:
            fresh = digest(report)
            new = new or fresh != known.digest
            known.report, known.digest, known.said_at = whole, fresh, known.at
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


def _aged(replicas: tuple[ReplicaReport, ...], older_s: float) -> tuple[ReplicaReport, ...]:
    """Replicas as they are now: one that did not change is not told again, and has been so for longer."""
    return tuple(
        r if r.age_s >= LONG_S else msgspec.structs.replace(r, age_s=max(0.0, r.age_s) + older_s) for r in replicas
    )


def _check(report: Report) -> None:
    """Raises ValueError: what is said of its replicas cannot be."""
    counts = [report.obeyed_epoch, report.obeyed_seq]
    seen: set[tuple[str, int]] = set()
    for replica in () if report.replicas is UNSET else report.replicas:
        split_id(replica.id)
        if (one := (replica.id, replica.generation)) in seen:
            raise ValueError(f"{replica.id}, generation {replica.generation}, is in it twice")
        seen.add(one)
        counts += [replica.generation, replica.attempts]
        if replica.claim is not None:
            counts += [replica.claim.cards, replica.claim.cpu_cores]
        if replica.version and not re.fullmatch(r"[^/\s]{1,64}/[^/\s]{1,64}", replica.version):
            raise ValueError(f"{replica.id} is of the version {replica.version[:80]!r}, which is no name/version")
    if any(not 0 <= count < LARGEST_COUNT for count in counts):
        raise ValueError("an epoch, a generation or a count in it is larger than any can be")


def _whole(report: Report, last: Report | None) -> Report | None:
    """The report, with what it leaves out as it was last said: not sent is unknown, and not none.

    None: something is left out that was never said, or not since the machine started.
    """
    if report.same:
        return None
    if last is None or last.boot != report.boot:
        last = report
    filled = msgspec.structs.replace(
        report,
        inventory=last.inventory if report.inventory is UNSET else report.inventory,
        replicas=last.replicas if report.replicas is UNSET else report.replicas,
        versions=last.versions if report.versions is UNSET else report.versions,
    )
    return None if UNSET in (filled.replicas, filled.versions) else filled


def _differ(known: _Known) -> bool:
    """Whether the node has orders it has not obeyed. None yet, while control settles, is not empty ones."""
    return known.orders is not None and (known.orders.epoch, known.orders.seq) != known.obeyed
