"""What a commit may ask of the fleet."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Gib, Number, Seconds, Strict, Text, Whole, Word
from llmgw.catalog.planned import Planned

_Count = Annotated[Whole, Field(ge=0, le=1_000_000)]

Required = Literal["capabilities", "description", "license", "max_output", "owner", "tags"]


class Quota(Strict):
    """The most that some models may have together."""

    model_config = ConfigDict(title="quota")

    owner: Annotated[Text, Field(max_length=200)] | None = None
    """Whose models. Absent: everybody's."""
    class_: Annotated[Literal["guaranteed", "standard", "opportunistic"] | None, Field(alias="class")] = None
    """Of which class. Absent: of every class."""
    cards: _Count | None = None
    """The most cards. Absent: no limit."""
    memory_gib: Gib | None = None
    """The most host memory, in GiB. Absent: no limit."""
    replicas: _Count | None = None
    """The most replicas. Absent: no limit."""


class Policy(Strict):
    """What is asked of every commit and every model."""

    model_config = ConfigDict(title="policy")

    max_removals: Annotated[Whole, Field(ge=0)] | None = None
    """Models one commit may remove without saying so twice. Absent: 3 or a quarter, whichever is larger."""
    required: Annotated[tuple[Required, ...], Field(max_length=16)] = ()
    """Fields every model must have, besides those that all must."""
    licenses: Annotated[tuple[Word, ...], Field(max_length=200)] | None = None
    """Licences a model may have, as their `license` writes them. Absent: any, and none."""
    unpinned_sources: Literal["allow", "refuse"] = "allow"
    """Whether a source may be one that somebody else can change: without a `sha256`, and without a commit in it."""
    min_tps: Annotated[Number, Field(gt=0, le=1_000_000)] | None = None
    """The fleet's floor: tokens a second that one answer of every profile must be predicted to come at, on the machine
    that does best. A profile's own `min_tps` may ask for more and not for less. What cannot be predicted is not
    refused. Absent: only a CPU profile has a floor, of 5, and its `min_tps` may be less."""
    max_start_time: Annotated[Seconds | None, Planned()] = None
    """The longest a start may be expected to take. Absent: any time."""
    soak: Seconds = 600.0
    """How long the first model of a change that many share serves before the others follow: figures take a while."""
    models_at_once: Annotated[Whole, Field(ge=1, le=10_000)] = 2
    """Models that change at the same time after it: so many fail before somebody can stop it."""
    quotas: Annotated[tuple[Quota, ...], Field(max_length=1000)] = ()
    """The most that an owner's or a class's models may have together."""
