"""The machines that a model could run on, as planning sees them: what each has, and what is free of it."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw.planning.cards import Card
from llmgw.planning.speed import CPU_SHARE, cpu_read_gbs, cpu_threads

ASSUMED_GBS = 40.0
"""Of a machine that has not measured its memory: two channels of DDR4, the least that servers have."""


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of one kind that one machine has."""

    card_class: str
    """As a profile writes it: `l40s-48g`."""
    card: Card
    """As the table knows it, with the memory and the capability that its driver says."""
    count: int
    """All that may be used."""
    free: int
    """Of those, that nothing runs on now."""


@dataclass(frozen=True, slots=True)
class EngineHere:
    """An engine that a machine has."""

    name: str
    accelerators: tuple[str, ...] | None = None
    """Of cpu, nvidia, amd, intel. None is unknown, and excludes nothing."""
    embedded: bool = False
    """The one that is in the agent's own package: for CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine."""

    name: str
    memory_bytes: int
    """That engines may have where none runs."""
    free_bytes: int
    """Of that, now."""
    cores: int
    cards: tuple[Cards, ...] = ()
    engines: tuple[EngineHere, ...] | None = None
    """None: it does not say, which excludes nothing. Empty: it has none."""
    memory_gbs: float | None = None
    """10^9 bytes a second with every core reading. None: not measured."""
    core_gbs: float | None = None
    """With one core reading."""
    disk_gbs: float | None = None
    """Of the disk that weights are on."""
    mirror_gbs: float | None = None
    """From the mirror to it."""

    def has(self, engine: str, vendor: str = "") -> bool:
        """Whether it can run an engine, on cards of a vendor where one is named."""
        if self.engines is None:
            return True
        named = [e for e in self.engines if e.name == engine]
        if not vendor:
            return bool(named)
        return any(not e.embedded and (e.accelerators is None or vendor in e.accelerators) for e in named)

    def read_gbs(self, cpu_cores: int = 0) -> float:
        """The rate that an engine on its CPU reads weights with.

        Args:
            cpu_cores: that the engine is given; 0: half of them.
        """
        if self.memory_gbs is None:
            return CPU_SHARE * ASSUMED_GBS
        threads = cpu_threads(cpu_cores, self.cores)
        return cpu_read_gbs(all_gbs=self.memory_gbs, core_gbs=self.core_gbs or 0.0, threads=threads)
