"""The reconciler at work: look, decide, act, say; and again when there is news.

Everything is decided in `core.decide`. What is here carries it out and keeps
going: an action that fails is said and is not the end of the rest, since the
next pass sees what is still missing and decides it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from msgspec import structs

from llmgw.actuators.mirror import Mirror
from llmgw.actuators.orders import compose
from llmgw.control.follow import Followed
from llmgw.control.guard import Guard
from llmgw.control.tables import Tables
from llmgw.control.writer import Writer
from llmgw.core.actions import Fetch, Plan, Remove
from llmgw.core.artifacts import refused
from llmgw.core.condition import Condition
from llmgw.core.decide import decide
from llmgw.core.history import Known, record
from llmgw.core.holdings import HoldingState, MirrorSeen
from llmgw.core.learning import learn
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.promise import Promise
from llmgw.core.promised import followed
from llmgw.core.references import Files, held_files
from llmgw.core.replicas import survey
from llmgw.core.serving import table
from llmgw.core.status import FleetStatus, status
from llmgw.core.wanted import Wanted
from llmgw.errors import OperatorError, Refused
from llmgw.sources.fleet import Reports
from llmgw_agent.protocol import split_id

log = logging.getLogger(__name__)

LEAST_APART_S = 0.5
"""At most two passes a second, however much news there is."""
MOST_APART_S = 30.0
HELD_APART_S = 2.0
"""While something is held, or a pass failed: what waits for its time has it soon after."""
MIRROR_EVERY_S = 5.0
MIRROR_BUSY_EVERY_S = 0.5
"""While it fetches, so that a start follows its weights at once."""


class Loop:
    """One control's passes."""

    def __init__(
        self,
        *,
        memory: Memory,
        news: asyncio.Event,
        reports: Reports,
        tables: Tables,
        writer: Writer,
        known: Known,
        mirror_key_file: Path | None,
        before_first: Callable[[], Awaitable[None]],
        now: Callable[[], float],
        troubles: Callable[[], tuple[Condition, ...]] = tuple,
    ) -> None:
        """Decide nothing yet: nothing is wanted until the repository has been read.

        Args:
            memory: of an earlier control, as far as the status branch has it.
            news: set when something changed and the next pass should be soon.
            reports: what nodes say, and what they are to be told.
            tables: what gateways are told.
            writer: commits the status.
            known: what of history an earlier control had written down.
            mirror_key_file: holds the key for the mirror's API.
            before_first: called when every node has spoken, before the first decision.
            now: UTC seconds.
            troubles: what is wrong with control itself.
        """
        self.followed: Followed | None = None
        self.plan: Plan | None = None
        self.said: FleetStatus | None = None
        """The status as of the last pass."""
        self.memory = memory
        self.reports, self._tables, self._writer, self.now = reports, tables, writer, now
        self._known = known
        self._troubles = troubles
        self._mirror_key_file, self._before_first = mirror_key_file, before_first
        self._mirror: Mirror | None = None
        self._mirror_seen: MirrorSeen | None = None
        self._mirror_trouble = ""
        self._news = news
        self._mirror_news = asyncio.Event()
        self._guard, self._mirror_guard = Guard("a pass"), Guard("a look at the mirror")
        self._history_guard = Guard("a line of history")

    @property
    def trouble(self) -> tuple[str, ...]:
        """Bugs that the last turns met."""
        guards = (self._guard, self._mirror_guard, self._history_guard)
        return tuple(guard.trouble for guard in guards if guard.trouble)

    def found(self, followed: Followed) -> None:
        """Take up what the repository came to."""
        self.followed = followed
        self._mirror_news.set()
        self._news.set()

    def running(self) -> Iterable[str]:
        """Names of models that replicas run of, as far as nodes have said."""
        names = [n.name for n in self.followed.wanted.server.nodes] if self.followed and self.followed.wanted else []
        return {split_id(r.id)[0] for n in self.reports.seen(names) for r in n.replicas}

    def held(self) -> Files:
        """What the mirror has whole, or had when it was last seen, and what nodes have."""
        return held_files(self.observe(), self.memory.files)

    def observe(self) -> Observed:
        """Everything seen now."""
        wanted = self.followed.wanted if self.followed else None
        names = [n.name for n in wanted.server.nodes] if wanted else []
        gateways = [g.name for g in wanted.server.gateways] if wanted else []
        return Observed(self.reports.seen(names), self._mirror_seen, self._tables.demand_seen(gateways))

    def status(self, wanted: Wanted, seen: Observed, plan: Plan, now: float) -> FleetStatus:
        """What is, and what all of it is held by."""
        said = status(wanted, seen, plan, now)
        why = self.followed.standstill if self.followed else ""
        held = (*said.held, why) if why else said.held
        return structs.replace(said, held=held, trouble=self._troubles())

    async def run(self) -> None:
        """Pass for ever."""
        while True:
            await self.one_pass()
            await asyncio.sleep(LEAST_APART_S)
            soon = self._guard.trouble or (self.plan and self.plan.held)
            apart = HELD_APART_S if soon else MOST_APART_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(apart - LEAST_APART_S):
                    await self._news.wait()

    async def one_pass(self) -> None:
        """Look, decide, act and say, once. Where that cannot be done, orders and table stay as last sent."""
        self._news.clear()
        with self._guard:
            await self._pass()
        if self._guard.trouble:
            self._writer.offer_trouble(self._guard.trouble, self.followed.wanted if self.followed else None)

    async def _pass(self) -> None:
        wanted = await self._wanted()
        if wanted is None:
            return
        now, seen = self.now(), self.observe()
        self.memory = structs.replace(self.memory, learned=learn(self.memory.learned, wanted, seen, now))
        plan = decide(wanted, seen, self.memory, now)
        before = self.memory
        if before.promise is not None and before.promise.commit == wanted.commit:
            plan = _promised(plan, followed(wanted, seen, before, plan, now))
        said = self.status(wanted, seen, plan, now)
        if plan.settled:
            # All of it is made before any of it is sent: half of a pass is none.
            orders, memory = compose(wanted, plan)
            fresh = table(wanted, seen, plan, now)
            self.memory = memory
            await self.reports.publish(orders)
            # A table of a fleet that has not spoken yet would take replicas away that serve.
            await self._tables.publish(fresh)
        else:
            self.memory = plan.memory
        self.plan, self.said = plan, said
        self._say(plan)
        with self._history_guard:
            self._write_down(wanted, seen, plan, now)
        self._writer.offer(said, wanted)
        await self._act(plan)
        if plan.settled and (before.promise is None or before.promise.commit != wanted.commit):
            # Nothing that is ordered waits for the plan of a new commit to be worked out to its end.
            told = await asyncio.to_thread(followed, wanted, seen, before, plan, now)
            self.memory = structs.replace(self.memory, promise=told)
            self._news.set()

    def _write_down(self, wanted: Wanted, seen: Observed, plan: Plan, now: float) -> None:
        if self._writer.takes_lines:
            lines, self._known = record(self._known, wanted, seen, plan, now)
            self._writer.write_down(lines)

    async def _wanted(self) -> Wanted | None:
        """What is wanted now. None: nothing can be decided for."""
        followed = self.followed
        if followed is None:
            return None
        if followed.wanted is None:
            self._writer.offer_problems(followed.commit, followed.problems)
            return None
        if self.memory.settled or not survey(followed.wanted, self.observe(), self.memory, self.now()).settled:
            return followed.wanted
        await self._before_first()
        return self.followed.wanted if self.followed else None

    def _say(self, plan: Plan) -> None:
        for action in plan.actions:
            kind = str(action.__struct_config__.tag)
            subject = f"{action.name}/{action.version}" if isinstance(action, Fetch | Remove) else action.id
            where = "" if isinstance(action, Fetch | Remove) else action.node
            log.info("%s %s: %s", kind, subject, action.why, extra={"node": where} if where else {})

    async def _act(self, plan: Plan) -> None:
        """Have the mirror do its part. Orders are carried out by being published."""
        for action in plan.actions:
            if self._mirror is None or not isinstance(action, Fetch | Remove):
                continue
            try:
                await (self._mirror.fetch(action) if isinstance(action, Fetch) else self._mirror.remove(action))
            except OperatorError as e:
                log.warning("the mirror did not do it: %s", e.sentence, extra={"model": action.name})
                if isinstance(action, Fetch) and isinstance(e, Refused):
                    boot = self._mirror_seen.boot if self._mirror_seen else ""
                    self.memory = refused(self.memory, action, f"{e.what}, because {e.why}", e.do, boot)
                    self._news.set()
            self._mirror_news.set()

    async def watch_mirror(self) -> None:
        """Look at the mirror every few seconds, more often while it fetches."""
        while True:
            self._mirror_news.clear()
            with self._mirror_guard:
                await self._look_at_mirror()
            holdings = self._mirror_seen.holdings if self._mirror_seen else ()
            busy = any(h.state not in (HoldingState.PRESENT, HoldingState.FAILED) for h in holdings)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MIRROR_BUSY_EVERY_S if busy else MIRROR_EVERY_S):
                    await self._mirror_news.wait()

    async def _look_at_mirror(self) -> None:
        wanted = self.followed.wanted if self.followed else None
        api = wanted.server.mirror.api if wanted and wanted.server.mirror else None
        if self._mirror is not None and self._mirror.api != api:
            await self._mirror.close()
            self._mirror, self._mirror_seen = None, None
        if api is None:
            return
        self._mirror = self._mirror or Mirror(api, key_file=self._mirror_key_file)
        try:
            seen: MirrorSeen | None = await self._mirror.look()
            self._mirror_trouble = ""
        except OperatorError as e:
            # Unreachable is unknown, which is not empty.
            seen = None
            if str(e) != self._mirror_trouble:
                log.warning("the mirror cannot be looked at: %s", e.sentence)
            self._mirror_trouble = str(e)
        if seen != self._mirror_seen:
            self._mirror_seen = seen
            self._news.set()

    async def close(self) -> None:
        """End what is open to the mirror."""
        if self._mirror is not None:
            await self._mirror.close()


def _promised(plan: Plan, promise: Promise | None) -> Plan:
    return structs.replace(plan, memory=structs.replace(plan.memory, promise=promise))
