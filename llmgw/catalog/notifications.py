"""Who is told of what is wrong with the fleet."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Name, Seconds, Strict, Word

Event = Literal[
    "git_unreachable",
    "not_admitted",
    "status_branch",
    "internal",
    "flapping",
    "held",
    "catalog",
    "mirror_away",
    "node_silent",
    "card_error",
    "node",
    "disk",
    "fetch_failed",
    "parked",
    "frozen",
    "model_not_ready",
]
EVENTS: tuple[Event, ...] = get_args(Event)
"""Each is a kind of problem that the status knows."""


class Notification(Strict):
    """One receiver of messages: one when something is wrong for a while, and one when it is over."""

    model_config = ConfigDict(title="notification")

    name: Name
    """What it is called. Unique among them."""
    url_ref: Name | None = None
    """The name of a file in control's `--notify-dir` that holds a URL: such a URL is a secret. It is sent JSON
    with a `text`, which Slack, Mattermost and Teams show as it is."""
    command: Name | None = None
    """The name of a program in control's `--notify-dir`, which is given the same on its standard input."""
    on: Annotated[tuple[Event, ...], Field(min_length=1, max_length=len(EVENTS))] = EVENTS
    """What it is told of."""
    owners: Annotated[tuple[Word, ...], Field(max_length=1000)] | None = None
    """Owners whose models it is told of, beside what is of no model. Absent: everybody's."""
    for_: Annotated[Seconds, Field(alias="for")] = 300.0
    """How long something must last before it is told: most of it passes."""
