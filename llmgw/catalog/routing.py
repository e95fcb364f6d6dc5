"""How requests are handed to a model's replicas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from llmgw.catalog.fields import Alias, Flag, Seconds, Strict, Text, Whole

Cause = Literal["unavailable", "full", "timeout", "too_long", "error", "content"]

_Key = Annotated[Text, Field(min_length=1, max_length=100)]


class Queue(Strict):
    """The line that requests wait in."""

    model_config = ConfigDict(title="queue")

    size: Annotated[Whole, Field(ge=0, le=100_000)] = 1000
    """How many may wait: the next is told to come again."""
    max_wait: Seconds = 300.0
    """How long one may wait: half of what clients wait by default, so that the answer still fits."""


class TimeLimits(Strict):
    """Bounds of the time that a request takes."""

    model_config = ConfigDict(title="time limits")

    first_token: Seconds = 300.0
    """From its start on a replica to the first part of the answer: a long prompt on a CPU takes minutes."""
    between_tokens: Seconds = 60.0
    """From one part of an answer to the next: nothing that works is silent for longer."""
    whole: Seconds = 3600.0
    """Altogether."""


class Fallback(Strict):
    """Another model that answers in this one's place."""

    model_config = ConfigDict(title="fallback")

    on: Annotated[tuple[Cause, ...], Field(min_length=1, max_length=6)]
    """What must have happened: no replica serves, all are full, it took too long, the request is too long for
    the model, the engine failed, or the engine refused the content."""
    to: Alias
    """The model that answers."""


class Parameters(Strict):
    """What is done to the parameters of a request before an engine sees them."""

    model_config = ConfigDict(title="parameters")

    strip: Annotated[tuple[_Key, ...], Field(max_length=100)] = ()
    """Parameters that are taken out."""
    set: Annotated[
        dict[_Key, Any], Field(max_length=100), AfterValidator(lambda values: dict(sorted(values.items())))
    ] = {}
    """Parameters that are put in, whatever the client said."""


class Routing(Strict):
    """How requests are handed to the model's replicas."""

    model_config = ConfigDict(title="routing")

    strategy: Literal["least_busy", "prefix"] = "least_busy"
    """`least_busy` takes the replica with the most free slots, `prefix` the one that has seen the beginning."""
    queue: Queue = Queue()
    """Requests that wait while every slot is taken."""
    time_limits: TimeLimits = TimeLimits()
    """How long a request may take."""
    retries: Annotated[Whole, Field(ge=0, le=10)] = 2
    """How often a request that failed before its first token is tried on another replica."""
    fallbacks: Annotated[tuple[Fallback, ...], Field(max_length=20)] = ()
    """Models that answer in this one's place, by what happened. The first that fits is taken."""
    parameters: Parameters | None = None
    """What is done to the parameters of a request. Absent: nothing."""
    concurrency: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = None
    """Requests of all clients at the same time. Absent: as many as there are slots."""
    loading_feedback: Flag = False
    """Whether a client that waits for a start is told in its stream how far it is: some clients stumble over it."""
