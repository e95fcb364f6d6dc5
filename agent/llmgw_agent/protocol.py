"""What agents and control say to each other: Orders one way, Reports the other.

Both are whole, never a difference: an order that got lost is in the next one,
and a report that came late is replaced by the next. Within one `PROTOCOL`
fields are only added; a field that was not sent is `UNSET`, which is *unknown*,
and a field that is not known here is ignored. Every time is an age in seconds,
since only control's clock counts.

What there are many of is kept out of the garbage collector's sight (`gc=False`): a
frozen value of frozen values is in no cycle.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec
from msgspec import UNSET, Struct, UnsetType

PROTOCOL = 1
"""The version this side speaks; it also understands the one before."""

REPORT_EVERY_S = 20.0
"""A report at least this often: control answers a waiting one by then."""

SILENT_AFTER_S = 45.0
"""A node that has not reported for this long is silent."""

PORTS = range(7500, 8000)
"""Where engines listen. The agent chooses; no port is ever in the catalog."""


class Phase(StrEnum):
    """Where a replica is in its life on a node."""

    FETCHING = "fetching"
    """Its weights are on their way here."""
    STARTING = "starting"
    """The engine's process runs and does not answer yet."""
    READY = "ready"
    DRAINING = "draining"
    """It takes nothing new and finishes what it has."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    """Ended because that was ordered."""
    FAILED = "failed"
    """Ended by itself, or never came up: the dossier says why."""


class Claim(Struct, frozen=True, gc=False):
    """What one replica may use of its node."""

    memory_bytes: int
    """Host memory, in bytes."""
    cpu_cores: int
    cards: int = 0
    """How many whole cards; which ones is said by the order's `devices`."""


class EngineSpec(Struct, frozen=True, omit_defaults=True):
    """How to run one replica: all an engine's adapter needs for its command line."""

    engine: str
    """llamacpp, vllm, sglang."""
    served_name: str
    """The model's name: what the engine calls itself, and what a probe compares."""
    kind: str
    """chat, completion or embedding."""
    context_tokens: int
    """The whole pool: what one request may use, times the slots."""
    parallel: int
    """Slots: requests served at the same time."""
    threads: int
    claim: Claim
    start_timeout_s: float = 600.0
    """Without progress for this long, a start has failed."""
    drain_timeout_s: float = 60.0
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    engine_version: str = ""
    """Which of the node's builds. Empty: the newest. An older agent takes the one it has."""


class WeightFile(Struct, frozen=True, order=True, gc=False):
    """One file of a version."""

    path: str
    """Relative, with forward slashes."""
    bytes: int
    sha256: str


class Action(StrEnum):
    """What is wanted of one replica."""

    RUN = "run"
    DRAIN = "drain"
    """Finish what it has, then stop."""
    KEEP = "keep"
    """Leave what runs under this id as it is: control cannot say more now."""


class ReplicaOrder(Struct, frozen=True, omit_defaults=True):
    """One replica that should be on this node. One that is not listed is drained and forgotten."""

    id: str
    """model/profile/ordinal."""
    generation: int
    action: Action
    fingerprint: str = ""
    spec: EngineSpec | None = None
    """None with `keep` and `drain`, where what runs is known to the agent."""
    version: str = ""
    """The key `name/version` of its weights in `Orders.versions`, or empty."""
    path: str = ""
    """An absolute path to weights that are there already, or empty."""
    devices: tuple[str, ...] = ()
    """UUIDs of its cards. Empty: it must not see any."""
    attempt: int = 0
    """Starts that failed before this one, as control counts them: the agent adds its
    own. Raised under one generation, it has a failed replica tried again."""


class VersionOrder(Struct, frozen=True, omit_defaults=True):
    """One version of weights this node should hold, may fetch ahead, or may remove."""

    name: str
    version: str
    action: str
    """hold | prefetch | may_remove | spare. What is spare may be removed for the room it takes, the first of
    them first; an older agent leaves it."""
    files: tuple[WeightFile, ...] = ()
    """From control, which had them from upstream: a manifest is not believed."""
    sources: tuple[str, ...] = ()
    """Base URLs, each ending in a slash, tried in order."""

    @property
    def key(self) -> str:
        return f"{self.name}/{self.version}"


