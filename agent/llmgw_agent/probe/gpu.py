"""The cards of a machine, and what is known of one that does not answer any more."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct, structs

from llmgw_agent.probe import amd, nvidia
from llmgw_agent.probe.kernel_log import KernelLog
from llmgw_agent.probe.tool import Said, Silent, Tool
from llmgw_agent.protocol import Card


class Cards(Struct, frozen=True):
    """The cards of a machine, and why they could not be read where a driver is there."""

    cards: tuple[Card, ...] = ()
    problem: str = ""
    held: Mapping[int, int] = {}
    """Bytes that processes of ours hold, on all cards together, by pid."""


class Probe:
    """Looks at the cards again and again, and remembers those it has seen."""

    def __init__(self, path: Iterable[Path], log: KernelLog | None = None) -> None:
        """Look at nothing yet.

        Args:
            path: where the drivers' programs are.
            log: the kernel's.
        """
        self._path = ":".join(map(str, path))
        self._log = log or KernelLog()
        self._tools: dict[str, Tool] = {}
        self._known: dict[str, Card] = {}
        """Whole NVIDIA cards that were seen, by where they are plugged in."""
        self._capability: dict[str, str] = {}
        self._held: Counter[int] = Counter()

    async def look(self, ours: Collection[int]) -> Cards:
        """The cards now, sorted. None where there is no driver.

        Args:
            ours: pids of our engines, whose memory on a card is not others'.
        """
        cards: list[Card] = []
        self._held = Counter()
        for read, name in ((self._nvidia, "nvidia-smi"), (self._amd, "amd-smi")):
            tool = self._tool(name)
            if tool is None:
                continue
            try:
                cards += await read(tool, ours)
            except Silent as e:
                return Cards(problem=str(e))
        return Cards(tuple(sorted(cards, key=lambda c: (c.parent or c.uuid, c.uuid))), held=dict(self._held))

    def _tool(self, name: str) -> Tool | None:
        program = shutil.which(name, path=self._path)
        if program is None:
            return None
        if name not in self._tools or self._tools[name].program != program:
            self._tools[name] = Tool(program)
        return self._tools[name]

    async def _nvidia(self, tool: Tool, ours: Collection[int]) -> list[Card]:
        said = await tool.ask("-q", "-x")
        root = await asyncio.to_thread(nvidia.tree, said.out)
        if root is None:
            raise Silent(said.failure if b"<nvidia_smi_log" not in said.out else "what nvidia-smi says cannot be read")
        self._held += nvidia.held(root, ours)
        listed = nvidia.slices(_text(await tool.ask("-L"))) if nvidia.has_slices(root) else {}
        known = {(gpu.findtext("uuid") or "").strip() for gpu in root.iter("gpu")}
        if not known <= self._capability.keys():
            # It never changes. A driver that does not say is not asked again.
            answered = await tool.ask("--query-gpu=uuid,compute_cap", "--format=csv,noheader")
            self._capability |= dict.fromkeys(known, "") | nvidia.capabilities(_text(answered))
        found = nvidia.read(
            root,
            said.out[: said.out.find(b"<nvidia_smi_log")] + said.err,
            ours=ours,
            listed=listed,
            capability=self._capability,
            xids=await asyncio.to_thread(self._log.xids),
        )
        return [*found.cards, *self._lost(found)]

    def _lost(self, found: nvidia.Found) -> list[Card]:
        """Cards that do not answer: those that did before, and those whose place is all that is known of them."""
        self._known |= {found.addresses[c.uuid]: c for c in found.cards if c.uuid in found.addresses}
        for at, uuid in found.lost.items():
            self._known.setdefault(at, Card(uuid or f"PCI-{at}", "", "nvidia", "unknown", 0))
        return [
            structs.replace(card, errors=(nvidia.LOST,), processes=(), used_by_others_bytes=None)
            for at, card in self._known.items()
            if at not in found.addresses.values()
        ]

    async def _amd(self, tool: Tool, ours: Collection[int]) -> list[Card]:
        asked = (("static", "--asic", "--vram"), ("metric", "--mem-usage", "--ecc"), ("process",))
        said = [await tool.ask(*words, "--json") for words in asked]
        if said[0].code:
            raise Silent(said[0].failure)
        self._held += amd.held(said[2].out, ours)
        return amd.read(*(s.out for s in said), ours=ours)


def _text(said: Said) -> str:
    return "" if said.code else said.out.decode(errors="replace")
