"""What a status says of the mirror and of each version on it."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from llmgw.core.actions import Plan
from llmgw.core.holdings import Failure, Holding, HoldingState
from llmgw.core.observed import Observed
from llmgw.core.wanted import Wanted
from llmgw.units import GIB
from llmgw_agent.protocol import WeightFile


class HoldingStatus(Struct, frozen=True, omit_defaults=True):
    """One version on the mirror."""

    name: str
    version: str
    state: HoldingState
    origin: str = "catalog"
    files: tuple[WeightFile, ...] = ()
    bytes: int | None = None
    """All of it. None: it is not known."""
    arrived: int = 0
    """Percent, while it arrives, in steps of `STEP`: each percent would be a commit."""
    failure: Failure | None = None
    models: tuple[str, ...] = ()
    """Who refers to it."""
    unreferenced_since: int | None = None
    """UTC seconds."""
    retain_s: int | None = None
    """How long it is kept after that, where its model says so itself: the model may be gone when it counts."""


STEP = 25
"""Percent. A fetch that takes hours is three commits, and not one a minute."""


class MirrorStatus(Struct, frozen=True, omit_defaults=True):
    """The mirror. `reachable: false` is not an empty one."""

    reachable: bool
    holdings: tuple[HoldingStatus, ...] = ()
    purges: tuple[str, ...] = ()
    """What has become of each version of a purged model, on the mirror and on every node: a sentence each."""
    disk_free_gib: int | UnsetType = UNSET
    """Moves."""


def mirror_status(wanted: Wanted, seen: Observed, plan: Plan) -> MirrorStatus | None:
    if wanted.server.mirror is None:
        return None
    users: dict[str, list[str]] = {}
    for name, entry in wanted.models.items():
        users.setdefault(entry.version_key, []).append(name)
    if seen.mirror is None:
        # What it held when it was last seen is still worth saying.
        held = tuple(_holding(_remembered(k, files), users, plan) for k, files in sorted(plan.memory.files.items()))
        return MirrorStatus(reachable=False, holdings=held, purges=_purges(plan))
    free = seen.mirror.disk_free_bytes
    return MirrorStatus(
        reachable=True,
        holdings=tuple(_holding(h, users, plan) for h in sorted(seen.mirror.holdings, key=lambda h: h.key)),
        purges=_purges(plan),
        disk_free_gib=UNSET if free is None else round(free / GIB),
    )


def _purges(plan: Plan) -> tuple[str, ...]:
    return tuple(purge.sentence for purge in plan.memory.purges)


def _remembered(key: str, files: tuple[WeightFile, ...]) -> Holding:
    name, version = key.split("/", 1)
    return Holding(name, version, HoldingState.PRESENT, files=files)


def _holding(holding: Holding, users: dict[str, list[str]], plan: Plan) -> HoldingStatus:
    present, total = holding.state is HoldingState.PRESENT, holding.total_bytes
    since, retain = plan.memory.unreferenced.get(holding.key), plan.memory.retains.get(holding.key)
    return HoldingStatus(
        holding.name,
        holding.version,
        holding.state,
        origin=holding.origin,
        files=holding.files if present else (),
        bytes=sum(f.bytes for f in holding.files) if present and holding.files else holding.total_bytes,
        arrived=0 if present or not total else STEP * (100 * holding.done_bytes // total // STEP),
        failure=holding.failure,
        models=tuple(users.get(holding.key, ())),
        unreferenced_since=None if since is None else int(since),
        retain_s=None if retain is None else round(retain),
    )
