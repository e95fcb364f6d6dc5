"""The fleet: who may call control, which machines there are, where the mirror is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from llmgw.catalog.defaults import Defaults
from llmgw.catalog.engines import EngineBuild, EngineChoice
from llmgw.catalog.fields import (
    Bytes,
    Cron,
    Flag,
    Labels,
    Name,
    Seconds,
    Sha256,
    Strict,
    Text,
    Url,
    Whole,
    Word,
    Zone,
    whole,
)
from llmgw.catalog.forms import ADDRESS, USER
from llmgw.catalog.notifications import Notification
from llmgw.catalog.planned import Planned
from llmgw.catalog.policy import Policy

Address = Annotated[Text, Field(min_length=1, max_length=253, pattern=ADDRESS)]


class Ssh(Strict):
    """How an agent is installed on a machine from afar."""

    model_config = ConfigDict(title="ssh")

    user: Annotated[Text, Field(pattern=USER, max_length=32)] = "root"
    """Who logs in: who may install a service."""
    host: Address | None = None
    """Where. Absent: the node's `address`."""
    port: Annotated[Whole, Field(ge=1, le=65_535)] = 22
    """The port of its SSH server: the usual one."""
    key_ref: Name | None = None
    """The name of a file beside whoever installs that holds the private key. Absent: what ssh itself would take."""


class NodeEntry(Strict):
    """One machine that may report."""

    model_config = ConfigDict(title="node")

    name: Name
    """What it is called everywhere. Its agent says the same name."""
    address: Address
    """Where engines listen on it, and where the gateway reaches them."""
    key_sha256: Sha256 | None = None
    """Of its agent's key. Absent only where control gets it from a local file, as `llmgw up` does."""
    labels: Labels = {}
    """Words a profile's `node_selector` may ask for."""
    drained: Flag = False
    """Nothing new starts here, and what runs moves off."""
    cards_out: Annotated[tuple[Word, ...], Field(max_length=64)] = ()
    """Cards nothing new is started on, by their UUIDs; what runs there moves off."""
    engines: Annotated[tuple[EngineChoice, ...], Field(max_length=16), Planned()] = ()
    """Engines it is given. Absent: it runs those it has."""
    ssh: Annotated[Ssh | None, Planned()] = None
    """How its agent is installed from afar. Absent: by hand."""


class Caller(Strict):
    """A gateway or an operator that may call control."""

    model_config = ConfigDict(title="caller")

    name: Name
    """Who it is, in logs and in what it did."""
    key_sha256: Sha256 | None = None
    """Of its key. Absent only where control gets it from a local file, as `llmgw up` does."""


class CardName(Strict):
    """A class of cards of this fleet, and what it is called here."""

    model_config = ConfigDict(title="card")

    name: Name
    """What `gpu.class` of a profile may write for it."""
    class_: Annotated[Name, Field(alias="class")]
    """The class as nodes report it: `l40s-48g`."""
    count: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = None
    """How many the fleet has: a replica that would take more is a problem. Absent: not said."""


class MirrorEntry(Strict):
    """Where the mirror is, and what it keeps."""

    model_config = ConfigDict(title="mirror")

    base: Url
    """Where nodes get bytes."""
    api: Url
    """Where control asks for versions and removes them."""
    former_bases: Annotated[tuple[Url, ...], Field(max_length=16), Planned()] = ()
    """Where nodes got bytes before: tried while a mirror moves."""
    retain: Seconds = 604_800.0
    """How long a version nothing refers to is kept, so that a revert fetches nothing: a week has every weekday."""
    reserve: Bytes = 10 << 30
    """Room on its disk that fetches leave free, `10GiB`: a full disk stops more than fetching."""
    parallel_nodes: Annotated[Whole, Field(ge=1, le=10_000)] = 4
    """Nodes that fetch from it at the same time: so many fill a line of ten gigabits."""
    release_for_fetch: Flag = False
    """Whether what nothing refers to goes before its time when a fetch has no room."""


class FreezeWindow(Strict):
    """A time in which nothing that runs is changed."""

    model_config = ConfigDict(title="freeze window")

    name: Name
    """What it is called in what is held."""
    cron: Cron
    """When it begins: `0 18 * * 5`."""
    time_zone: Zone = "UTC"
    """The zone that `cron` is meant in: the same for everybody who reads the file."""
    duration: Seconds
    """How long it lasts."""


class Server(Strict):
    """The fleet: one file, `server.yaml`."""

    model_config = ConfigDict(title="server.yaml")

    schema_: Annotated[Literal[1], BeforeValidator(whole), Field(alias="schema")]
    """The version of this file's format: 1."""
    cluster: Name
    """Names the fleet: the status branch is `llmgw/status/<cluster>`."""
    state: Literal["running", "stopped"] = "running"
    """`stopped` stops every replica of the fleet and keeps everything. Taken out, what ran before runs again."""
    nodes: Annotated[tuple[NodeEntry, ...], Field(max_length=20_000)] = ()
    """The machines that may report, and are given replicas."""
    gateways: Annotated[tuple[Caller, ...], Field(max_length=1000)] = ()
    """Who may read the table of replicas with their keys."""
    operators: Annotated[tuple[Caller, ...], Field(max_length=1000)] = ()
    """Who may ask control everything else."""
    mirror: MirrorEntry | None = None
    """Where weights are kept for the nodes. Absent: only weights that are on the nodes already."""
    cards: Annotated[tuple[CardName, ...], Field(max_length=256)] = ()
    """The classes of cards there are, with names for them. Where one is written, a profile that asks for another is
    a problem. Absent: any class may be asked for."""
    defaults: Defaults | None = None
    """Fields of every model that does not write them itself. Absent: only those of this page."""
    blocks: Annotated[dict[Name, Defaults], Field(max_length=256)] = {}
    """The same by name, for the models that write `extends: NAME`. They count before `defaults`."""
    node_grace: Seconds = 600.0
    """How long a silent node's replicas keep their places: a machine starts anew in less."""
    policy: Policy = Policy()
    """What a commit may do, and what every model must have."""
    engines: Annotated[tuple[EngineBuild, ...], Field(max_length=256), Planned()] = ()
    """Builds of engines that nodes may be given."""
    notifications: Annotated[tuple[Notification, ...], Field(max_length=100)] = ()
    """Who is told of what happens."""
    freeze: Annotated[tuple[FreezeWindow, ...], Field(max_length=100)] = ()
    """Times in which nothing that runs is changed. What is short is still started."""
