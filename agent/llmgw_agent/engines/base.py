"""What the agent needs of an engine: its command line, whether it is ready, how it is doing, why it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from llmgw_agent.dossier import Signs
from llmgw_agent.engines.ask import Endpoint
from llmgw_agent.protocol import EngineSpec, InstalledEngine
from llmgw_agent.speed import Work


class Launch(Struct, frozen=True):
    """Everything one start is made of."""

    spec: EngineSpec
    engine: InstalledEngine
    model: Path
    """The file, or the folder, the engine is given."""
    address: str
    port: int
    key_file: Path
    devices: tuple[str, ...] = ()
    """UUIDs of its cards. Empty: it must not see any."""


class Seen(Struct, frozen=True):
    """What a process says of itself by how it was started: an engine of ours, without its record."""

    spec: EngineSpec
    """As far as it shows. What it claims does not, and is 0 bytes."""
    model: Path
    address: str
    port: int
    devices: tuple[str, ...] = ()


class Vitals(Struct, frozen=True):
    """One look at an engine that serves."""

    busy: int | None
    """Slots at work. None: it does not say."""
    mark: tuple[object, ...]
    """Counters of work done. Unlike the last look's: something moves."""


class Adapter(Protocol):
    """One kind of engine. Every question is bounded in time by the caller or by `within_s`."""

    name: str
    signs: Signs
    """What its log lines say about why it ended."""

    def choose(self, installed: tuple[InstalledEngine, ...], devices: tuple[str, ...], version: str) -> InstalledEngine:
        """The one to use of those on the node: of this version, where one is given. Raises Fault when none will do."""
        ...

    def model(self, weights: Path) -> Path:
        """What it is given of a version's folder, or of a path. Raises Fault when that is not what it loads."""
        ...

    async def command(self, launch: Launch) -> tuple[str, ...]:
        """The command line. Raises Fault when the profile asks for what it may not."""
        ...

    def environment(self, launch: Launch) -> dict[str, str]:
        """What it must find in its environment, cards made visible or hidden included."""
        ...

    def recognise(self, words: Sequence[str], environment: Mapping[str, str]) -> Seen | None:
        """The engine that was started with these words. None: it is none of this kind."""
        ...

    async def ready(self, at: Endpoint, *, within_s: float) -> bool:
        """Whether it has loaded, is the one we mean, and really generates. Raises Fault when it never will."""
        ...

    async def vitals(self, at: Endpoint, *, within_s: float) -> Vitals:
        """How it is doing. Raises NoAnswerError."""
        ...

    async def work(self, at: Endpoint, *, within_s: float) -> Work | None:
        """What it has counted of its answers. None: it does not say. Raises NoAnswerError."""
        ...
