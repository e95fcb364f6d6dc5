"""What gateways are told: which replicas serve which name, and who may ask."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Serving(StrEnum):
    """What a gateway may do with a replica."""

    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"
    """Finishes what it has; gets nothing new."""
    SILENT = "silent"
    """Its node has not reported; it may well serve, and is tried last."""


class TableReplica(Struct, frozen=True, omit_defaults=True, order=True):
    """One replica a request can go to."""

    id: str
    generation: int
    node: str
    url: str
    """http://address:port, without a slash at the end."""
    key: str
    """Bearer key of the engine, for the gateway only."""
    engine: str
    tier: int
    """The profile's priority: the highest is filled first."""
    weight: int
    capacity: int
    """Slots: requests it serves at the same time."""
    state: Serving


class TableModel(Struct, frozen=True, omit_defaults=True):
    """One model clients can ask for."""

    name: str
    kind: str
    context_length: int
    description: str = ""
    aliases: tuple[str, ...] = ()
    owner: str = ""
    tags: tuple[str, ...] = ()
    license: str = ""
    capabilities: tuple[str, ...] = ()
    unlisted: bool = False
    """Left out of the list of models; who knows its name can use it."""
    replaced_by: str = ""
    """The model to go to in its place; empty: it stays."""
    max_output: int | None = None
    created: int = 0
    """UTC seconds of the commit that first asked for it as it is; 0 is unknown."""
    state: str = "running"
    """running | stopped | problem. A stopped one is listed and says so when asked."""
    why: str = ""
    """Why nothing serves, where nothing does: a sentence for the client."""
    wanted: int = 0
    """How many replicas should serve."""
    replicas: tuple[TableReplica, ...] = ()
    """Sorted by id and generation."""


class TableKey(Struct, frozen=True, omit_defaults=True):
    """One client key, by hash."""

    name: str
    models: tuple[str, ...] | None = None
    """None is every model."""


class Table(Struct, frozen=True):
    """The whole table. Two equal ones have the same version."""

    version: str
    """A digest of the rest: what the ETag and the long poll compare."""
    cluster: str
    models: tuple[TableModel, ...]
    """Sorted by name."""
    keys: dict[str, TableKey] = {}
    """By the sha256 of the whole key, in hex. Empty: no client keys exist."""


class ModelDemand(Struct, frozen=True, omit_defaults=True):
    """What one gateway has of one model."""

    waiting: int = 0
    in_flight: int = 0
    idle_for_s: float | None = None
    """Since the end of the last request. None: not asked since the gateway's start."""
    rps: float | None = None
    """Requests a second that ended, over the last minute. None: an older gateway does not say."""


class Demand(Struct, frozen=True, omit_defaults=True):
    """What a gateway tells control every few seconds."""

    gateway: str
    boot: str
    seq: int
    models: dict[str, ModelDemand] = {}
