"""A model that somebody else runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Name, Seconds, Strict, Text, Url


class External(Strict):
    """A provider with an OpenAI-compatible API that requests are handed on to."""

    model_config = ConfigDict(title="external")

    base_url: Url
    """Where its API begins: `https://api.example.com/v1`."""
    key_ref: Name | None = None
    """The name of a file beside the gateway that holds the provider's key. Absent: no key is sent."""
    served_name: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """What the provider calls the model. Absent: its name here."""
    timeout: Seconds = 600.0
    """How long one answer may take: as long as the clients of such providers wait by default."""
