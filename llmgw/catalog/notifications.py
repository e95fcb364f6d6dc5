"""Who is told of what happens in the fleet."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Name, Seconds, Strict, Word

Event = Literal["problem", "held", "failed", "parked", "node_silent", "mirror_full", "ready", "removed"]


class Notification(Strict):
    """One receiver of messages."""

    model_config = ConfigDict(title="notification")

    name: Name
    """What it is called. Unique among them."""
    kind: Literal["webhook", "slack", "teams", "mail"] = "webhook"
    """The form of the message: JSON by default, which every program reads."""
    url_ref: Name
    """The name of a file beside control that holds the URL or the address: such a URL is a secret."""
    on: Annotated[tuple[Event, ...], Field(min_length=1, max_length=8)] = ("failed", "held", "node_silent", "problem")
    """What it is told of: what somebody has to do something about."""
    owners: Annotated[tuple[Word, ...], Field(max_length=1000)] | None = None
    """Owners whose models it is told of. Absent: everybody's."""
    delay: Seconds = 60.0
    """How long something must last before it is told: most of it passes."""
