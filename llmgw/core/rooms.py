"""What is left on each node, while needs are placed on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from llmgw.core.cards import CardKind, kind_of, named, suits, usable
from llmgw.core.filesystems import sharing
from llmgw.core.needs import Ask, Need, Spot
from llmgw.core.replicas import Fleet, Node, Replica, Standing
from llmgw.units import GIB, show_gib
from llmgw_agent.protocol import Claim, InstalledEngine, Phase

DISK_RESERVE_BYTES = GIB
"""What fetching never takes of a node's disk: logs and the system go on writing."""

DOMAINS = ("site", "room", "row", "rack")
"""Labels that say what a node shares its fate with, from the largest to the smallest."""

Key = tuple[str, int, str]


Profiled = tuple[str, str]
"""A model and its profile, by name."""


class Disk(NamedTuple):
    """What a replica takes of its node's disk."""

    version: str = ""
    """Of its weights, which are there once for all that run them. Empty: they are read in place."""
    weights_bytes: int = 0
    bytes: int = 0
    """What it writes besides."""


NO_DISK = Disk()


class Traits(NamedTuple):
    """What of a node does not change while needs are placed: nodes with the same are asked once."""

    standing: Standing
    known: bool
    """Whether it has said what it has."""
    drained: bool
    labels: frozenset[tuple[str, str]]
    engines: tuple[InstalledEngine, ...] | None
    allow: tuple[str, ...]
    kinds: frozenset[CardKind]
    """Of every card, free or not."""


@dataclass(slots=True)
class Room:
    """What is left on one node."""

    name: str
    traits: Traits
    alike: int
    """A number for its traits, since comparing those costs more than all the rest."""
    domain: tuple[str, ...]
    """Its site, room, row and rack."""
    cores: int
    """All of the node's."""
    memory_bytes: int
    cpu_cores: int
    disk_bytes: int | None
    """None: the node does not say."""
    free: dict[CardKind, list[str]]
    """Cards nothing runs on, by kind, in the driver's order."""
    held: frozenset[str]
    """Versions that are there whole, by key."""
    stored: Counter[str]
    """Versions whose bytes have their place: held, arriving, or to be fetched for what was placed."""
    models: Counter[str] = field(default_factory=Counter)
    """Replicas by model, and by `model/profile`."""
    unusable: tuple[str, ...] = ()
    """Cards that nothing new is put on, and why, in words."""
    holders: str = ""
    """Who else holds most of its memory, and how much: words. Empty: nobody that is known."""
    order: dict[str, tuple[CardKind, int]] = field(default_factory=dict)
    """Of every usable card: its kind, and its place in the driver's order."""
    left: float = 0.0
    """All that is left as one number, what is scarce counting most: the least is the fullest."""

    def take(self, of: Profiled, claim: Claim, devices: Collection[str], disk: Disk = NO_DISK) -> None:
        """Reserve what a replica claims."""
        self.memory_bytes -= claim.memory_bytes
        self.cpu_cores -= claim.cpu_cores
        self.models[of[0]] += 1
        self.models["/".join(of)] += 1
        for uuid in devices:
            kind, _ = self.order.get(uuid, (None, 0))
            if kind is not None and uuid in self.free[kind]:
                self.free[kind].remove(uuid)
        self.store(disk)

    def store(self, disk: Disk) -> None:
        """Reserve what is written to its disk."""
        new = bool(disk.version) and not self.stored[disk.version]
        if disk.version:
            self.stored[disk.version] += 1
        if self.disk_bytes is not None:
            self.disk_bytes -= disk.bytes + disk.weights_bytes * new

    def give(self, of: Profiled, claim: Claim, devices: Collection[str], disk: Disk = NO_DISK) -> None:
        """Undo what `take` did."""
        self.memory_bytes += claim.memory_bytes
        self.cpu_cores += claim.cpu_cores
        self.models[of[0]] -= 1
        self.models["/".join(of)] -= 1
        for uuid in devices:
            kind, _ = self.order.get(uuid, (None, 0))
            if kind is not None and uuid not in self.free[kind]:
                self.free[kind].append(uuid)
                self.free[kind].sort(key=lambda u: self.order[u][1])
        self.free_up(disk)

    def free_up(self, disk: Disk) -> None:
        """Undo what `store` did."""
        if disk.version:
            self.stored[disk.version] -= 1
        last = bool(disk.version) and not self.stored[disk.version]
        if self.disk_bytes is not None:
            self.disk_bytes += disk.bytes + disk.weights_bytes * last

    def copy(self) -> Room:
        """One that can be changed without changing this one."""
        return Room(
            self.name,
            self.traits,
            self.alike,
            self.domain,
            self.cores,
            self.memory_bytes,
            self.cpu_cores,
            self.disk_bytes,
            {kind: list(uuids) for kind, uuids in self.free.items()},
            self.held,
            self.stored.copy(),
            self.models.copy(),
            self.unusable,
            self.holders,
            self.order,
        )

    @property
    def cards(self) -> int:
        """Free ones."""
        return sum(map(len, self.free.values()))

    def state(self) -> tuple[object, ...]:
        """Two rooms with the same are as good as each other, but for their names."""
        return (
            self.alike,
            self.domain,
            self.memory_bytes,
            self.cpu_cores,
            -1 if self.disk_bytes is None else self.disk_bytes,
            tuple(sorted((kind, len(uuids)) for kind, uuids in self.free.items())),
            tuple(sorted(v for v, n in self.stored.items() if n)),
            tuple(sorted(m for m, n in self.models.items() if n)),
        )


