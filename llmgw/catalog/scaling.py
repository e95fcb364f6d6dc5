"""How many replicas a model has, where that follows what is asked of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Cron, Number, Seconds, Share, Strict, Whole, Zone
from llmgw.catalog.planned import Planned

_Count = Annotated[Whole, Field(ge=0, le=100_000)]


class Target(Strict):
    """What one replica should have to do. The figure that asks for most replicas counts."""

    model_config = ConfigDict(title="target")

    concurrency: Annotated[Number, Field(gt=0, le=100_000)] | None = None
    """Requests at the same time on one replica. Absent: not looked at."""
    slots: Share = 0.8
    """The share of a replica's slots that are taken: above it, requests of uneven length begin to wait."""
    queue: Annotated[Number, Field(gt=0, le=100_000)] | None = None
    """Requests that wait, for each replica. Absent: not looked at."""
    rps: Annotated[Number, Field(gt=0, le=1_000_000)] | None = None
    """Requests a second on one replica. Absent: not looked at."""
    kv: Annotated[Share | None, Planned()] = None
    """The share of a replica's cache of keys and values that is taken. Absent: not looked at."""


class ScheduleEntry(Strict):
    """Other bounds from one time on, until the next entry's."""

    model_config = ConfigDict(title="schedule entry")

    cron: Cron
    """When it begins: `0 7 * * 1-5`."""
    time_zone: Zone = "UTC"
    """The zone that `cron` is meant in: the same for everybody who reads the file."""
    min: _Count
    """The least replicas from then on."""
    max: _Count | None = None
    """The most replicas from then on. Absent: the model's own `max`."""


class Scaling(Strict):
    """Bounds of a model's replicas, and what moves them between the two. It replaces counts per profile."""

    model_config = ConfigDict(title="scaling")

    min: _Count = 1
    """The least replicas. 0 is on demand: the first request starts one."""
    max: _Count
    """The most replicas."""
    target: Target = Target()
    """What one replica should have to do, so that more are started or fewer."""
    window: Seconds = 60.0
    """The time that figures are averaged over: a burst of a few seconds starts nothing."""
    up_delay: Seconds = 0.0
    """How long more must be needed before one starts: a start is slow enough by itself."""
    down_delay: Seconds = 600.0
    """How long less must be needed before one stops: a start costs more than ten quiet minutes."""
    idle_timeout: Seconds = 900.0
    """How long nothing is asked before the last replica stops, where `min` is 0: a person's pause is shorter."""
    schedule: Annotated[tuple[ScheduleEntry, ...], Field(max_length=100)] = ()
    """Other bounds at other times. Of two entries the one that began last counts."""
    warm: _Count = 0
    """Replicas more than needed, ready for who comes next."""
    max_cold_wait: Annotated[Seconds, Planned()] = 300.0
    """How long a request waits for the first replica to start: longer than that, clients have left."""
