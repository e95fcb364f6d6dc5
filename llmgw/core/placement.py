"""Step 4 of a pass: a node for each replica that is missing, or why there is none.

A rule is a function that answers what keeps a need off a node: a sentence, or
None. The table of reasons a person reads is made of the same answers that
decided, so the two cannot differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.core.replicas import Fleet, Node, Replica, Standing
from llmgw.units import GIB, show_bytes, show_gib
from llmgw_agent.protocol import Card, Claim, Phase

CARD_IN_USE_SHARE = 0.1
"""A card of which others hold more than this share is not free: a desktop's few
hundred MiB are tolerated, another engine is not."""

NEAREST = 10
"""Nodes a reason names."""

RANK = {"guaranteed": 0, "standard": 1, "opportunistic": 2}
"""Whose needs are placed first."""


@dataclass(frozen=True, slots=True)
class Need:
    """One replica that should run and does not."""

    model: Model
    profile: Profile
    id: str
    generation: int
    why: str
    replaces: bool = False
    """Whether something serves in its place until it is there."""
    attempt: int = 0
    avoid: tuple[str, ...] = ()
    """Nodes it failed on: tried last."""
    version: str = ""
    weights_bytes: int = 0

    @property
    def order(self) -> tuple[int, bool, str, int, str]:
        """Class first, then what nothing serves in place of; ties by name."""
        return RANK[self.model.class_], self.replaces, self.model.name, -self.profile.priority, self.id


class Spot(Struct, frozen=True):
    """Where a need was put."""

    node: str
    claim: Claim
    devices: tuple[str, ...]


class Reason(Struct, frozen=True, order=True):
    """One rule that kept nodes out."""

    rule: str
    nodes: int
    nearest: tuple[tuple[str, str], ...]
    """(node, what is missing there), the least first, at most ten."""


class Unplaced(Struct, frozen=True):
    """Why no node was found."""

    reasons: tuple[Reason, ...]

    @property
    def nearest(self) -> str:
        """What is missing on the nearest node of each rule."""
        parts = []
        for reason in self.reasons:
            node, missing = reason.nearest[0]
            parts.append(f"{node}: {missing}" + (f", and {reason.nodes - 1} more" if reason.nodes > 1 else ""))
        return "; ".join(parts) or "server.yaml lists no nodes"


@dataclass(slots=True)
class Room:
    """What is left on one node while needs are placed on it."""

    node: Node
    memory_bytes: int
    cpu_cores: int
    cards: list[Card] = field(default_factory=list)
    """Free ones, in the driver's order."""
    models: Counter[str] = field(default_factory=Counter)
    """Replicas by model."""
    held: frozenset[str] = frozenset()
    """Versions that are there, by key."""

    def take(self, model: str, claim: Claim, devices: Iterable[str]) -> None:
        """Reserve what a replica claims."""
        self.memory_bytes -= claim.memory_bytes
        self.cpu_cores -= claim.cpu_cores
        taken = set(devices)
        self.cards = [c for c in self.cards if c.uuid not in taken]
        self.models[model] += 1


def rooms(fleet: Fleet, *, without: Container[tuple[str, int, str]] = ()) -> dict[str, Room]:
    """What is left on each node that can be used, with everything that runs left where it is.

    Args:
        fleet: the settled fleet.
        without: keys of replicas to imagine gone.
    """
    running: dict[str, list[Replica]] = defaultdict(list)
    for replicas in fleet.replicas.values():
        for replica in replicas:
            # What failed has ended and holds nothing; what is leaving holds all of it until it is gone.
            if replica.phase is not Phase.FAILED and replica.key not in without:
                running[replica.node].append(replica)
    return {name: _room(node, running[name]) for name, node in fleet.nodes.items() if node.seen.inventory}


def _room(node: Node, running: Iterable[Replica]) -> Room:
    has = node.seen.inventory
    assert has is not None, "only nodes with an inventory have room"
    room = Room(
        node,
        memory_bytes=has.memory_bytes - (has.memory_used_by_others_bytes or 0),
        cpu_cores=has.cpu_cores,
        cards=[c for c in has.cards if _idle(c)],
        held=frozenset(v.key for v in node.seen.versions if v.state == "held"),
    )
    for replica in running:
        room.take(replica.model, replica.claim, replica.devices)
    return room


