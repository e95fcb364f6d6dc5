"""Which replica a request goes to: a function of the table and of what is in flight."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec import structs

from llmgw.core.table import Serving, TableModel, TableReplica


class Key(NamedTuple):
    """One replica: a second placement under the same id is another one."""

    id: str
    generation: int


def key_of(replica: TableReplica) -> Key:
    return Key(replica.id, replica.generation)


class Load(Protocol):
    """What the picker has to know of each replica."""

    def taken(self, key: Key) -> int:
        """Slots that are not free."""
        ...

    def suspect(self, key: Key) -> bool:
        """Whether it has just failed to answer."""
        ...


class Outlook(StrEnum):
    """What a request that cannot be placed now may wait for."""

    FULL = "full"
    """A slot of a replica that serves."""
    STARTING = "starting"
    """A replica that does not serve yet."""
    NOTHING = "nothing"


def pick(model: TableModel, load: Load, avoid: Collection[Key] = ()) -> TableReplica | None:
    """The replica with a free slot that the next request goes to, or None where all are full.

    Ready ones first, then those that have just failed, then those of silent
    nodes; within these the highest tier; within a tier the least taken share,
    where a weight of 2 counts for twice the slots; equal ones by id.
    """
    free = [
        (_rank(replica, key, taken, load), replica)
        for key, replica in _serving(model)
        if key not in avoid and (taken := load.taken(key)) < slots(replica)
    ]
    return min(free)[1] if free else None


def outlook(model: TableModel, avoid: Collection[Key] = ()) -> Outlook:
    """What to wait for where `pick` found nothing.

    A model that runs and says no reason why nothing serves is about to be
    started; but who has failed on a replica already waits for one that is there.
    """
    if any(key not in avoid for key, _ in _serving(model)):
        return Outlook.FULL
    if any(r.state is Serving.STARTING for r in model.replicas):
        return Outlook.STARTING
    if not avoid and model.state == "running" and not model.why:
        return Outlook.STARTING
    return Outlook.NOTHING


def of_profile(model: TableModel, profile: str) -> TableModel:
    """The model as far as one of its profiles runs it: for who measures that one. Empty: all of it."""
    if not profile:
        return model
    mine = tuple(r for r in model.replicas if r.id.rsplit("/", 2)[1:-1] == [profile])
    why = model.why if mine else f"it has no replica of a profile {profile[:63]!r}"
    return structs.replace(model, replicas=mine, why=why)


def slots(replica: TableReplica) -> int:
    """How many requests it may have. Capacity unknown is one at a time."""
    return max(1, replica.capacity)


def _serving(model: TableModel) -> list[tuple[Key, TableReplica]]:
    """The replicas that may be asked: of one id only the newest that is ready, and what is newer still."""
    newest: dict[str, int] = {}
    for r in model.replicas:
        if r.state is Serving.READY and r.generation > newest.get(r.id, -1):
            newest[r.id] = r.generation
    return [
        (Key(r.id, r.generation), r)
        for r in model.replicas
        if (r.state is Serving.READY or r.state is Serving.SILENT) and r.generation >= newest.get(r.id, -1)
    ]


def _rank(replica: TableReplica, key: Key, taken: int, load: Load) -> tuple[int, int, float, str, int]:
    """Sorts first who is to be asked first. No two replicas have the same one."""
    resort = 2 if replica.state is Serving.SILENT else int(load.suspect(key))
    return resort, -replica.tier, taken / (slots(replica) * max(1, replica.weight)), key.id, -key.generation
