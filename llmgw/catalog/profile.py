"""One way to run a model: on which machines, with how much, how many times."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from llmgw.catalog.fields import Name, Seconds, Strict

Engine = Literal["llamacpp", "vllm", "sglang"]


class GpuNeed(Strict):
    """The card a replica needs."""

    class_: Annotated[Name, Field(alias="class")]
    """A card's class as nodes report it: the product and its memory, `l40s-48g`."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many cards one replica takes, all on one node."""


class Profile(Strict):
    """One way to run a model. A model has at least one."""

    name: Name
    engine: Engine
    gpu: GpuNeed | None = None
    """The card a replica needs. Absent is a CPU profile, which sees no card."""
    replicas: Annotated[int, Field(ge=0, le=100_000)]
    """How many of the model's replicas run here. 0 keeps the profile and runs none."""
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 100
    """Requests go to the highest first, and to the next when its slots are full."""
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """The share of requests among replicas of one priority."""
    parallel: Annotated[int, Field(ge=1, le=4096)] = 1
    """Slots: how many requests one replica serves at the same time."""
    context: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Tokens of the whole pool that the slots share. Absent: `context_length` for each slot."""
    cpu_cores: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Cores one replica reserves. Absent: half the node's, and one beside a card."""
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Threads the engine is given. Absent: one for each reserved core."""
    memory_gib: Annotated[float, Field(gt=0, le=1_000_000)]
    """GiB of host memory one replica reserves."""
    node_selector: dict[str, str] = {}
    """Labels a node must carry."""
    args: tuple[Annotated[str, Field(max_length=4096)], ...] = ()
    """More of the engine's own flags, after those made from the fields above."""
    start_timeout: Seconds = 600.0
    """A start without progress for this long has failed."""
    drain_timeout: Seconds = 60.0
    """What a replica that is to stop may still take to finish its requests."""
