"""The fleet: who may call control, which machines there are, where the mirror is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from llmgw.catalog.fields import Name, Seconds, Sha256, Strict

Url = Annotated[str, Field(pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$", max_length=500)]


class NodeEntry(Strict):
    """One machine that may report."""

    name: Name
    address: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:-]+$")]
    """Where engines listen on it, and where the gateway reaches them."""
    key_sha256: Sha256 | None = None
    """Of its agent's key. Absent only where control gets it from a local file, as `llmgw up` does."""
    labels: dict[str, str] = {}
    drained: bool = False
    """Nothing new starts here, and what runs moves off."""


class Caller(Strict):
    """A gateway or an operator that may call control."""

    name: Name
    key_sha256: Sha256 | None = None
    """As for a node."""


class MirrorEntry(Strict):
    """Where the mirror is."""

    base: Url
    """Where nodes get bytes."""
    api: Url
    """Where control asks for versions and removes them."""
    retain: Seconds = 604_800.0
    """How long a version nothing refers to is kept, so that a revert fetches nothing."""


class Policy(Strict):
    """What a commit may do without saying so twice."""

    max_removals: Annotated[int, Field(ge=0)] | None = None
    """Models one commit may remove. Absent: 3 or a quarter, whichever is larger."""


class Server(Strict):
    """server.yaml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    cluster: Name
    """Names the fleet: the status branch is `llmgw/status/<cluster>`."""
    nodes: tuple[NodeEntry, ...] = ()
    gateways: tuple[Caller, ...] = ()
    operators: tuple[Caller, ...] = ()
    mirror: MirrorEntry | None = None
    """Absent: only weights that are on the nodes already."""
    node_grace: Seconds = 600.0
    """How long a silent node's replicas keep their places."""
    policy: Policy = Policy()
