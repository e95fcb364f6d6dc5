"""What is to be placed: one replica, what it asks of its node, and where it was put."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from llmgw.catalog.gpu import GpuNeed
from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.units import GIB, Span, show_gib, show_span
from llmgw_agent.protocol import Claim, split_id

RANK = {"guaranteed": 0, "standard": 1, "opportunistic": 2}
"""Whose needs are placed first."""


class Domain(NamedTuple):
    """One node, rack, row, room or site."""

    level: str
    at: tuple[str, ...]
    """The labels from the site down to it, or the node's name. Empty: no node says where it is."""

    @property
    def words(self) -> str:
        """How it is spoken of."""
        return f"{self.level} {'/'.join(part for part in self.at if part)}".strip()


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
    after: tuple[str, int, str] | None = None
    """What stops first, for this to start in its place: the id, generation and node of a replica. None: nothing."""
    attempt: int = 0
    avoid: tuple[str, ...] = ()
    """Nodes it failed on: tried last."""
    version: str = ""
    weights_bytes: int = 0
    waited_since: float = 0.0
    """Since when somebody waits for it, UTC seconds. 0: nobody does."""
    shunned: tuple[str, ...] = ()
    """Profiles (`model/profile`) that are never on one node with it."""
    fingerprint: str = ""
    """Of the last good form, which it comes back in. Empty: of the one that is wanted."""
    within: Domain | None = None
    """Where all of its profile's replicas are; None: anywhere."""

    @property
    def kind(self) -> tuple[str, str]:
        """Its model and profile."""
        return self.model.name, self.profile.name

    @property
    def rank(self) -> tuple[int, bool]:
        """Class first, then what nothing serves in place of. All of one rank are placed together."""
        return RANK[self.model.class_], self.replaces

    @property
    def order(self) -> tuple[float, str, int, str, int]:
        """Whose turn it is in one rank, where not all of it fits: who has been waited for longest, then by name."""
        _, profile, ordinal = split_id(self.id)
        return self.waited_since or math.inf, self.model.name, -self.profile.priority, profile, ordinal


class Spot(Struct, frozen=True):
    """Where a need was put."""

    node: str
    claim: Claim
    devices: tuple[str, ...]


class CardAsk(NamedTuple):
    """The cards one replica takes, all of one kind."""

    card_class: str | None
    """None: any, of which the other fields say enough."""
    number: int
    vendor: str | None = None
    name: str | None = None
    memory: Span | None = None
    compute_capability: Span | None = None
    slice: str | None = None

    @property
    def words(self) -> str:
        """How such a card is spoken of."""
        more = [word for word in (self.vendor, self.name, self.slice) if word]
        if self.memory:
            more.append("..".join("" if end is None else show_gib(int(end)) for end in self.memory) + " of memory")
        if self.compute_capability:
            more.append(f"compute capability {show_span(self.compute_capability)}")
        kind = self.card_class or "card"
        return f"{kind} ({', '.join(more)})" if more else kind


class Ask(NamedTuple):
    """Everything of a need that a rule reads. Two needs with one ask fit into the same rooms."""

    engine: str
    engine_version: str
    """Empty: any."""
    labels: tuple[tuple[str, str], ...]
    cards: CardAsk | None
    memory_bytes: int
    cpu_cores: int | None
    """None: half the node's."""
    path: str
    """Where weights are read in place. Empty: they are fetched."""
    version: str
    """Of what is fetched, where that takes room."""
    weights_bytes: int
    disk_bytes: int
    """What it writes besides."""
    shuns: tuple[str, ...]
    """Models, and profiles as `model/profile`, that it is on no node with."""

    within: Domain | None = None
    """The place it is kept within; None: anywhere."""

    def claim(self, node_cores: int) -> Claim:
        """What one replica takes of a node with so many cores."""
        cores = max(1, node_cores // 2) if self.cpu_cores is None else self.cpu_cores
        return Claim(self.memory_bytes, cores, self.cards.number if self.cards else 0)


def ask_of(
    model: Model,
    profile: Profile,
    *,
    version: str = "",
    weights_bytes: int = 0,
    shunned: tuple[str, ...] = (),
    within: Domain | None = None,
) -> Ask:
    """What one replica of a profile asks of its node.

    Args:
        model: the model.
        profile: one of its own.
        version: the key of its weights; empty: they are read in place.
        weights_bytes: what they take of a node's disk.
        shunned: profiles that are never on one node with it, as `shunners` says.
        within: the place it is kept within.
    """
    cards = _cards(profile.gpu) if profile.gpu else None
    return Ask(
        engine=profile.engine,
        engine_version=profile.engine_version or "",
        labels=tuple(sorted(profile.node_selector.items())),
        cards=cards,
        # Nothing takes nothing: how often it fits is asked by dividing.
        memory_bytes=max(1, round((profile.memory_gib or 0) * GIB)),
        # Beside a card a core is enough: the card does the work.
        cpu_cores=1 if profile.cpu_cores is None and cards else profile.cpu_cores,
        path=model.source.from_ if model.source.is_path else "",
        version=version if weights_bytes else "",
        weights_bytes=weights_bytes if version else 0,
        disk_bytes=profile.disk or 0,
        shuns=tuple(sorted({*profile.anti_affinity, *shunned})),
        within=within,
    )


def shunners(models: Iterable[Model]) -> dict[str, tuple[str, ...]]:
    """By model: the profiles whose `anti_affinity` names it. Who is shunned has to keep away as well."""
    found: dict[str, list[str]] = {}
    for model in models:
        for profile in model.profiles:
            for name in profile.anti_affinity:
                found.setdefault(name, []).append(f"{model.name}/{profile.name}")
    return {name: tuple(sorted(keys)) for name, keys in found.items()}


def _cards(gpu: GpuNeed) -> CardAsk:
    return CardAsk(gpu.class_, gpu.count, gpu.vendor, gpu.name, gpu.memory, gpu.compute_capability, gpu.slice)