class Rooms:
    """The rooms of a fleet, with everything that runs left where it is."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        sizes: Mapping[str, int] | None = None,
        suspects: Collection[str] = (),
        spare: Collection[str] = (),
    ) -> None:
        """Look at what is left.

        Args:
            fleet: the settled fleet.
            sizes: bytes of each version, by key.
            suspects: nodes to be tried last.
            spare: versions that go where their room is needed, by key.
        """
        self.suspects = suspects
        self.homes: dict[str, Counter[str]] = defaultdict(Counter)
        """How many of a model are where: by model, then by node."""
        self.holders: dict[str, list[str]] = defaultdict(list)
        """Nodes that have a version whole, by its key."""
        self.touched: list[Room] = []
        """Each room that was taken from or given back to, in order: what an index of rooms follows."""
        self._sizes = sizes or {}
        self._weights = (1.0, 0.0, 0.0)
        self._running: dict[Key, Replica] = {}
        on: dict[str, list[Replica]] = defaultdict(list)
        for replicas in fleet.replicas.values():
            for replica in replicas:
                # What failed has ended and holds nothing; what is leaving holds all of it until it is gone.
                if replica.phase is not Phase.FAILED:
                    on[replica.node].append(replica)
                    self._running[replica.key] = replica
                    self.homes[replica.model][replica.node] += 1
        alike: dict[Traits, int] = {}
        self.all = {name: _room(node, alike, spare) for name, node in fleet.nodes.items()}
        self._sharing = self._share(fleet)
        self.levels = tuple(
            n for n in range(len(DOMAINS), 0, -1) if any(room.domain[n - 1] for room in self.all.values())
        )
        """How much of a domain tells a rack, a row, a room and a site apart, of those that are in use."""
        for name, room in self.all.items():
            for version in room.held:
                self.holders[version].append(name)
            for replica in on[name]:
                self._charge(room, replica)

    def weigh(self, asks: Iterable[Ask]) -> tuple[float, float, float]:
        """Let what these asks take most of what is left of count most in how full a room is.

        Returns:
            What a byte of memory, a core and a card count.
        """
        usable = [r for r in self.all.values() if r.traits.standing is Standing.USABLE]
        claims = [a.claim(0) for a in asks]
        asked = (sum(c.memory_bytes for c in claims), sum(c.cpu_cores for c in claims), sum(c.cards for c in claims))
        left = (
            sum(max(0, r.memory_bytes) for r in usable),
            sum(max(0, r.cpu_cores) for r in usable),
            sum(r.cards for r in usable),
        )
        memory, cores, cards = (a * len(usable) / has**2 if has else 0.0 for a, has in zip(asked, left, strict=True))
        self._weights = memory, cores, cards
        for room in self.all.values():
            self._measure(room)
        return self._weights

    def _share(self, fleet: Fleet) -> dict[str, tuple[Room, ...]]:
        """By node: the others on whose disk its weights are as well. What one of them has is there for all."""
        found = {}
        for name, group in sharing(node.seen for node in fleet.nodes.values()).items():
            rooms = [self.all[n] for n in group]
            stored = Counter(set[str]().union(*(r.stored for r in rooms)))
            least = min((r.disk_bytes for r in rooms if r.disk_bytes is not None), default=None)
            for room in rooms:
                room.stored, room.disk_bytes = stored.copy(), least
            found[name] = tuple(r for r in rooms if r.name != name)
        return found

    def store(self, node: str, disk: Disk) -> None:
        """Reserve what is written to the disk of one node, and of all that share it."""
        for room in (self.all[node], *self._sharing.get(node, ())):
            room.store(disk)
            self.touched.append(room)

    def take(self, need: Need, spot: Spot) -> None:
        """Reserve a spot for a need."""
        room = self.all[spot.node]
        room.take((need.model.name, need.profile.name), spot.claim, spot.devices, _disk(need))
        for other in self._sharing.get(spot.node, ()):
            other.store(_disk(need))
            self.touched.append(other)
        self.homes[need.model.name][room.name] += 1
        self._measure(room)
        self.touched.append(room)

    def give(self, need: Need, spot: Spot) -> None:
        """Undo what `take` did."""
        room = self.all[spot.node]
        room.give((need.model.name, need.profile.name), spot.claim, spot.devices, _disk(need))
        for other in self._sharing.get(spot.node, ()):
            other.free_up(_disk(need))
            self.touched.append(other)
        self.homes[need.model.name][room.name] -= 1
        self._measure(room)
        self.touched.append(room)

    def clear(self, replica: Replica) -> None:
        """Take a running replica for gone: its room may be given to another."""
        room = self.all[replica.node]
        room.give((replica.model, replica.profile), replica.claim, replica.devices)
        self.homes[replica.model][replica.node] -= 1
        del self._running[replica.key]
        self._measure(room)
        self.touched.append(room)

    def without(self, gone: Iterable[Key]) -> list[Room]:
        """The rooms that would be larger were some running replicas gone, as they would be then."""
        changed: dict[str, Room] = {}
        for key in gone:
            replica = self._running.get(key)
            if replica is not None and replica.node in self.all:
                room = changed.setdefault(replica.node, self.all[replica.node].copy())
                room.give((replica.model, replica.profile), replica.claim, replica.devices)
        return list(changed.values())

    def _measure(self, room: Room) -> None:
        memory, cores, cards = self._weights
        room.left = memory * room.memory_bytes + cores * room.cpu_cores + cards * room.cards

    def _charge(self, room: Room, replica: Replica) -> None:
        disk = Disk(replica.version, self._sizes.get(replica.version, 0))
        room.take((replica.model, replica.profile), replica.claim, replica.devices, disk)
        for other in self._sharing.get(replica.node, ()):
            other.store(disk)
        # An agent that does not say which cards: the last ones, since the first are given first.
        left = replica.claim.cards - len(replica.devices)
        # A node may claim more cards than there are: then none is left.
        for uuids in room.free.values():
            while uuids and left > 0:
                uuids.pop()
                left -= 1


def _disk(need: Need) -> Disk:
    return Disk(need.version, need.weights_bytes, need.profile.disk or 0)


def _room(node: Node, alike: dict[Traits, int], spare: Collection[str]) -> Room:
    has, entry = node.seen.inventory, node.entry
    cards = has.cards if has else ()
    order, free, unusable = usable(cards, frozenset(entry.cards_out), has.card_problem if has else "")
    held = frozenset(v.key for v in node.seen.versions if v.state == "held")
    arriving = {v.key: max(0, (v.total_bytes or 0) - v.bytes) for v in node.seen.versions if v.state == "arriving"}
    disk = has.disk_free_bytes if has else None
    if disk is not None and spare:
        disk += sum(v.bytes for v in node.seen.versions if v.key in spare and v.state == "held")
    traits = Traits(
        node.standing,
        has is not None,
        entry.drained,
        frozenset(entry.labels.items()),
        has.engines if has else None,
        has.allow if has else (),
        frozenset(map(kind_of, cards)),
    )
    return Room(
        node.name,
        traits,
        alike.setdefault(traits, len(alike)),
        tuple(entry.labels.get(level, "") for level in DOMAINS),
        cores=has.cpu_cores if has else 0,
        memory_bytes=has.memory_bytes - (has.memory_used_by_others_bytes or 0) if has else 0,
        cpu_cores=has.cpu_cores if has else 0,
        disk_bytes=None if disk is None else disk - DISK_RESERVE_BYTES - sum(arriving.values()),
        free=free,
        held=held,
        stored=Counter({*held, *arriving}),
        unusable=unusable,
        order=order,
        holders=" and ".join(f"{show_gib(p.bytes)} held by {named(p)}" for p in has.processes[:2]) if has else "",
    )


def domain_of(room: Room, level: str) -> tuple[str, ...]:
    """Which node, rack, row, room or site a room is in. Empty: its node has no label that says."""
    if level == "node":
        return (room.name,)
    at = room.domain[: DOMAINS.index(level) + 1]
    return at if at[-1] else ()


def spots_in(ask: Ask, room: Room) -> list[Spot]:
    """What of a room an ask that fits may take: the smallest cards that do first, and of those the rarest there."""
    claim = ask.claim(room.cores)
    if ask.cards is None:
        return [Spot(room.name, claim, ())]
    kinds = [k for k, uuids in room.free.items() if len(uuids) >= claim.cards and suits(ask, k)]
    kinds.sort(key=lambda k: (k.memory_bytes, len(room.free[k]), k))
    return [Spot(room.name, claim, tuple(room.free[k][: claim.cards])) for k in kinds]
