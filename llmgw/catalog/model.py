"""A model: what clients ask for by one name, and the ways it is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from llmgw.catalog.access import Access
from llmgw.catalog.external import External
from llmgw.catalog.fields import Alias, Flag, Name, Names, Strict, Text, Tokens
from llmgw.catalog.health import Health
from llmgw.catalog.planned import Planned
from llmgw.catalog.profile import Profile
from llmgw.catalog.rollout import Rollout
from llmgw.catalog.routing import Routing
from llmgw.catalog.scaling import Scaling
from llmgw.catalog.source import Source

_NOWHERE = Source.model_validate({"from": "/"})

Kind = Literal["chat", "completion", "embedding", "rerank", "audio", "image"]
Class = Literal["guaranteed", "standard", "opportunistic"]
Capability = Literal["audio", "code", "fill_in", "json", "reasoning", "tools", "vision"]


def _class_of(read: Mapping[str, Any]) -> Class:
    scaling = read.get("scaling")
    return "opportunistic" if isinstance(scaling, Scaling) and scaling.min == 0 else "standard"


class Model(Strict):
    """One model of the catalog."""

    model_config = ConfigDict(title="model")

    name: Name
    """What clients ask for. Unique in the fleet, aliases included."""
    extends: Name | None = None
    """One of the `blocks` of server.yaml, whose fields are as if written here. Absent: only `defaults` are."""
    description: Annotated[Text, Field(max_length=2000)] = ""
    """For people who choose a model: shown in the model list."""
    aliases: Annotated[tuple[Alias, ...], Field(max_length=64)] = ()
    """Other names clients may ask for."""
    owner: Annotated[Text, Field(max_length=200)] = ""
    """The team or person who answers for it."""
    tags: Names = ()
    """Words to find it by: shown in the model list."""
    license: Annotated[Text, Field(max_length=100)] = ""
    """Under what it may be used, by its SPDX name where it has one: `Apache-2.0`. Shown in the model list."""
    kind: Annotated[Kind, Planned(r"(rerank|audio|image)$", "`rerank`, `audio` and `image`")] = "chat"
    """What it answers: a conversation, a text, numbers that stand for a text, an order of texts, sound or pictures."""
    capabilities: Annotated[
        tuple[Capability, ...], Field(max_length=16), AfterValidator(lambda words: tuple(sorted(set(words))))
    ] = ()
    """What it can do besides: shown in the model list."""
    unlisted: Flag = False
    """Whether it is left out of the model list. Who knows its name can use it."""
    replaced_by: Alias | None = None
    """The model to go to, where this one is on its way out: shown in the model list. Absent: it is not."""
    protect: Flag = False
    """Whether a commit that removes it is refused, until another has taken this out."""
    state: Literal["running", "stopped"] = "running"
    """`stopped` keeps the model and its counts, and runs none."""
    source_: Annotated[Source | None, Field(alias="source")] = None
    """Where its weights come from. Absent only with `external`."""
    external: Annotated[External | None, Planned()] = None
    """Who runs it, where this fleet does not. Absent: this fleet does."""
    context_length: Tokens
    """Tokens one request may use, prompt and answer together."""
    max_output: Tokens | None = None
    """Tokens one answer may have. Absent: what is left of `context_length`."""
    profiles: Annotated[tuple[Profile, ...], Field(max_length=64)] = ()
    """The ways it is run: one for its cards, one for its CPUs. Absent only with `external`."""
    scaling: Scaling | None = None
    """Bounds between which replicas are started and stopped as they are needed, in place of a count on each
    profile. Absent: the counts are fixed."""
    class_: Annotated[Class, Field(alias="class", default_factory=_class_of)]
    """Whose replicas are placed first when not all fit. Absent: `standard`, and `opportunistic` where
    `scaling.min` is 0."""
    health: Annotated[Health, Planned()] = Health()
    """How a replica is found to be well."""
    rollout: Rollout = Rollout()
    """How replicas change from one form to the next."""
    routing: Annotated[Routing, Planned()] = Routing()
    """How requests are handed to replicas."""
    access: Annotated[Access, Planned()] = Access()
    """Who may use it, besides what each key says."""

    @property
    def source(self) -> Source:
        """Where its weights come from: of an external model a path that nothing reads."""
        return self.source_ or _NOWHERE

    def pool_tokens(self, profile: Profile) -> int:
        """Tokens of the whole pool of one replica, which its slots share."""
        return profile.context or self.context_length * profile.parallel

    def counts(self) -> dict[str, int]:
        """Replicas wanted of each profile, were it not stopped; of a scaled model the least.

        That is on the profile that is filled first.
        """
        counted = {p.name: p.replicas or 0 for p in self.profiles}
        if self.scaling is not None and self.profiles:
            first = max(self.profiles, key=lambda p: p.priority)
            return {**dict.fromkeys(counted, 0), first.name: self.scaling.min}
        return counted
