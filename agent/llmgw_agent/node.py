"""One node: holds what runs against what is ordered, and says what is."""

from __future__ import annotations

import asyncio
import logging

import psutil
from msgspec import UNSET

from llmgw_agent import __version__, adoption, lineage, tls
from llmgw_agent.control import Control
from llmgw_agent.engines.base import Adapter
from llmgw_agent.engines.llamacpp import LlamaCpp
from llmgw_agent.errors import OperatorError, Refused
from llmgw_agent.fetch.line import Connections
from llmgw_agent.hold import Hold
from llmgw_agent.logs import Logs
from llmgw_agent.machine import Machine
from llmgw_agent.orders import OrderBook
from llmgw_agent.process import boot_id
from llmgw_agent.protocol import Action, Orders, ReplicaOrder, Report
from llmgw_agent.records import Key, Records
from llmgw_agent.replica import Replica
from llmgw_agent.settings import Settings
from llmgw_agent.supervisor import Event, State
from llmgw_agent.surroundings import Surroundings
from llmgw_agent.weights import Weights

LOG = logging.getLogger(__name__)

PROGRESS_EVERY_S = 2.0
"""How often somebody who watches a slow step hears of it."""
ROOM_EVERY_S = 0.2
DISK_EVERY_S = 5.0
"""Between two looks at whether what was written down is still there."""


