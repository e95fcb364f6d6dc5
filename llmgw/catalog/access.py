"""Who may use a model, and what it costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Flag, Names, Number, Strict

_Price = Annotated[Number, Field(ge=0, le=1_000_000)]


class Cost(Strict):
    """What tokens count against a budget, in whatever money the fleet counts in."""

    model_config = ConfigDict(title="cost")

    input: _Price = 0.0
    """For a million tokens of a prompt."""
    cached_input: _Price | None = None
    """For a million tokens of a prompt that were there already. Absent: as `input`."""
    output: _Price = 0.0
    """For a million tokens of an answer."""


class Access(Strict):
    """Who may use the model, besides what each key says."""

    model_config = ConfigDict(title="access")

    allow: Names | None = None
    """The keys that may use it, by name. Absent: every key that names it or names no model."""
    deny: Names = ()
    """Keys that may not use it, also of those that `allow` has."""
    visibility: Literal["everyone", "allowed"] = "allowed"
    """Who sees it in the list of models: everyone, or those that may use it."""
    preemption: Flag = True
    """Whether its replicas may be stopped for those of a higher class that have no room."""
    cost: Cost | None = None
    """What its tokens count against a budget. Absent: nothing."""
