"""One replica on this node: carries out what the supervisor's table says, and tells it what comes of that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TypeVar

from msgspec import structs

from llmgw_agent import dossier, logs, process, tree
from llmgw_agent.dossier import Fault
from llmgw_agent.engines.ask import NoAnswerError
from llmgw_agent.probe.host import kernel_out_of_memory_kills
from llmgw_agent.process import Exit, Process
from llmgw_agent.protocol import Action, Dossier, EngineSpec, Progress, ReplicaOrder, ReplicaReport
from llmgw_agent.records import Key, Record, Started, boot_clock
from llmgw_agent.speed import Speed
from llmgw_agent.starts import Start, endpoint
from llmgw_agent.supervisor import TABLE, Effect, Event, State
from llmgw_agent.surroundings import Surroundings

T = TypeVar("T")
LOG = logging.getLogger(__name__)

FORGIVEN_AFTER_S = 600.0
"""Ready for this long, earlier failures no longer count."""
SPEED_EVERY_S = 30.0
LOOK_AGAIN_S = 30.0
"""Before a watch that broke by a bug of ours is taken up again. The engine goes on meanwhile."""

# What is told when an effect ends by a bug of ours. A watch is not here: the
# engine is not at fault, and is not ended for it.
BROKEN = {
    Effect.FETCH: Event.UNFETCHABLE,
    Effect.START: Event.UNFIT,
    Effect.FINISH: Event.IDLE,
    Effect.END: Event.STUCK,
    Effect.KILL: Event.STUCK,
}


class Replica:
    """One generation of one replica."""

    def __init__(self, around: Surroundings, order: ReplicaOrder) -> None:
        self.around, self.order = around, order
        self.state = State.STOPPED
        self.since_s = boot_clock()
        self.starts = 0
        self.attempts = order.attempt
        """Control counts what failed before this generation; what fails here is added to it."""
        self.dossier: Dossier | None = None
        self.started: Started | None = None
        self.process: Process | None = None
        self.usage = tree.Usage()
        self.peak_bytes = 0
        self.card_bytes: int | None = None
        self.card_peak_bytes = 0
        self.busy: int | None = None
        self.speed = Speed()
        self.loading: Progress | None = None
        self._sign: tuple[float, tuple[object, ...] | None] | None = None
        """When something last moved in it, and its counters then. None before the first watch."""
        self._unsaved = False
        """Whether its record on disk is an older one."""
        self._blamed: Dossier | None = None
        self._task: asyncio.Task[Event] | None = None

    @property
    def key(self) -> Key:
        return self.order.id, self.order.generation

    @property
    def runs_as(self) -> ReplicaOrder:
        """The order it was started by, whatever is ordered now; the newest where nothing runs."""
        return self.started.order if self.started else self.order

    @property
    def spec(self) -> EngineSpec:
        """How it runs, or is to be run. Raises Fault when its order does not say."""
        spec = self.runs_as.spec
        if spec is None:
            why = "its order says nothing of how to run it"
            raise Fault("refused", f"{self.order.id} was not started", why=why, do="compare the versions of both sides")
        return spec

    @property
    def _is_locked(self) -> bool:
        """Whether an engine serves here whose key nobody has any more."""
        return self.state in {State.READY, State.DRAINING} and self.started is not None and not self.started.key

    @property
    def stuck(self) -> bool:
        """Whether something of it is left that could not be ended."""
        return self.dossier is not None and self.dossier.cause == "stuck"

    def obey(self, order: ReplicaOrder, *, fresh: bool) -> None:
        """Do what its order says. One from the disk, not `fresh`, keeps what runs and starts nothing."""
        if order.action is Action.DRAIN:
            self.tell(Event.DRAIN)
        elif order.action is Action.RUN:
            if not fresh and not self.state.holds:
                return
            raised = order.attempt > self.order.attempt
            self.order = order
            # One whose key is lost refuses everybody: it finishes what it has, and is started again.
            self.tell(Event.DRAIN if self._is_locked else Event.RUN)
            if raised:
                self.attempts = max(self.attempts, order.attempt)
                self.tell(Event.AGAIN)

    def tell(self, event: Event) -> None:
        """Something happened: change the state and begin what the table says."""
        before = self.state
        self.state, effects = TABLE[before, event]
        if self.state is not before:
            if self._task:
                self._task.cancel()
                self._task = None
            self._enter(before)
        for effect in effects:
            if effect is Effect.REPORT:
                self.around.changed()
            else:
                self._begin(effect)

    def close(self) -> None:
        """Let go of it. Its engine goes on."""
        if self._task:
            self._task.cancel()
            self._task = None
        if self.process:
            self.process.close()
            self.process = None

    def resume(self, state: State, effect: Effect | None, why: Dossier | None = None) -> None:
        """Go on where an earlier agent left it, in `state`; `why` it failed meanwhile, if it did."""
        self.state = state
        if why is not None:
            self.attempts += 1
            self._explain(why)
        self.save()
        if effect is not None:
            self._begin(effect)

    def report(self) -> ReplicaReport:
        """As it is now, from what is known already: nothing here waits."""
        order, spec = self.runs_as, self.runs_as.spec
        running = self.started if self.process else None
        return ReplicaReport(
            id=order.id,
            generation=order.generation,
            phase=self.state.phase,
            fingerprint=order.fingerprint,
            age_s=round(boot_clock() - self.since_s, 1),
            pid=self.process.pid if self.process else None,
            port=running.port if running else None,
            address=running.address if running else "",
            key=running.key if running else "",
            engine=spec.engine if spec else "",
            engine_version=running.engine.version if running else "",
            parallel=spec.parallel if spec else 0,
            version=order.version,
            devices=order.devices,
            claim=spec.claim if spec else None,
            memory_bytes=self.usage.memory_bytes if running else None,
            memory_peak_bytes=self.peak_bytes or None,
            card_bytes=self.card_bytes if running else None,
            card_peak_bytes=self.card_peak_bytes or None,
            tps=None if self.speed.tps is None else round(self.speed.tps, 1),
            busy=self.busy if running else None,
            progress=self._progress(),
            attempts=self.attempts,
            dossier=self.dossier,
            started_age_s=round(boot_clock() - running.at_s, 1) if running else None,
        )

    def record(self) -> Record:
        """What a later agent must know of it."""
        return Record(
            self.order,
            self.state,
            self.around.boot,
            self.since_s,
            self.attempts,
            self.starts,
            self.dossier,
            self.started,
            self.peak_bytes,
            self.card_peak_bytes,
        )

    def save(self) -> None:
        """Put its record on disk, before anybody is told of it."""
        try:
            self.around.records.save(self.record())
            self._unsaved = False
        except OSError as e:
            # A full disk must not end the agent, or an engine. A later agent finds
            # the engine by its marker at least; and it is tried again.
            if not self._unsaved:
                LOG.error("the record of %s cannot be written", self.order.id, extra={"why": str(e)})  # noqa: TRY400
            self._unsaved = True

    def keep_on_disk(self) -> None:
        """Write down again what is not on disk: it could not be written, or somebody removed it."""
        records = self.around.records
        if self._unsaved or not records.has(self.key):
            self.save()
        if self.started and self.started.key and not records.key_file(self.key).exists():
            with suppress(OSError):
                records.keep_key(self.key, self.started.key)

    def blame(self, why: Dossier) -> None:
        """What the failure that is told next is about."""
        self._blamed = why

    def _progress(self) -> Progress | None:
        if self.state is State.FETCHING:
            return self.around.weights.progress(self.order.version)
        return self.loading if self.state is State.STARTING else None

    def _enter(self, before: State) -> None:
        """Account for a change of state, then make it durable."""
        self.since_s = boot_clock()
        if self.state is State.READY:
            self.dossier = self._sign = None
        if self.state is State.FAILING or (self.state is State.FAILED and before in {State.FETCHING, State.STARTING}):
            self.attempts += 1
        if self._blamed and self.state in {State.FAILING, State.FAILED}:
            self._explain(self._blamed)
        self._blamed = None
        if not self.state.holds:
            if self.process:
                self.process.close()
            self.process = self.started = self.busy = None
            self.usage, self.speed, self.card_bytes = tree.Usage(), Speed(), None
        self.save()
        model = self.order.id.partition("/")[0]
        more = {"model": model, "replica": self.order.id, "generation": self.order.generation}
        if self.dossier and self.state is State.FAILED:
            more |= {"cause": self.dossier.cause, "why": self.dossier.message, "attempts": self.attempts}
        said = f"{self.order.id} is {self.state}"
        LOG.log(logging.WARNING if self.state is State.FAILED else logging.INFO, said, extra=more)

    def _explain(self, why: Dossier) -> None:
        """Keep why it failed, for the report and beside its log."""
        self.dossier = structs.replace(why, attempt=self.attempts)
        if self.started:
            logs.explain(self.started.log_path, self.dossier)

    def _begin(self, effect: Effect) -> None:
        activities: dict[Effect, Callable[[], Awaitable[Event]]] = {
            Effect.FETCH: self._fetch,
            Effect.START: Start(self).run,
            Effect.WATCH: self._watch,
            Effect.FINISH: self._finish,
            Effect.END: partial(self._clear, gently=True),
            Effect.KILL: partial(self._clear, gently=False),
        }

        async def act() -> Event:
            return await activities[effect]()

        self._task = asyncio.create_task(act(), name=f"{effect} {self.order.id}")
        self._task.add_done_callback(partial(self._over, effect))

    def _over(self, effect: Effect, task: asyncio.Task[Event]) -> None:
        """An effect came to its end: tell what of it came."""
        if task.cancelled():
            return
        error = task.exception()
        if task is not self._task:
            return
        self._task = None
        if error is None:
            self.tell(task.result())
            return
        LOG.error("a bug in the agent ended %s of %s", effect, self.order.id, exc_info=error)
        if effect is Effect.WATCH:
            if how := self.process and self.process.exit:
                # It is known to have ended, whatever kept us from saying why.
                self.blame(dossier.without_reason(how))
                self.tell(Event.EXITED)
                return
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again)
            return
        self.blame(Dossier("internal", f"a bug in the agent: {type(error).__name__}"))
        self.tell(BROKEN[effect])

    def _look_again(self) -> None:
        if self.state is State.READY and self._task is None and self.process:
            self._begin(Effect.WATCH)

    async def _fetch(self) -> Event:
        """Have the weights here, and the room that what goes still takes."""
        try:
            await self.around.weights_of(self.order)
            await self.around.room(self.key, self.order)
        except Fault as e:
            self.blame(e.dossier())
            return Event.UNFETCHABLE
        return Event.FETCHED

    async def _watch(self) -> Event:
        """Look at it every few seconds, until it ends or stands still.

        Slow is not dead. It is at fault when nothing has moved for minutes:
        no answer, or slots at work whose counters stand. That `/health` says
        200 is no sign of life, since it needs none of what may have died.
        """
        pace, adapter = self.around.settings.pace, self.around.adapter(self.spec.engine)
        at, measured = endpoint(self), time.monotonic()
        # Kept when a watch broke and is taken up again: one that breaks now and then would never find it wedged.
        signed, mark = self._sign = self._sign or (measured, None)
        if self.speed.tps is None:
            measured -= SPEED_EVERY_S
        while True:
            if how := await self.exits_within(pace.watch_s):
                return self.ended(how)
            await self.measure()
            now = time.monotonic()
            try:
                vitals = await adapter.vitals(at, within_s=pace.watch_s)
                self.busy = vitals.busy
                if not vitals.busy or vitals.mark != mark:
                    signed, mark = self._sign = now, vitals.mark
                if now - measured >= SPEED_EVERY_S and vitals.mark:
                    measured = now
                    if (work := await adapter.work(at, within_s=pace.watch_s)) is not None:
                        self.speed.saw(work)
            except NoAnswerError:
                pass
            if now - signed > pace.wedged_after_s:
                silent = f"nothing moved in it for {now - signed:.0f} s"
                self.blame(dossier.of_silence("wedged", silent, self.log_lines(), adapter.signs))
                return Event.WEDGED
            if self.attempts and boot_clock() - self.since_s > FORGIVEN_AFTER_S:
                self.attempts = 0
                self.save()

    async def _finish(self) -> Event:
        """Wait until two looks in a row find it idle, or its time is over."""
        pace, spec = self.around.settings.pace, self.spec
        adapter, at = self.around.adapter(spec.engine), endpoint(self)
        deadline, idle = time.monotonic() + spec.drain_timeout_s, 0
        while True:
            try:
                self.busy = (await adapter.vitals(at, within_s=pace.watch_s)).busy
                idle = idle + 1 if self.busy == 0 else 0
            except NoAnswerError:
                idle = 0
            left = deadline - time.monotonic()
            if idle >= 2 or left <= 0:
                return Event.IDLE
            if await self.exits_within(min(pace.idle_gap_s, left)):
                return Event.EXITED

    async def _clear(self, *, gently: bool) -> Event:
        """End it and everything it started."""
        pace = self.around.settings.pace
        if gently and self.process:
            await process.ask_to_end(self.process, within_s=pace.term_s)
        if not self.started:
            return Event.GONE
        left = await process.sweep(self.started.marker, self.process, within_s=pace.kill_s)
        if left:
            pids = ", ".join(map(str, left))
            self.blame(Dossier("stuck", f"the kernel does not let go of process {pids}", log_tail=()))
            return Event.STUCK
        return Event.GONE

    async def exits_within(self, seconds: float) -> Exit | None:
        """How it ended, if it does within this time; else None, after it."""
        assert self.process is not None
        try:
            async with asyncio.timeout(seconds):
                return await self.process.wait()
        except TimeoutError:
            return None

    async def unless_it_ends(self, question: Coroutine[None, None, T]) -> T | None:
        """The answer to a question; None when its process ends first, and another may be answering in its place."""
        assert self.process is not None
        asked, ended = asyncio.ensure_future(question), asyncio.ensure_future(self.process.wait())
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            return None if ended.done() else asked.result()
        finally:
            for task in (asked, ended):
                task.cancel()
            await asyncio.gather(asked, ended, return_exceptions=True)

    def ended(self, how: Exit) -> Event:
        """It ended by itself: find out why."""
        self.blame(self.why_ended(how))
        return Event.EXITED

    def why_ended(self, how: Exit) -> Dossier:
        """What its exit and its log tell, also where this agent does not know its engine."""
        before, now = self.started.kernel_kills if self.started else None, kernel_out_of_memory_kills()
        adapter = self.around.adapters.get(self.runs_as.spec.engine) if self.runs_as.spec else None
        return dossier.of_exit(
            how,
            self.log_lines(),
            adapter.signs if adapter else (),
            kernel_out_of_memory=before is not None and now is not None and now > before,
        )

    def log_lines(self) -> list[str]:
        """The end of its log, without its key."""
        if not self.started:
            return []
        return dossier.last_lines(self.started.log_path, secret=self.started.key)

    async def measure(self) -> None:
        """What it uses now, in a thread: reading /proc waits for a process that is being paged in."""
        assert self.process is not None
        assert self.started is not None
        self.usage = await asyncio.to_thread(tree.look, self.process.pid)
        on_cards = bool(self.runs_as.devices)
        # Weights on their way to a card pass through pages of the host, which are given back.
        if not (on_cards and self.state is State.STARTING):
            most = self.usage.memory_bytes if on_cards else self.usage.most_bytes
            self.peak_bytes = max(self.peak_bytes, most)
        self.card_bytes = self.around.on_cards(self.usage.pids) if on_cards else None
        self.card_peak_bytes = max(self.card_peak_bytes, self.card_bytes or 0)
        logs.bound(self.started.log_path)
