"""Keys of clients, by hash: no secret is ever in the repository."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Alias, Name, Sha256, Strict


class ClientKey(Strict):
    """A key a client may call the gateway with."""

    model_config = ConfigDict(title="client key")

    name: Name
    """Whose it is. Unique in the fleet."""
    sha256: Sha256
    """Of the whole key, as `llmgw key new client NAME` prints it."""
    models: Annotated[tuple[Alias, ...], Field(max_length=1000)] | None = None
    """The models it may use. Absent: all of them."""