class Orders(Struct, frozen=True):
    """The whole of what should be on one node."""

    protocol: int
    epoch: int
    """Raised at every start of control. An agent refuses a lower one than it has obeyed."""
    seq: int
    """Raised whenever this node's orders change, within one epoch."""
    address: str
    """The node's address of server.yaml: where engines listen."""
    replicas: tuple[ReplicaOrder, ...] = ()
    versions: tuple[VersionOrder, ...] = ()


class ForeignProcess(Struct, frozen=True, omit_defaults=True, gc=False):
    """A program that is not ours and holds memory, so that a person can find it."""

    pid: int
    bytes: int
    name: str = ""
    """Its program, without its arguments. Empty is unknown."""


class Card(Struct, frozen=True, omit_defaults=True, gc=False):
    """One card, as its driver reports it."""

    uuid: str
    name: str
    vendor: str
    card_class: str
    """The class name of the catalog: `l40s-48g`."""
    memory_bytes: int
    used_by_others_bytes: int | None = None
    """Held by processes that are not ours. None where the driver does not say."""
    compute_capability: str = ""
    parent: str = ""
    """UUID of the card this is a slice of. Empty: it is a whole one."""
    slice: str = ""
    """Of a slice: its size as the driver names it, `1g.10gb`."""
    processes: tuple[ForeignProcess, ...] = ()
    """Who holds what others use of it, the largest first, at most five."""
    errors: tuple[str, ...] = ()
    """What its driver says is wrong with it: `xid 79`, `uncorrectable ecc`, `lost`. Empty: nothing."""


class InstalledEngine(Struct, frozen=True, omit_defaults=True, order=True, gc=False):
    """One engine found on the node, without running it."""

    name: str
    version: str = ""
    """Empty is unknown."""
    build: str = "installed"
    """installed | embedded."""
    path: str = ""
    accelerators: tuple[str, ...] | None = None
    """Of cpu, nvidia, amd, intel. None is unknown, and excludes nothing."""


class Inventory(Struct, frozen=True, omit_defaults=True):
    """What a node has. None is unknown."""

    hostname: str
    cpu_cores: int
    memory_bytes: int
    memory_used_by_others_bytes: int | None = None
    """Held by what is not an engine of ours."""
    processes: tuple[ForeignProcess, ...] = ()
    """Who holds most of that, the largest first, at most five."""
    disk_free_bytes: int | None = None
    """On the filesystem of the weights."""
    weights_id: str = ""
    """Of the folder of its weights: nodes that report the same one share it. Empty is unknown."""
    cards: tuple[Card, ...] = ()
    card_problem: str = ""
    """Why cards could not be read, where a driver is there and does not answer."""
    engines: tuple[InstalledEngine, ...] | None = None
    """None is an older agent that does not say. Empty is none."""
    allow: tuple[str, ...] = ()
    """What the agent's own file allows: command, binary, env, path:/mnt/models."""
    labels: dict[str, str] = {}
    memory_gbs: float | None = None
    """10^9 bytes a second that all cores read of memory. None: not measured, or there was no room to."""
    memory_core_gbs: float | None = None
    """That one core reads alone."""
    disk_gbs: float | None = None
    """10^9 bytes a second that come off the disk of the weights. None: not measured."""
    fetch_gbs: float | None = None
    """That came over the network when weights were last fetched, checked and on disk. None: none were."""


class Progress(Struct, frozen=True, omit_defaults=True):
    """How far a slow step is."""

    stage: str
    """weights | load."""
    done_bytes: int = 0
    total_bytes: int | None = None


class Dossier(Struct, frozen=True, omit_defaults=True):
    """What is known of one failure."""

    cause: str
    """A class: out_of_memory, bad_flags, weights, port, timeout, exited, killed, device, engine_missing,
    refused, identity, wedged, stuck, disk, internal. docs/agent.md says what each means."""
    message: str
    """The first causal line, or our own sentence."""
    exit_code: int | None = None
    signal: int | None = None
    log_tail: tuple[str, ...] = ()
    """The engine's last lines, at most 40 of at most 400 characters."""
    attempt: int = 0


