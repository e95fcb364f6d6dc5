"""Keys of clients, by hash: no secret is ever in the repository."""

from __future__ import annotations

from llmgw.catalog.fields import Name, Sha256, Strict


class ClientKey(Strict):
    """A key a client may call the gateway with."""

    name: Name
    sha256: Sha256
    """Of the whole key, as `llmgw key new client NAME` prints it."""
    models: tuple[str, ...] | None = None
    """The models it may use. Absent: all of them."""
