"""Who gives way: room for a need that found none, taken from what may be lost for it.

A class takes room from lower ones. Between equals a model on demand that idles
gives way to one that somebody waits for; one that works does so once the other has
waited long enough, and not before, so that two that are asked in turn do not take
each other's card at each request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from llmgw.core.memory import Scale
from llmgw.core.needs import RANK, Need, Spot
from llmgw.core.observed import Load
from llmgw.core.placement import spot_in
from llmgw.core.replicas import Fleet, Replica
from llmgw.core.rooms import Rooms
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import Phase

TURN_S = 60.0
"""How long a model that is kept busy has what another of its class waits for: counted from when it is ready, since
loading alone may take longer than that and answers nobody."""

ONCE_MORE = 1
"""Failures after which a model still takes the room of others: it may have failed for its node's sake."""

LONG_AGO_S = 1e9


class Loss(NamedTuple):
    """What giving up one replica costs: the least is given up first."""

    rank: int
    """Of its class, the lowest class first."""
    busy: bool
    """An idle one first."""
    only: bool
    """One of several that serve before the only one of its model."""
    asked: float
    """Minus the seconds since it was last asked: the least recently asked first."""
    bytes: int
    """What has to be read to have it back: the cheapest to load first."""
    key: tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Way:
    """What gives way for a need, all of it on one node."""

    spot: Spot
    """Where the need goes once they are gone."""
    replicas: tuple[Replica, ...]

    @property
    def names(self) -> str:
        """What gives way, in words."""
        return " and ".join(r.id for r in self.replicas)


@dataclass(frozen=True, slots=True)
class Claims:
    """Who may take room from whom, in one pass."""

    wanted: Wanted
    fleet: Fleet
    rooms: Rooms
    scales: Mapping[str, Scale]
    loads: Mapping[str, Load]
    sizes: Mapping[str, int]
    """Bytes of each version, by key."""
    now: float

    def way(self, need: Need) -> Way | None:
        """The least that has to go for a need that found no room, or None: nothing that may go would do.

        Where it has failed, and on nodes that fail in everything, others give way only if they do so nowhere else.
        """
        losses: dict[str, list[tuple[Loss, Replica]]] = defaultdict(list)
        for replicas in self.fleet.replicas.values():
            for replica in replicas:
                if loss := self._loss(replica, need):
                    losses[replica.node].append((loss, replica))
        found = ((self._least(need, sorted(of)), node) for node, of in sorted(losses.items()))
        last = {*need.avoid, *self.rooms.suspects}
        best = min(((node in last, _total(taken), node, taken) for taken, node in found if taken), default=None)
        if best is None:
            return None
        gone = tuple(r for _, r in best[3])
        spot = self._spot(need, gone)
        assert spot is not None, "it was found to fit"
        return Way(spot, gone)

    def _least(self, need: Need, candidates: list[tuple[Loss, Replica]]) -> list[tuple[Loss, Replica]]:
        """The fewest of a node's candidates that make the room, the least loss first; empty: not even all do."""
        taken: list[tuple[Loss, Replica]] = []
        for candidate in candidates:
            taken.append(candidate)
            if self._spot(need, (r for _, r in taken)):
                break
        else:
            return []
        for candidate in reversed(taken[:-1]):
            rest = [t for t in taken if t is not candidate]
            if self._spot(need, (r for _, r in rest)):
                taken = rest
        return taken

    def _spot(self, need: Need, gone: Iterable[Replica]) -> Spot | None:
        return spot_in(need, self.rooms.without(r.key for r in gone))

    def _loss(self, replica: Replica, need: Need) -> Loss | None:
        """What giving up a replica for a need costs, or None: it does not give way to it."""
        entry = self.wanted.models.get(replica.model)
        if entry is None or replica.model == need.model.name or not replica.holds:
            return None
        mine, its = RANK[entry.model.class_], RANK[need.model.class_]
        if mine < its or (mine == its and not self._takes_turns(replica, need)):
            return None
        load = self.loads.get(replica.model, Load())
        busy = bool(load.in_flight or load.waiting or replica.busy)
        asked = LONG_AGO_S if load.idle_for_s is None else load.idle_for_s
        only = not any(r.serves and r is not replica for r in self.fleet.of(replica.model))
        return Loss(-mine, busy, only, -asked, self.sizes.get(replica.version, 0), replica.key)

    def _takes_turns(self, replica: Replica, need: Need) -> bool:
        """Whether a replica of a model on demand gives way to its equal that somebody waits for."""
        other, waiting = self.scales.get(replica.model), self.scales.get(need.model.name)
        if other is None or not other.on_demand or waiting is None or not waiting.unserved_since:
            return False
        load = self.loads.get(replica.model, Load())
        idle = not (load.in_flight or load.waiting or replica.busy)
        # One that is being loaded is loaded for somebody.
        waited = min(self.now - waiting.unserved_since, replica.age_s)
        return replica.phase is Phase.READY and (idle or waited >= TURN_S)


def _total(taken: Iterable[tuple[Loss, Replica]]) -> tuple[int, int, int, int, float, int]:
    """What giving up several costs together: whose class is highest counts first."""
    losses = [loss for loss, _ in taken]
    return (
        max(loss.rank for loss in losses),
        sum(loss.busy for loss in losses),
        sum(loss.only for loss in losses),
        len(losses),
        max(loss.asked for loss in losses),
        sum(loss.bytes for loss in losses),
    )
