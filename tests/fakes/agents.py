"""Agents in a test's own loop, with real engines' processes, and orders for them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fakes import launch
from llmgw_agent import lineage, process
from llmgw_agent.control import Control
from llmgw_agent.hold import Hold
from llmgw_agent.node import Node
from llmgw_agent.protocol import Action, Claim, EngineSpec, ReplicaOrder
from llmgw_agent.settings import Pace, Settings

QUICK = Pace(
    watch_s=0.2, start_s=0.05, measure_s=0.1, idle_gap_s=0.2, wedged_after_s=1.0, term_s=1.0, kill_s=5.0, probe_s=0.5
)
CLAIM = Claim(memory_bytes=64 << 20, cpu_cores=1)


@dataclass
class Agents:
    """Starts agents on one state folder, one after the other."""

    settings: Settings
    engines: Path
    node: Node | None = None
    _work: asyncio.Task[None] | None = None
    _control: Control | None = None
    _hold: Hold | None = None

    async def start(self, **changes: Any) -> Node:
        self.settings = replace(self.settings, **changes)
        self._control = Control(self.settings)
        self._hold = Hold(self.settings.state)
        self._hold.take()
        self.node = Node(self.settings, self._hold)
        self._work = asyncio.create_task(self.node.run(self._control))
        return self.node

    async def stop(self) -> None:
        """End the agent. Its engines go on."""
        if self._work is None:
            return
        failed = self._work.done() and not self._work.cancelled() and self._work.exception()
        self._work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._work, return_exceptions=True)
        assert self.node is not None
        assert self._control is not None
        await self.node.close()
        await self._control.close()
        self._work = None
        assert self._hold is not None
        self._hold.__exit__(None, None, None)
        assert not failed, f"the agent ended by a bug: {failed!r}"

    def engine(self, **faults: Any) -> None:
        """The engine on this node, and what goes wrong with it from its next start on."""
        launch.install(self.engines, **faults)

    def processes(self) -> dict[int, str]:
        """Everything that runs and was started for this agent's engines."""
        return process.marked(lineage.owner(self.settings.node, self.settings.state) + ".")

    def order(
        self,
        replica_id: str = "m/cpu/0",
        generation: int = 1,
        *,
        attempt: int = 0,
        model: str = "m.gguf",
        devices: tuple[str, ...] = (),
        version: str = "",
        **spec: Any,
    ) -> ReplicaOrder:
        """An order to run a replica of the fake engine on the model file of the test."""
        path = "" if version else str(self.settings.state.parent / model)
        known: dict[str, Any] = {
            "engine": "llamacpp",
            "served_name": "m",
            "kind": "chat",
            "context_tokens": 4096,
            "parallel": 2,
        }
        known |= {"threads": 1, "claim": CLAIM, "start_timeout_s": 5.0, "drain_timeout_s": 5.0} | spec
        return ReplicaOrder(
            replica_id,
            generation,
            Action.RUN,
            fingerprint="f1",
            spec=EngineSpec(**known),
            path=path,
            version=version,
            devices=devices,
            attempt=attempt,
        )
