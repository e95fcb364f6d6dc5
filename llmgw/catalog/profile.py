"""One way to run a model: on which machines, with how much, how many times."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Labels, Name, Number, Seconds, Strict, Text, Whole

Engine = Literal["llamacpp", "vllm", "sglang"]


class GpuNeed(Strict):
    """The card a replica needs."""

    model_config = ConfigDict(title="gpu")

    class_: Annotated[Name, Field(alias="class")]
    """A card's class as nodes report it: the product and its memory, `l40s-48g`."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """How many cards one replica takes, all on one node."""


class Profile(Strict):
    """One way to run a model. A model has at least one."""

    model_config = ConfigDict(title="profile")

    name: Name
    """Tells it from the model's other profiles. Part of its replicas' ids: `model/profile/0`."""
    engine: Engine
    """The program that serves it: llama.cpp, vLLM or SGLang."""
    gpu: GpuNeed | None = None
    """The card a replica needs. Absent: none, and it sees none: a CPU profile."""
    replicas: Annotated[Whole, Field(ge=0, le=100_000)]
    """How many of the model's replicas run here. 0 keeps the profile and runs none."""
    priority: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)] = 100
    """Requests go to the highest first, and to the next when its slots are full."""
    weight: Annotated[Whole, Field(ge=1, le=1000)] = 1
    """The share of requests among replicas of one priority."""
    parallel: Annotated[Whole, Field(ge=1, le=4096)] = 1
    """Slots: how many requests one replica serves at the same time."""
    context: Annotated[Whole, Field(ge=1, le=1_000_000_000)] | None = None
    """Tokens of the whole pool that the slots share. Absent: `context_length` for each slot."""
    cpu_cores: Annotated[Whole, Field(ge=0, le=4096)] | None = None
    """Cores one replica reserves. Absent: half the node's, and one beside a card. 0
    reserves none, for a model so small or so seldom asked that it may share."""
    threads: Annotated[Whole, Field(ge=1, le=4096)] | None = None
    """Threads the engine is given. Absent: one for each reserved core, and one where none is."""
    memory_gib: Annotated[Number, Field(gt=0, le=1_000_000)]
    """GiB of host memory one replica reserves."""
    node_selector: Labels = {}
    """Labels a node must carry. Absent: any node."""
    args: Annotated[tuple[Annotated[Text, Field(max_length=4096)], ...], Field(max_length=256)] = ()
    """More of the engine's own flags, after those made from the fields above."""
    start_timeout: Seconds = 600.0
    """A start without progress for this long has failed."""
    drain_timeout: Seconds = 60.0
    """What a replica that is to stop may still take to finish its requests."""
