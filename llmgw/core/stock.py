"""What becomes of versions on nodes where no replica says it: they are fetched ahead, are spare, or may go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.core.actions import Held, Stock
from llmgw.core.artifacts import Artifacts
from llmgw.core.fetching import Fetching
from llmgw.core.filesystems import sharing
from llmgw.core.needs import RANK, Need, Spot, ask_of
from llmgw.core.replicas import Fleet, Standing
from llmgw.core.rollout import Turn
from llmgw.core.rooms import Disk, Room, Rooms
from llmgw.core.rules import Rules
from llmgw.core.wanted import Wanted, WantedModel

MOST_AHEAD = 8
"""Nodes that the weights of one profile are fetched to ahead: for more, the disk of a fleet would be theirs alone."""


def stock(
    wanted: Wanted,
    fleet: Fleet,
    turns: Iterable[Turn],
    spots: Mapping[str, tuple[Need, Spot]],
    weights: Artifacts,
    fetching: Fetching,
    now: float,
) -> tuple[tuple[Stock, ...], tuple[Held, ...]]:
    """What nodes fetch ahead and what may go there; and what is not fetched ahead, and why.

    Args:
        wanted: what the commit asks.
        fleet: the settled fleet.
        turns: of every model, with the nodes that need its weights before something stops.
        spots: what is placed in this pass.
        weights: whose can be had, and which versions are kept by their retention alone.
        fetching: who fetches; what is to run has had its turn.
        now: UTC seconds.
    """
    stocks = _Stocks(wanted, fleet, spots, weights, fetching)
    turns = sorted(turns, key=lambda t: _rank(wanted, t.model))
    for turn in turns:
        for node in dict.fromkeys(turn.ahead):
            stocks.before(turn.model, node)
    for turn in turns:
        entry = wanted.models.get(turn.model)
        if entry is not None and entry.model.source.prefetch and not entry.model.source.is_path:
            stocks.ahead(entry, asked=bool(turn.needs))
    goes = list(_going(fleet, weights, now))
    spare = [s for s in goes if s.action == "spare"]
    return (*sorted({*stocks.found, *goes} - {*spare}), *spare), tuple(stocks.held)


def _rank(wanted: Wanted, name: str) -> tuple[int, str]:
    entry = wanted.models.get(name)
    return RANK[entry.model.class_] if entry else len(RANK), name


class _Stocks:
    """What is fetched ahead, while it is decided."""

    def __init__(
        self,
        wanted: Wanted,
        fleet: Fleet,
        spots: Mapping[str, tuple[Need, Spot]],
        weights: Artifacts,
        fetching: Fetching,
    ) -> None:
        self.found: list[Stock] = []
        self.held: list[Held] = []
        self._wanted, self._fleet, self._spots = wanted, fleet, spots
        self._weights, self._fetching = weights, fetching

    @cached_property
    def _rooms(self) -> Rooms:
        """What is left once everything is placed. Nothing has to go for what is only fetched ahead."""
        rooms = Rooms(self._fleet, sizes=self._weights.sizes)
        for need, spot in self._spots.values():
            rooms.take(need, spot)
        return rooms

    def before(self, name: str, node: str) -> None:
        """Have the weights of what is to take a place fetched, before what has it stops."""
        key = self._wanted.models[name].version_key
        if name in self._weights.ready and self._fetching.before(node, key):
            self.found.append(Stock(node, key, "prefetch", f"what takes a place of {name} there needs it first"))

    def ahead(self, entry: WantedModel, *, asked: bool) -> None:
        """Have the weights of a model where its next replicas would be."""
        model, key = entry.model, entry.version_key
        if model.name in self._weights.held:
            if not asked:  # or it was said already
                self.held.append(self._weights.held[model.name])
            return
        full = waits = False
        for profile in entry.sized.profiles:
            for room in self._best(entry, profile, key):
                if key in room.held or self._fetching.elsewhere(room.name, key):
                    continue
                size = self._weights.sizes.get(key, 0)
                if not room.stored[key] and room.disk_bytes is not None and room.disk_bytes < size:
                    full = True
                elif self._fetching.ahead(room.name, key):
                    self.found.append(Stock(room.name, key, "prefetch", f"a replica of {model.name} may be next there"))
                    self._rooms.store(room.name, Disk(key, size))
                else:
                    waits = True
        if full:
            why = "nodes have no room on their disk to fetch its weights ahead"
            self.held.append(Held(model.name, why, model=model.name, kind="disk"))
        elif waits:
            why = "its weights are fetched ahead once no node waits to fetch what is to run (mirror.parallel_nodes)"
            self.held.append(Held(model.name, why, model=model.name))

    def _best(self, entry: WantedModel, profile: Profile, key: str) -> list[Room]:
        """The rooms where a profile's replicas would be: that have its weights, then that fit it now, then by name."""
        most = min(_most(entry.model, profile), MOST_AHEAD)
        if not most:
            return []
        ask = ask_of(entry.model, profile, version=key, weights_bytes=self._weights.sizes.get(key, 0))
        rules = Rules(ask)
        rooms = [r for r in self._rooms.all.values() if rules.admits(r)]
        return sorted(rooms, key=lambda r: (key not in r.held, not r.stored[key], not rules.fits(r), r.name))[:most]


def _most(model: Model, profile: Profile) -> int:
    """Replicas a profile may have."""
    return model.scaling.max if model.scaling else profile.replicas or 0


def _going(fleet: Fleet, weights: Artifacts, now: float) -> Iterator[Stock]:
    """What nothing in the fleet refers to any more: kept while there is room, and gone when its retention is over.

    On a filesystem that several share one of them removes it.
    """
    shared = sharing(node.seen for node in fleet.nodes.values())
    usable = {name for name, node in fleet.nodes.items() if node.standing is Standing.USABLE}
    for name in sorted(usable):
        for key in weights.kept.spare(v.key for v in fleet.nodes[name].seen.versions):
            if not weights.kept.over(key, now):
                yield Stock(name, key, "spare", "nothing refers to it, and it goes when its room is needed")
            elif name == next(n for n in shared.get(name, (name,)) if n in usable):
                yield Stock(name, key, "may_remove", weights.kept.why(key))
