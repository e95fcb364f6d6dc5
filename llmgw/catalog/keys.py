"""Keys of clients, by hash: no secret is ever in the repository."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Alias, Day, Name, Number, Sha256, Strict, Text, Whole
from llmgw.catalog.planned import Planned

_Count = Annotated[Whole, Field(ge=1, le=1_000_000_000)]


class Limits(Strict):
    """The most a key may ask for."""

    model_config = ConfigDict(title="limits")

    rpm: _Count | None = None
    """Requests a minute. Absent: any number."""
    tpm: _Count | None = None
    """Tokens a minute, of prompts and answers together. Absent: any number."""
    concurrency: _Count | None = None
    """Requests at the same time. Absent: any number."""


class Budget(Strict):
    """What a key may use up."""

    model_config = ConfigDict(title="budget")

    amount: Annotated[Number, Field(gt=0, le=1_000_000_000_000)]
    """How much, in what `access.cost` of the models counts in, or in tokens."""
    unit: Literal["cost", "tokens"] = "cost"
    """What is counted: what it costs, since a token of a large model costs more."""
    period: Literal["day", "week", "month", "ever"] = "month"
    """When it begins anew: as bills do."""


class ClientKey(Strict):
    """A key a client may call the gateway with."""

    model_config = ConfigDict(title="client key")

    name: Name
    """Whose it is. Unique in the fleet."""
    sha256: Sha256
    """Of the whole key, as `llmgw key new client NAME` prints it. No node, gateway or operator has the same."""
    owner: Annotated[Text, Field(max_length=200)] = ""
    """The team or person who answers for what it is used for: for people who read the file."""
    models: Annotated[tuple[Alias, ...], Field(max_length=1000)] | None = None
    """The models it may use, by the names and aliases there are. Absent: all of them."""
    expires: Annotated[Day | None, Planned()] = None
    """The last day it may be used, in UTC: `2027-01-31`. Absent: it does not end."""
    limits: Annotated[Limits, Planned()] = Limits()
    """The most it may ask for at a time."""
    budget: Annotated[Budget | None, Planned()] = None
    """What it may use up. Absent: any amount."""
