"""A model: what clients ask for by one name, and the ways it is run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Alias, Name, Strict, Text, Whole
from llmgw.catalog.profile import Profile
from llmgw.catalog.source import Source

Kind = Literal["chat", "completion", "embedding"]
Class = Literal["guaranteed", "standard", "opportunistic"]


class Model(Strict):
    """One model of the catalog."""

    model_config = ConfigDict(title="model")

    name: Name
    """What clients ask for. Unique in the fleet, aliases included."""
    description: Annotated[Text, Field(max_length=2000)] = ""
    """For people who choose a model: shown in the model list."""
    aliases: Annotated[tuple[Alias, ...], Field(max_length=64)] = ()
    """Other names clients may ask for."""
    owner: Annotated[Text, Field(max_length=200)] = ""
    """The team or person who answers for it."""
    kind: Kind = "chat"
    """What it answers: a conversation, a text, or numbers that stand for a text."""
    class_: Annotated[Class, Field(alias="class")] = "standard"
    """Whose replicas are placed first when not all fit."""
    state: Literal["running", "stopped"] = "running"
    """`stopped` keeps the model and its counts, and runs none."""
    source: Source
    """Where its weights come from."""
    context_length: Annotated[Whole, Field(ge=1, le=100_000_000)]
    """Tokens one request may use, prompt and answer together."""
    max_output: Annotated[Whole, Field(ge=1, le=100_000_000)] | None = None
    """Tokens one answer may have. Absent: what is left of `context_length`."""
    profiles: Annotated[tuple[Profile, ...], Field(min_length=1, max_length=64)]
    """The ways it is run: one for its cards, one for its CPUs."""

    def pool_tokens(self, profile: Profile) -> int:
        """Tokens of the whole pool of one replica, which its slots share."""
        return profile.context or self.context_length * profile.parallel
