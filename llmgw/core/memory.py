"""What the reconciler remembers between passes: a value in, and a value out.

Everything here can be lost. What a restart must not get wrong is in the status
branch or is reported by the nodes: see `docs/architecture.md`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from llmgw.core.promise import Promise
from llmgw.planning.learned import Learned
from llmgw_agent.protocol import Action, Claim, WeightFile


class Placement(Struct, frozen=True, omit_defaults=True, order=True, gc=False):
    """One replica that should be on a node, as last decided."""

    id: str
    generation: int
    node: str
    action: Action
    fingerprint: str = ""
    claim: Claim | None = None
    devices: tuple[str, ...] = ()
    version: str = ""
    attempt: int = 0
    """Starts of it that failed before this one."""
    epoch: int = 0
    seq: int = 0
    """The node's orders that first carried it. A node that has obeyed them and does not
    report it does not have it. 0: not sent yet."""


class Failures(Struct, frozen=True, omit_defaults=True):
    """How often a profile's starts ended in failure, and where."""

    fingerprint: str
    """Of what failed. Another one starts from nothing: retrying is keyed on the outcome."""
    count: int
    """Rounds of starts that failed: seven that fail together are one."""
    last_at: float
    cause: str
    message: str
    nodes: tuple[str, ...] = ()
    """Where it failed: another node is tried first."""
    elsewhere: bool = False
    """Whether the same served on another node at the last look: then it is the node that it fails on."""

    @property
    def words(self) -> str:
        """The last failure, as it is spoken of."""
        return f"{self.cause}: {self.message}" if self.message else self.cause


class LastGood(Struct, frozen=True, omit_defaults=True):
    """The last form in which all that ran of a profile served."""

    fingerprint: str
    spec: dict[str, Any]
    """Of the whole model, in canonical form."""
    memory_gib: float = 0.0
    """GiB that one replica took: the lock that it was worked out from may be another by now."""
    version: str = ""
    """The key of its weights. Empty: they are read in place."""


class Scale(Struct, frozen=True, omit_defaults=True):
    """How many replicas of a scaled model were decided on, and what is waited for before that changes."""

    total: int
    since: float
    """When it was last raised, UTC seconds."""
    counts: dict[str, int] = {}
    """The total, by profile."""
    on_demand: bool = False
    """Whether none may do."""
    more_since: float = 0.0
    """Since when more have been needed. 0: they are not."""
    fewer_since: float = 0.0
    """Since when fewer would do. 0: they would not."""
    peak: int = 0
    """The most that were needed since then."""
    unserved_since: float = 0.0
    """Since when somebody waits while nothing serves. 0: nobody does."""
    active: float = 0.0
    """Requests at the same time, over the window that figures are averaged over."""
    waiting: float = 0.0
    """Of those, the ones that wait."""
    answering: int = 0
    """Requests that are answered now: some replica works, even where no node says which."""
    at: float = 0.0
    """When these were last brought up to date."""


class Wave(Struct, frozen=True, omit_defaults=True):
    """A change that several models share, on its way from one to the next."""

    through: dict[str, float] = {}
    """Models that serve in the new form, and since when that was seen, UTC seconds."""
    speeds: dict[str, float] = {}
    """Tokens a second of models before."""
    moving: tuple[str, ...] = ()
    """Models that may change and are not through. Sorted."""
    since: float = 0.0
    """When it was first seen, UTC seconds."""


class MirrorRefusal(Struct, frozen=True):
    """What a mirror will not be asked again."""

    why: str
    do: str
    boot: str
    """The mirror's: another start of it may have been told to allow more."""


class FetchTries(Struct, frozen=True, omit_defaults=True):
    """How often the mirror failed to get a version."""

    source: str
    """What was asked: a changed source starts from nothing."""
    count: int = 0
    next_at: float = 0.0
    failure: str = ""
    """Why the last try failed."""
    refused: MirrorRefusal | None = None
    """Why it was not even tried."""


class Purge(Struct, frozen=True, order=True):
    """What has become of one version of a purged model, in one place."""

    version: str
    where: str
    """The mirror, or a node."""
    word: str
    """removed | kept for | waiting for."""
    whom: tuple[str, ...] = ()
    """Models that it is kept for; replicas that it waits for, or where it is about to be removed."""

    @property
    def sentence(self) -> str:
        return f"{self.version} on {self.where}: {self.word} {', '.join(self.whom)}".rstrip()


class Sent(Struct, frozen=True):
    """The last orders of a node."""

    seq: int
    digest: str


class Memory(Struct, frozen=True):
    """All of it."""

    started_at: float
    """When this control started, UTC seconds."""
    settled: bool = False
    """Whether every node has reported since, or is past its grace."""
    epoch: int = 0
    """Higher than any a node has obeyed. 0: not settled yet."""
    placements: tuple[Placement, ...] = ()
    """Sorted."""
    generations: dict[str, int] = {}
    """The highest generation ever placed, by replica id."""
    failures: dict[str, Failures] = {}
    """By model/profile."""
    good: dict[str, LastGood] = {}
    """By model/profile: what comes back where a new form does not come up."""
    relapses: dict[str, Failures] = {}
    """By model/profile: how what came back failed as well."""
    scales: dict[str, Scale] = {}
    """By model."""
    waves: dict[str, Wave] = {}
    """By what is shared."""
    gave_way: dict[str, str] = {}
    """For which model each lost a replica to make room, until it misses none any more."""
    fetches: dict[str, FetchTries] = {}
    """By name/version."""
    files: dict[str, tuple[WeightFile, ...]] = {}
    """Files of versions the mirror has held, by name/version: a node may have one while the mirror is away."""
    unreferenced: dict[str, float] = {}
    """Since when nothing refers to a version, by name/version, UTC seconds."""
    retains: dict[str, float] = {}
    """Seconds a version is kept after that, by name/version, where its model said so itself."""
    purges: tuple[Purge, ...] = ()
    """What has become of what is purged, sorted. Lost, only what is removed already is not said any more."""
    sent: dict[str, Sent] = {}
    """By node."""
    learned: Learned = Learned()
    """What estimates turned out to be worth."""
    promise: Promise | None = None
    """What was said would be done about the commit that is wanted. None: none has been taken up."""
