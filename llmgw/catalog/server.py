"""The fleet: who may call control, which machines there are, where the mirror is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from llmgw.catalog.fields import ADDRESS, Flag, Labels, Name, Seconds, Sha256, Strict, Text, Url, Whole, whole


class NodeEntry(Strict):
    """One machine that may report."""

    model_config = ConfigDict(title="node")

    name: Name
    """What it is called everywhere. Its agent says the same name."""
    address: Annotated[Text, Field(min_length=1, max_length=253, pattern=ADDRESS)]
    """Where engines listen on it, and where the gateway reaches them."""
    key_sha256: Sha256 | None = None
    """Of its agent's key. Absent only where control gets it from a local file, as `llmgw up` does."""
    labels: Labels = {}
    """Words a profile's `node_selector` may ask for."""
    drained: Flag = False
    """Nothing new starts here, and what runs moves off."""


class Caller(Strict):
    """A gateway or an operator that may call control."""

    model_config = ConfigDict(title="caller")

    name: Name
    """Who it is, in logs and in what it did."""
    key_sha256: Sha256 | None = None
    """Of its key. Absent only where control gets it from a local file, as `llmgw up` does."""


class MirrorEntry(Strict):
    """Where the mirror is."""

    model_config = ConfigDict(title="mirror")

    base: Url
    """Where nodes get bytes."""
    api: Url
    """Where control asks for versions and removes them."""
    retain: Seconds = 604_800.0
    """How long a version nothing refers to is kept, so that a revert fetches nothing."""


class Policy(Strict):
    """What a commit may do without saying so twice."""

    model_config = ConfigDict(title="policy")

    max_removals: Annotated[Whole, Field(ge=0)] | None = None
    """Models one commit may remove. Absent: 3 or a quarter, whichever is larger."""


class Server(Strict):
    """The fleet: one file, `server.yaml`."""

    model_config = ConfigDict(title="server.yaml")

    schema_: Annotated[Literal[1], BeforeValidator(whole), Field(alias="schema")]
    """The version of this file's format: 1."""
    cluster: Name
    """Names the fleet: the status branch is `llmgw/status/<cluster>`."""
    nodes: Annotated[tuple[NodeEntry, ...], Field(max_length=20_000)] = ()
    """The machines that may report, and are given replicas."""
    gateways: Annotated[tuple[Caller, ...], Field(max_length=1000)] = ()
    """Who may read the table of replicas with their keys."""
    operators: Annotated[tuple[Caller, ...], Field(max_length=1000)] = ()
    """Who may ask control everything else."""
    mirror: MirrorEntry | None = None
    """Where weights are kept for the nodes. Absent: only weights that are on the nodes already."""
    node_grace: Seconds = 600.0
    """How long a silent node's replicas keep their places."""
    policy: Policy = Policy()
    """Guards against a commit that does more than was meant."""
