"""How replicas change from one form of a model to the next."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Flag, Seconds, Strict, Whole
from llmgw.catalog.planned import Planned


class Canary(Strict):
    """A first replica of the new form that gets a part of the requests."""

    model_config = ConfigDict(title="canary")

    weight: Annotated[Whole, Field(ge=1, le=99)]
    """Its part of the requests, in a hundred."""
    duration: Seconds = 900.0
    """How long it serves without failing before the rest follows: as long as it takes to see figures."""


class Rollout(Strict):
    """How replicas change from one form of the model to the next."""

    model_config = ConfigDict(title="rollout")

    strategy: Literal["auto", "surge", "in_place", "keep"] = "auto"
    """`surge` starts the new one first, `in_place` stops the old one first, `auto` does the one there is room
    for and gives up no last replica, `keep` leaves what runs as it is until it ends by itself."""
    max_surge: Annotated[Whole, Field(ge=0, le=1000)] = 1
    """Replicas above the count while it changes: one at a time needs the least room."""
    max_unavailable: Annotated[Whole, Field(ge=0, le=1000)] = 0
    """Replicas below the count while it changes: none, so that clients notice nothing."""
    auto_return: Flag = True
    """Whether the last good form comes back, out of date as it is, where the new one does not come up."""
    canary: Annotated[Canary | None, Planned()] = None
    """A first replica with a part of the requests. Absent: none, the change goes through at once."""
    freeze: Flag = False
    """Whether nothing of this model is changed for now: what is short is still started."""
