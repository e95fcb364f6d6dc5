"""A model: what clients ask for by one name, and the ways it is run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from llmgw.catalog.fields import Alias, Name, Strict
from llmgw.catalog.profile import Profile
from llmgw.catalog.source import Source

Kind = Literal["chat", "completion", "embedding"]
Class = Literal["guaranteed", "standard", "opportunistic"]


class Model(Strict):
    """One model of the catalog."""

    name: Name
    """What clients ask for. Unique in the fleet, aliases included."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """For people who choose a model: shown in the model list."""
    aliases: tuple[Alias, ...] = ()
    """Other names clients may ask for."""
    owner: Annotated[str, Field(max_length=200)] = ""
    """The team or person who answers for it."""
    kind: Kind = "chat"
    class_: Annotated[Class, Field(alias="class")] = "standard"
    """Whose replicas are placed first when not all fit."""
    state: Literal["running", "stopped"] = "running"
    """`stopped` keeps the model and its counts, and runs none."""
    source: Source
    context_length: Annotated[int, Field(ge=1, le=100_000_000)]
    """Tokens one request may use, prompt and answer together."""
    max_output: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Tokens one answer may have. Absent: what is left of `context_length`."""
    profiles: Annotated[tuple[Profile, ...], Field(min_length=1, max_length=64)]
