"""What the node has, looked at in the background: a probe that hangs delays no report and no other probe."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from msgspec import structs

from llmgw_agent.probe import bandwidth, disk, engines, gpu, holders, host
from llmgw_agent.protocol import ForeignProcess, InstalledEngine, Inventory
from llmgw_agent.settings import Settings
from llmgw_agent.tree import Usage
from llmgw_agent.weights import Weights

LOG = logging.getLogger(__name__)


class Machine:
    """The last look at the machine."""

    def __init__(
        self,
        settings: Settings,
        *,
        ours: Callable[[], list[Usage]],
        weights: Callable[[], Weights],
        changed: Callable[[], None],
    ) -> None:
        """Nothing is looked at yet.

        Args:
            settings: where to look, and how often.
            ours: what our engines use now.
            weights: the versions here.
            changed: told when a look found something else.
        """
        self._settings, self._ours, self._weights, self._changed = settings, ours, weights, changed
        self._host: host.Host | None = None
        self._cards: gpu.Cards | None = None
        self._engines: tuple[InstalledEngine, ...] | None = None
        self._holders: tuple[ForeignProcess, ...] = ()
        self._probe = gpu.Probe(settings.path)
        self._looked = asyncio.Event()
        self._rates_file = settings.state / "bandwidth.json"
        self._rates = bandwidth.kept(self._rates_file)
        self._disk_file = settings.state / "disk.json"
        self._disk = disk.kept(self._disk_file)
        self._disk_is_of_now = False
        """Whether the disk was measured since the agent started."""

    async def engines(self) -> tuple[InstalledEngine, ...]:
        """The engines of this node, once they have been looked for."""
        await self._looked.wait()
        return self._engines or ()

    def on_cards(self, pids: Collection[int]) -> int | None:
        """Bytes that these processes of ours hold on all cards. None: the driver does not say it of any of them."""
        held = self._cards.held if self._cards else {}
        known = [held[pid] for pid in pids if pid in held]
        return sum(known) if known else None

    def inventory(self) -> Inventory | None:
        """What the node has. None until every probe has come back once: a card not seen yet is not an absent one."""
        if self._host is None or self._cards is None or self._engines is None:
            return None
        own = sum(usage.own_bytes for usage in self._ours())
        return Inventory(
            hostname=self._host.hostname,
            cpu_cores=self._host.cpu_cores,
            memory_bytes=self._host.memory_bytes,
            memory_used_by_others_bytes=host.used_by_others(self._host, own, self._settings.reserve_bytes),
            processes=self._holders,
            disk_free_bytes=self._host.disk_free_bytes,
            weights_id=self._host.weights_id,
            cards=self._cards.cards,
            card_problem=self._cards.problem,
            engines=tuple(sorted(self._engines)),
            allow=self._settings.allow,
            memory_gbs=self._rates.all_gbs if self._rates else None,
            memory_core_gbs=self._rates.core_gbs if self._rates else None,
            disk_gbs=self._disk.read_gbs,
            fetch_gbs=self._disk.fetch_gbs,
        )

    async def watch(self) -> None:
        """Look again and again, each probe at its own pace."""
        async with asyncio.TaskGroup() as group:
            for look in (self._look_at_host, self._look_for_engines, self._look_at_cards):
                group.create_task(self._again_and_again(look))
            group.create_task(self._measure_memory())
            group.create_task(self._measure_disk())

    async def _again_and_again(self, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            before = self.inventory()
            try:
                await look()
            except OSError as e:
                LOG.warning("a look at this machine failed", extra={"why": str(e)})
            if self.inventory() != before:
                self._changed()
            await asyncio.sleep(self._settings.pace.probe_s)

    async def _measure_memory(self) -> None:
        """Once, when whatever starts with the machine has started: it is a second of all cores."""
        await asyncio.sleep(self._settings.pace.measure_memory_after_s)
        try:
            self._rates = await asyncio.to_thread(bandwidth.measured, self._rates_file)
        except OSError as e:
            LOG.warning("how fast memory is read could not be measured", extra={"why": str(e)})
        self._changed()

    async def _measure_disk(self) -> None:
        """The disk once, when there is a file to read; the network whenever weights were fetched."""
        await asyncio.sleep(self._settings.pace.measure_memory_after_s)
        while True:
            weights, before = self._weights(), self._disk
            try:
                if not self._disk_is_of_now and not weights.arriving:
                    largest = await asyncio.to_thread(weights.largest)
                    read = await asyncio.to_thread(disk.read_gbs, largest) if largest else None
                    self._disk_is_of_now = read is not None
                    self._disk = structs.replace(self._disk, read_gbs=read or self._disk.read_gbs)
                self._disk = structs.replace(self._disk, fetch_gbs=weights.fetched_gbs or self._disk.fetch_gbs)
                if self._disk != before:
                    await asyncio.to_thread(disk.keep, self._disk_file, self._disk)
                    self._changed()
            except OSError as e:
                LOG.warning("how fast weights come could not be measured", extra={"why": str(e)})
            await asyncio.sleep(self._settings.pace.probe_s)

    async def _look_at_host(self) -> None:
        self._host = await asyncio.to_thread(host.look, self._settings.weights)
        self._holders = await asyncio.to_thread(holders.of_memory, self._our_pids())

    async def _look_for_engines(self) -> None:
        folders = (*self._settings.engine_paths, *self._settings.path)
        self._engines = await asyncio.to_thread(engines.look, folders)
        self._looked.set()

    async def _look_at_cards(self) -> None:
        """When the driver hangs the cards stay as they were last seen, with the problem said beside them."""
        seen = await self._probe.look(self._our_pids())
        before = self._cards or gpu.Cards()
        if seen.problem and seen.problem != before.problem:
            LOG.warning("the cards of this node cannot be read", extra={"why": seen.problem})
        self._cards = structs.replace(before, problem=seen.problem) if seen.problem else seen

    def _our_pids(self) -> set[int]:
        return {pid for usage in self._ours() for pid in usage.pids}