class ReplicaReport(Struct, frozen=True, omit_defaults=True, gc=False):
    """One replica as it is on this node."""

    id: str
    generation: int
    phase: Phase
    fingerprint: str = ""
    """Empty: adopted from an agent that did not keep it; unknown, not stale."""
    age_s: float = 0.0
    """Since it is in this phase."""
    pid: int | None = None
    port: int | None = None
    address: str = ""
    """Where it listens: the node's address when it was started."""
    key: str = ""
    """The engine's own random key, for the gateway only."""
    engine: str = ""
    engine_version: str = ""
    """Of the build that runs. Empty is unknown."""
    parallel: int = 0
    version: str = ""
    devices: tuple[str, ...] = ()
    claim: Claim | None = None
    memory_bytes: int | None = None
    """Of the host, now: resident, mapped weights included."""
    memory_peak_bytes: int | None = None
    """Of the host, at its most; on cards, since it serves."""
    card_bytes: int | None = None
    """Of all its cards together, now. None: it has none, or the driver does not say."""
    card_peak_bytes: int | None = None
    """The same at its most."""
    tps: float | None = None
    """Tokens a second of one answer that is written alone, smoothed. None: none was yet."""
    busy: int | None = None
    """Slots at work now."""
    progress: Progress | None = None
    attempts: int = 0
    """Starts that ended in failure since it was last ready for ten minutes."""
    dossier: Dossier | None = None
    started_age_s: float | None = None
    """Since its process started. None where none runs."""


class HeldVersion(Struct, frozen=True, omit_defaults=True, gc=False):
    """A version on this node, whole or arriving."""

    name: str
    version: str
    state: str
    """held | arriving | failed."""
    bytes: int = 0
    """Whole size when held; what has arrived when arriving."""
    total_bytes: int | None = None
    why: str = ""

    @property
    def key(self) -> str:
        return f"{self.name}/{self.version}"


class Report(Struct, frozen=True, omit_defaults=True):
    """The whole of what is on one node; or, with `same`, that it is as last said."""

    node: str
    boot: str
    """The machine's boot id."""
    protocol: int = PROTOCOL
    agent_version: str = ""
    obeyed_epoch: int = 0
    obeyed_seq: int = 0
    instance: str = ""
    """The one agent this is, whatever it is named: the same after a restart, another where a
    second agent took the node's name. Empty is an older agent that does not say."""
    trouble: str | UnsetType = UNSET
    """Why orders it was given are not obeyed, as a sentence; empty where they are."""
    same: str = ""
    """The digest of the last whole report, in place of everything below."""
    inventory: Inventory | UnsetType = UNSET
    replicas: tuple[ReplicaReport, ...] | UnsetType = UNSET
    versions: tuple[HeldVersion, ...] | UnsetType = UNSET


def digest(report: Report) -> str:
    """Short hash of a report's stable content: what `same` refers to.

    Ages and obeyed orders are left out, since they move while nothing changes; and so is
    what an older control does not know, as long as there is nothing to say of it.
    """
    replicas = report.replicas
    if replicas is not UNSET:
        replicas = tuple(msgspec.structs.replace(r, age_s=0.0, started_age_s=None) for r in replicas)
    stable = msgspec.structs.replace(report, obeyed_epoch=0, obeyed_seq=0, instance="", same="", replicas=replicas)
    stable = msgspec.structs.replace(stable, trouble=report.trouble or UNSET)
    return hashlib.sha256(msgspec.json.encode(stable)).hexdigest()[:16]


def split_id(replica_id: str) -> tuple[str, str, int]:
    """Model, profile and ordinal of a replica's id.

    Raises:
        ValueError: not of the form model/profile/ordinal.
    """
    model, profile, ordinal = replica_id.rsplit("/", 2)
    return model, profile, int(ordinal)
