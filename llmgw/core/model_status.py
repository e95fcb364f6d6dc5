"""What a status says of one model."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType, structs

from llmgw.core.actions import Held, Plan
from llmgw.core.condition import Condition, condition
from llmgw.core.headroom import Left
from llmgw.core.memory import LastGood, Memory
from llmgw.core.replicas import Fleet
from llmgw.core.seats import counts
from llmgw.core.unplaced import Reason
from llmgw.core.wanted import WantedModel
from llmgw_agent.protocol import Phase, split_id


class ProfileStatus(Struct, frozen=True, omit_defaults=True):
    """One profile: how many, and where they are."""

    name: str
    wanted: int
    ready: int
    starting: int = 0
    failed: int = 0
    nodes: tuple[str, ...] = ()
    """Of the ready ones, sorted, one for each."""


class Shortage(Struct, frozen=True, omit_defaults=True):
    """Why replicas of one profile have no node."""

    profile: str
    detail: str
    """What is missing on the nearest nodes, and what would change that: a sentence."""
    reasons: tuple[Reason, ...]


class Taken(Struct, frozen=True, omit_defaults=True):
    """What one ready replica of a profile takes of its node, and how fast it answers."""

    profile: str
    memory_bytes: int
    """Of the host, as it is claimed."""
    cards: int = 0
    card_bytes: int | None = None
    """Of all its cards together, as it was worked out. None: it was not."""
    tps: float | None = None
    """Tokens a second of one answer alone. None: it is not known."""
    measured: bool = False
    """Whether that was measured; else it was worked out."""


class ModelNow(Struct, frozen=True, omit_defaults=True):
    """What of a model moves."""

    unplaced: tuple[Shortage, ...] = ()
    headroom: tuple[Left, ...] = ()
    """How many more would fit, by profile, as of when it was written. Empty: that was not worked out."""
    taken: tuple[Taken, ...] = ()
    """By profile, of those with a ready replica."""


class ModelStatus(Struct, frozen=True, omit_defaults=True):
    """One model."""

    name: str
    state: str
    """ready | idle | reconciling | stalled | stopped | leaving. One that is idle starts when it is asked."""
    path: str = ""
    commit: str = ""
    """The commit its spec is of."""
    frozen: str = ""
    """Why that is not the newest one."""
    profiles: tuple[ProfileStatus, ...] = ()
    version: str = ""
    conditions: tuple[Condition, ...] = ()
    good: dict[str, LastGood] = {}
    """By profile: the last form that served, where that is not the one that is wanted."""
    now: ModelNow | UnsetType = UNSET

    @property
    def stable(self) -> ModelStatus:
        """The same without what moves."""
        return self if self.now is UNSET else structs.replace(self, now=UNSET)


def model_status(
    name: str, entry: WantedModel | None, fleet: Fleet, plan: Plan, held: Iterable[Held], *, moving: bool
) -> ModelStatus:
    asked = counts(entry, plan.memory.scales)
    mine = fleet.of(name)
    profiles = []
    for profile in sorted({*asked, *(r.profile for r in mine)}):
        of_profile = [r for r in mine if r.profile == profile]
        ready = [r.node for r in of_profile if r.serves]
        profiles.append(
            ProfileStatus(
                profile,
                asked.get(profile, 0),
                len(ready),
                starting=sum(r.phase in (Phase.FETCHING, Phase.STARTING) for r in of_profile),
                failed=sum(r.phase is Phase.FAILED for r in of_profile),
                nodes=tuple(sorted(ready)),
            )
        )
    conditions = tuple(map(condition, held))
    return ModelStatus(
        name,
        _state(entry, profiles, conditions, moving=moving),
        path=entry.path if entry else "",
        commit=entry.commit if entry else "",
        frozen=entry.frozen if entry else "",
        profiles=tuple(profiles),
        version=entry.version_key if entry else "",
        conditions=conditions,
        good=_good(entry, plan.memory) if entry else {},
        now=_shortages(held),
    )


def _good(entry: WantedModel, memory: Memory) -> dict[str, LastGood]:
    known = ((p, memory.good.get(f"{entry.model.name}/{p}"), outcome) for p, outcome in entry.outcomes.items())
    return {profile: good for profile, good, outcome in known if good and good.fingerprint != outcome}


def _shortages(held: Iterable[Held]) -> ModelNow | UnsetType:
    """One table for each profile: its replicas ask the same, and it is said of one of them."""
    tables = tuple(Shortage(split_id(h.subject)[1], h.detail, h.reasons) for h in held if h.reasons)
    return ModelNow(tables) if tables else UNSET


def _state(
    entry: WantedModel | None, profiles: Iterable[ProfileStatus], conditions: Iterable[Condition], *, moving: bool
) -> str:
    if entry is None:
        return "leaving"
    if any(c.stalled for c in conditions):
        return "stalled"
    if moving or any(p.ready != p.wanted or p.starting or p.failed for p in profiles):
        return "reconciling"
    if any(p.wanted for p in profiles):
        return "ready"
    return "idle" if entry.model.scaling and not entry.stopped else "stopped"