def _idle(card: Card) -> bool:
    return (card.used_by_others_bytes or 0) <= card.memory_bytes * CARD_IN_USE_SHARE


def claim_of(profile: Profile, node_cores: int) -> Claim:
    """What one replica takes of a node with so many cores: half of them where the profile does not say."""
    by_default = 1 if profile.gpu else max(1, node_cores // 2)
    cores = by_default if profile.cpu_cores is None else profile.cpu_cores
    return Claim(round(profile.memory_gib * GIB), cores, profile.gpu.count if profile.gpu else 0)


class Missing(NamedTuple):
    """What keeps a need off a node."""

    amount: float
    """How much of it, in the rule's own unit, so that the nearest node can be named first."""
    text: str


Rule = Callable[[Need, Node, Room | None], Missing | None]
"""What keeps a need off a node, or None."""


def _reports(_need: Need, node: Node, room: Room | None) -> Missing | None:
    if node.standing is not Standing.USABLE:
        return Missing(0, f"it is {node.standing}")
    return None if room else Missing(0, "it has not said what it has")


def _not_drained(_need: Need, node: Node, _room: Room | None) -> Missing | None:
    return Missing(0, "it is drained") if node.entry.drained else None


def _labels(need: Need, node: Node, _room: Room | None) -> Missing | None:
    has = node.entry.labels
    missing = [f"{k}={v}" for k, v in sorted(need.profile.node_selector.items()) if has.get(k) != v]
    return Missing(len(missing), f"it has no label {', '.join(missing)}") if missing else None


def _engine(need: Need, node: Node, _room: Room | None) -> Missing | None:
    inventory = node.seen.inventory
    engines = inventory.engines if inventory else None
    if engines is None:
        return None  # an older agent that does not say; it will answer for itself
    named = [e for e in engines if e.name == need.profile.engine]
    if not named:
        return Missing(0, f"it reports no {need.profile.engine}")
    if need.profile.gpu is None:
        return None
    cards = inventory.cards if inventory else ()
    vendors = {c.vendor for c in cards if c.card_class == need.profile.gpu.class_}
    if any(e.accelerators is None or vendors & set(e.accelerators) for e in named if e.build != "embedded"):
        return None
    return Missing(0, f"its {need.profile.engine} is for CPUs") if vendors else None


def _cards(need: Need, _node: Node, room: Room | None) -> Missing | None:
    if need.profile.gpu is None or room is None:
        return None
    free = len(_free_cards(need, room))
    inventory = room.node.seen.inventory
    of_class = [c for c in (inventory.cards if inventory else ()) if c.card_class == need.profile.gpu.class_]
    if free >= need.profile.gpu.count:
        return None
    if not of_class:
        return Missing(need.profile.gpu.count, f"it has no {need.profile.gpu.class_}")
    foreign = [c for c in of_class if not _idle(c)]
    held = f", {show_gib(foreign[0].used_by_others_bytes or 0)} of {foreign[0].uuid} held by others" if foreign else ""
    short = need.profile.gpu.count - free
    return Missing(short, f"{short} {need.profile.gpu.class_} short of {need.profile.gpu.count}{held}")


def _free_cards(need: Need, room: Room) -> list[Card]:
    gpu = need.profile.gpu
    return [c for c in room.cards if gpu and c.card_class == gpu.class_]


def _memory(need: Need, _node: Node, room: Room | None) -> Missing | None:
    if room is None:
        return None
    short = claim_of(need.profile, 1).memory_bytes - room.memory_bytes
    return Missing(short, f"{show_gib(short)} of memory short") if short > 0 else None


def _cores(need: Need, _node: Node, room: Room | None) -> Missing | None:
    inventory = room.node.seen.inventory if room else None
    if room is None or inventory is None:
        return None
    short = claim_of(need.profile, inventory.cpu_cores).cpu_cores - room.cpu_cores
    return Missing(short, f"{short} CPU cores short") if short > 0 else None


def _disk(need: Need, _node: Node, room: Room | None) -> Missing | None:
    inventory = room.node.seen.inventory if room else None
    if room is None or inventory is None or inventory.disk_free_bytes is None:
        return None
    if not need.version or need.version in room.held:
        return None
    short = need.weights_bytes - inventory.disk_free_bytes
    return Missing(short, f"{show_bytes(short)} of disk short for the weights") if short > 0 else None


def _path(need: Need, node: Node, _room: Room | None) -> Missing | None:
    source, inventory = need.model.source, node.seen.inventory
    if not source.is_path or inventory is None:
        return None
    for allowed in inventory.allow:
        kind, _, prefix = allowed.partition(":")
        if kind == "path" and (source.from_ == prefix or source.from_.startswith(prefix.rstrip("/") + "/")):
            return None
    return Missing(0, f"its agent does not allow path:{source.from_}")


RULES: tuple[tuple[str, Rule], ...] = (
    ("reports", _reports),
    ("not drained", _not_drained),
    ("labels", _labels),
    ("engine", _engine),
    ("weights", _path),
    ("cards", _cards),
    ("memory", _memory),
    ("cores", _cores),
    ("disk", _disk),
)
"""In this order; a node is counted under the first that keeps the need off it."""


def place(needs: Sequence[Need], fleet: Fleet) -> dict[str, Spot | Unplaced]:
    """A spot for each need, by its id, or why there is none.

    Nothing that runs is moved. Each need takes its room before the next is looked at.
    """
    if not needs:
        return {}
    left = rooms(fleet)
    placed: dict[str, Spot | Unplaced] = {}
    for need in sorted(needs, key=lambda n: n.order):
        spot = _best(need, fleet.nodes, left)
        placed[need.id] = spot
        if isinstance(spot, Spot):
            left[spot.node].take(need.model.name, spot.claim, spot.devices)
    return placed


def fits_without(need: Need, fleet: Fleet, gone: Container[tuple[str, int, str]]) -> bool:
    """Whether the need would find a node, were some replicas gone."""
    return isinstance(_best(need, fleet.nodes, rooms(fleet, without=gone)), Spot)


def _best(need: Need, nodes: Mapping[str, Node], left: Mapping[str, Room]) -> Spot | Unplaced:
    against: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    possible: list[Room] = []
    for name, node in nodes.items():
        room = left.get(name)
        obstacle = _obstacle(need, node, room)
        if obstacle is None and room is not None:
            possible.append(room)
        elif obstacle is not None:
            rule, missing = obstacle
            against[rule].append((missing.amount, name, missing.text))
    if not possible:
        return Unplaced(tuple(_reason(rule, against[rule]) for rule, _ in RULES if rule in against))
    room = min(possible, key=lambda r: _preference(need, r))
    claim = _claim_on(need, room)
    devices = tuple(c.uuid for c in _free_cards(need, room)[: claim.cards])
    return Spot(room.node.name, claim, devices)


def _reason(rule: str, rows: list[tuple[float, str, str]]) -> Reason:
    nearest = tuple((node, text) for _, node, text in sorted(rows)[:NEAREST])
    return Reason(rule, len(rows), nearest)


def _obstacle(need: Need, node: Node, room: Room | None) -> tuple[str, Missing] | None:
    for name, rule in RULES:
        if missing := rule(need, node, room):
            return name, missing
    return None


def _preference(need: Need, room: Room) -> tuple[bool, int, bool, int, str]:
    """Least is best.

    Where it has not failed, then apart from its like, then where its weights are,
    then where it leaves the least over.
    """
    return (
        room.node.name in need.avoid,
        room.models[need.model.name],
        bool(need.version) and need.version not in room.held,
        room.memory_bytes - _claim_on(need, room).memory_bytes,
        room.node.name,
    )


def _claim_on(need: Need, room: Room) -> Claim:
    inventory = room.node.seen.inventory
    return claim_of(need.profile, inventory.cpu_cores if inventory else 1)