class Node:
    """Everything of llmgw on this machine."""

    def __init__(self, settings: Settings, hold: Hold) -> None:
        """Take up what an earlier agent left in a state folder that is held. Nothing is started."""
        self.settings, self._hold = settings, hold
        self.news = asyncio.Event()
        self._again = asyncio.Event()
        self._fresh = False
        """Whether control has spoken since this agent started. Until then nothing is started."""
        self._ending = False
        self._trouble = ""
        """Why the last orders were not obeyed; empty when they were."""
        self.book = OrderBook(settings.state / "orders.json")
        self.replicas: dict[Key, Replica] = {}
        self.machine = Machine(
            settings,
            ours=lambda: [r.usage for r in self.replicas.values()],
            weights=lambda: self.weights,
            changed=self.news.set,
        )
        self.weights = Weights(
            settings.weights,
            pool=Connections(ssl_context=tls.context(settings.ca_file)),
            in_use=lambda: {r.runs_as.version for r in self._holding()},
            writer=lineage.instance(lineage.owner(settings.node, settings.state)),
        )
        self._records = Records(settings.state / "replicas")
        adapters: list[Adapter] = [LlamaCpp()]
        self._around = Surroundings(
            settings=settings,
            boot=boot_id(),
            owner=lineage.owner(settings.node, settings.state),
            records=self._records,
            logs=Logs(settings.state / "logs"),
            weights=self.weights,
            adapters={a.name: a for a in adapters},
            installed=self.machine.engines,
            address=lambda: self.book.address,
            ordered=self.book.replica,
            version=self.book.version,
            ports=lambda: {r.started.port for r in self.replicas.values() if r.started},
            on_cards=self.machine.on_cards,
            room=self._room,
            changed=self._changed,
        )
        self._take_up()

    def report(self) -> Report:
        """The whole of what is, from what is known already."""
        epoch, seq = self.book.obeyed
        return Report(
            node=self.settings.node,
            boot=self._around.boot,
            agent_version=__version__,
            obeyed_epoch=epoch,
            # Nothing of this epoch, until control has spoken to this process: so it
            # says its orders again, and does not take an answer of "nothing new" for them.
            obeyed_seq=seq if self._fresh else 0,
            instance=lineage.instance(self._around.owner),
            trouble=self._trouble,
            inventory=self.machine.inventory() or UNSET,
            replicas=tuple(self.replicas[key].report() for key in sorted(self.replicas)),
            versions=self.weights.report(),
        )

    def obey(self, orders: Orders) -> None:
        """Make what is into what these orders say.

        Raises:
            OperatorError: they cannot be obeyed. Every report says why, until others are.
        """
        try:
            new = self.book.accept(orders)
        except OperatorError as e:
            self._trouble = e.sentence
            raise
        if self._trouble:
            self._trouble = ""
            self.news.set()
        if new or not self._fresh:
            LOG.info("new orders", extra={"epoch": orders.epoch, "seq": orders.seq, "replicas": len(orders.replicas)})
        self._fresh = True
        self._hold_to_orders()

    async def run(self, control: Control) -> None:
        """Look, report, obey, until cancelled.

        Raises:
            Refused: the state folder was removed, and another agent has the new one.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.machine.watch())
                group.create_task(control.talk(self.report, self.obey, self.news))
                group.create_task(self._keep_to_orders())
                group.create_task(self._tell_progress())
                group.create_task(self._keep_on_disk())
                group.create_task(self._watch_weights())
        except BaseExceptionGroup as group:
            # What a person can act on is said so, and not as a bug with its traceback.
            if (refused := group.subgroup(Refused)) is not None:
                raise refused.exceptions[0] from None
            raise

    async def end_engines(self) -> tuple[str, ...]:
        """End every engine, in bounded time. The ids of those that could not be ended."""
        self._ending = True
        for replica in self.replicas.values():
            replica.tell(Event.STOP)
        pace = self.settings.pace
        try:
            async with asyncio.timeout(pace.term_s + pace.kill_s + 5):
                while self._holding():
                    self._again.clear()
                    await self._again.wait()
        except TimeoutError:
            pass
        stuck = {r.order.id for r in self.replicas.values() if r.state.holds or r.stuck}
        return tuple(sorted(stuck))

    async def close(self) -> None:
        """Let go of everything. Engines go on."""
        for replica in self.replicas.values():
            replica.close()
        await self.weights.close()

    def _take_up(self) -> None:
        """First what runs, then what nobody knows, then the last orders: nothing is started by them."""
        records = self._records.load()
        for record in records:
            replica = adoption.take_up(self._around, record)
            if replica is None:
                self._records.forget((record.order.id, record.order.generation))
            else:
                self.replicas[replica.key] = replica
        known = {r.started.marker for r in self.replicas.values() if r.started}
        recorded = {(record.order.id, record.order.generation) for record in records}
        self.replicas |= {r.key: r for r in adoption.take_up_unrecorded(self._around, known, recorded)}
        self._hold_to_orders()

    def _hold_to_orders(self) -> None:
        """Tell every replica what its order says. Said again whenever something changed: nothing is remembered."""
        if self._ending or self.book.last is None:
            return
        ordered: dict[Key, ReplicaOrder] = {(o.id, o.generation): o for o in self.book.last.replicas}
        for key, order in ordered.items():
            replica = self.replicas.get(key)
            if replica is not None:
                replica.obey(order, fresh=self._fresh)
            elif order.action is Action.RUN and self._fresh:
                self.replicas[key] = Replica(self._around, order)
                self.replicas[key].tell(Event.RUN)
        for key, replica in list(self.replicas.items()):
            if key not in ordered:
                replica.tell(Event.DRAIN)
                if not replica.state.holds:
                    self._forget(key)
        if self._fresh:
            self.weights.obey(self.book.last.versions)

    def _forget(self, key: Key) -> None:
        self.replicas.pop(key).close()
        self._records.forget(key)
        self.news.set()

    def _holding(self) -> list[Replica]:
        return [r for r in self.replicas.values() if r.state.holds]

    def _changed(self) -> None:
        self.news.set()
        self._again.set()

    async def _keep_to_orders(self) -> None:
        """Hold to the orders again when something changed, and now and then: a stop that is over may be a start."""
        while True:
            try:
                async with asyncio.timeout(self.settings.pace.probe_s):
                    await self._again.wait()
            except TimeoutError:
                pass
            self._again.clear()
            self._hold_to_orders()

    async def _keep_on_disk(self) -> None:
        """Write down again what somebody removed: a later agent goes by it."""
        while True:
            if self._hold.lost:
                LOG.warning("the state folder was removed, or is another; it is written anew")
                self._hold.take()
                try:
                    self.weights.look()
                except OSError as e:
                    LOG.error("the weights cannot be looked at", extra={"why": str(e)})  # noqa: TRY400
                self.news.set()
            self.book.keep_on_disk()
            for replica in self.replicas.values():
                replica.keep_on_disk()
            await asyncio.sleep(DISK_EVERY_S)

    async def _watch_weights(self) -> None:
        """Find what an agent that shares the folder of weights has brought or taken away."""
        while True:
            await asyncio.sleep(DISK_EVERY_S)
            try:
                if await self.weights.look_again():
                    self._changed()
            except OSError as e:
                LOG.warning("the weights cannot be looked at", extra={"why": str(e)})

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            slow = {State.FETCHING, State.STARTING} & {r.state for r in self.replicas.values()}
            if slow or self.weights.arriving:
                self.news.set()

    async def _room(self, key: Key, order: ReplicaOrder) -> None:
        """Back once nothing that is going away holds a card of this order, or the memory it still lacks.

        Only what is ending is waited for, so the wait is bounded by the drains.
        Whether it fits beside what stays was decided where it was placed.
        """
        claim = order.spec.claim.memory_bytes if order.spec else 0
        while True:
            ending = [r for k, r in self.replicas.items() if k != key and r.state.ending]
            short = psutil.virtual_memory().available - self.settings.reserve_bytes < claim
            if not any(short or set(r.runs_as.devices) & set(order.devices) for r in ending):
                return
            await asyncio.sleep(ROOM_EVERY_S)
