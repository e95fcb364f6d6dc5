"""A start: from weights that are here to an engine that has answered, or to the reason why not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from llmgw_agent import dossier, ports, process
from llmgw_agent.dossier import Fault, Signs
from llmgw_agent.engines.ask import Endpoint
from llmgw_agent.engines.base import Launch
from llmgw_agent.probe.host import kernel_out_of_memory_kills
from llmgw_agent.process import Process
from llmgw_agent.protocol import EngineSpec, Progress
from llmgw_agent.records import Started, boot_clock
from llmgw_agent.supervisor import Event

if TYPE_CHECKING:  # a start belongs to a replica, which begins it
    from llmgw_agent.replica import Replica

PORT_TRIES = 5
"""A port that was free may be taken before the engine takes it."""

MOVED_BYTES = 64 << 10
"""What must be read or written for it to count as progress: our own questions move a little too."""
AT_MOST = 20
"""Progress extends a start to this many times its timeout, and no further: an
engine that prints a line a minute for ever never answers."""

ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "LANG": "C.UTF-8"}
"""Every engine gets these, and its PATH. Nothing else of the agent's own reaches it."""

HARMLESS = frozenset({"OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "GGML_CUDA_ENABLE_UNIFIED_MEMORY"})
"""What a profile may set in an engine's environment without the machine's owner allowing it."""


class Start:
    """One start of one replica; or the rest of one, when an earlier agent began it."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.around = replica, replica.around

    async def run(self) -> Event:
        """Make a process, and wait until it is healthy or never will be."""
        for _ in range(PORT_TRIES):
            try:
                if self.replica.process is None:
                    await self._launch()
            except Fault as e:
                self.replica.blame(e.dossier())
                return Event.UNSTARTABLE
            except OSError as e:
                self.replica.blame(disk_fault(e).dossier())
                return Event.UNSTARTABLE
            event, cause = await self._come_up()
            if cause != "port":
                return event
            # A stranger was quicker, or answers in its place: not the engine's fault.
            await self._clear_away()
        return event

    async def _launch(self) -> None:
        """Choose everything a start needs, make the process, and have both on disk before anybody hears of it."""
        replica, around, order = self.replica, self.around, self.replica.order
        spec = replica.spec
        adapter = around.adapter(spec.engine)
        engine = adapter.choose(await around.installed(), order.devices, spec.engine_version)
        model = adapter.model(await around.weights_of(order))
        key_file = around.records.key_file(replica.key)
        address = around.address()
        while True:
            port = await asyncio.to_thread(ports.choose, address, around.ports())
            launch = Launch(spec, engine, model, address, port, key_file, order.devices)
            environment = self._environment(spec) | adapter.environment(launch)
            command = await adapter.command(launch)
            # Another start of ours may have had the same idea meanwhile; from here
            # on nothing is waited for until this one's port is written down.
            if port not in around.ports():
                break
        key = around.records.new_key(replica.key)
        replica.starts, replica.peak_bytes = replica.starts + 1, 0
        log = around.logs.new(order.id, order.generation, replica.starts)
        marker = process.new_marker(around.owner, order.id, order.generation)
        kills = kernel_out_of_memory_kills()
        replica.started = Started(order, engine, marker, address, port, str(log), key, None, boot_clock(), kills)
        # First what is about to be made: were we to end in between, the marker finds it.
        around.records.save(replica.record())
        try:
            replica.process = Process.spawn(command, environment, log=log, marker=marker)
        except (OSError, ValueError) as e:  # a NUL in a word is a ValueError
            replica.started = None
            why = f"{command[0]} cannot be run: {e.strerror if isinstance(e, OSError) else e}"
            raise Fault("engine_missing", "the engine was not started", why=why, do="look at that program") from None
        replica.started = structs.replace(replica.started, process=replica.process.identity)
        replica.save()
        around.changed()

    def _environment(self, spec: EngineSpec) -> dict[str, str]:
        """What an engine finds: nothing of the agent's own but its PATH."""
        foreign = sorted(set(spec.env) - HARMLESS)
        if foreign and "env" not in self.around.settings.allow:
            why = "this node's allow file does not allow env"
            raise Fault("refused", f"{foreign[0]} was not set", why=why, do='add "env" to the agent\'s allow file')
        path = ":".join(map(str, self.around.settings.path))
        return ENVIRONMENT | {"PATH": path} | dict(spec.env)

    async def _come_up(self) -> tuple[Event, str]:
        """Wait for health, as long as there is progress. What came, and the cause when it is a failure."""
        replica, pace = self.replica, self.around.settings.pace
        spec, started = replica.spec, replica.started
        assert started is not None
        adapter, at = self.around.adapter(spec.engine), endpoint(replica)
        begun = moved = time.monotonic()
        measured, mark = 0.0, (0, "")
        while True:
            try:
                if await replica.unless_it_ends(adapter.ready(at, within_s=spec.start_timeout_s)):
                    await replica.measure()
                    self._check_cards(adapter.signs)
                    replica.loading = None
                    return Event.HEALTHY, ""
            except Fault as e:
                # One that is just ending answers nothing, and its end says more.
                if how := await replica.exits_within(0.5):
                    return self._ended(how)
                replica.blame(e.dossier(replica.log_lines()))
                return Event.UNFIT, e.cause
            if how := await replica.exits_within(pace.start_s):
                return self._ended(how)
            now = time.monotonic()
            if now - measured >= pace.measure_s:
                await replica.measure()
                fresh = (replica.usage.moved_bytes // MOVED_BYTES, _said(started.log_path))
                if fresh != mark:
                    moved, mark = now, fresh
                measured = now
                replica.loading = Progress("load", replica.usage.memory_bytes)
            if now - moved > spec.start_timeout_s or now - begun > AT_MOST * spec.start_timeout_s:
                still = f"it was not ready after {now - begun:.0f} s, {now - moved:.0f} s of them without progress"
                replica.blame(dossier.of_silence("timeout", still, replica.log_lines(), adapter.signs))
                return Event.UNFIT, "timeout"

    def _check_cards(self, signs: Signs) -> None:
        """Refuse an engine that has come up without its cards: it answers, a hundred times too slowly."""
        if not self.replica.order.devices:
            return
        found = dossier.causal(self.replica.log_lines(), [sign for sign in signs if sign[0] == "device"])
        if found is not None:
            do = "look at the driver of this node, and whether the engine is built for its cards"
            raise Fault("device", "the engine came up without its cards", why=found[1], do=do)

    def _ended(self, how: process.Exit) -> tuple[Event, str]:
        why = self.replica.why_ended(how)
        self.replica.blame(why)
        return Event.EXITED, why.cause

    async def _clear_away(self) -> None:
        """What is left of a try that lost its port."""
        replica, started = self.replica, self.replica.started
        assert started is not None
        assert replica.process is not None
        await process.sweep(started.marker, replica.process, within_s=self.around.settings.pace.kill_s)
        replica.process.close()
        replica.process = replica.started = None


def endpoint(replica: Replica) -> Endpoint:
    """Where its engine listens, and what it should answer as."""
    started = replica.started
    assert started is not None
    return Endpoint(started.address, started.port, started.key, replica.spec.served_name, replica.spec.kind)


def disk_fault(error: OSError) -> Fault:
    """What a state folder that cannot be written means."""
    why = f"{error.filename or 'the state folder'} cannot be written: {error.strerror or error}"
    return Fault("disk", "the engine was not started", why=why, do="free space on the node, or look at its disk")


def _said(log: Path) -> str:
    """What it has printed of late, in short. Lines about our own questions are no progress."""
    lines = [line for line in dossier.last_lines(log) if "/health" not in line]
    return f"{len(lines)} {lines[-1]}" if lines else ""
