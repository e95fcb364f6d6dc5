"""What is to be placed: one replica, what it asks of its node, and where it was put."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from llmgw.catalog.gpu import GpuNeed
from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.units import GIB
from llmgw_agent.protocol import Claim, split_id

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
    def rank(self) -> tuple[int, bool]:
        """Class first, then what nothing serves in place of. All of one rank are placed together."""
        return RANK[self.model.class_], self.replaces

    @property
    def order(self) -> tuple[str, int, str, int]:
        """Whose turn it is in one rank, where not all of it fits."""
        _, profile, ordinal = split_id(self.id)
        return self.model.name, -self.profile.priority, profile, ordinal


class Spot(Struct, frozen=True):
    """Where a need was put."""

    node: str
    claim: Claim
    devices: tuple[str, ...]


class CardAsk(NamedTuple):
    """The cards one replica takes, all of one kind."""

    card_class: str
    number: int

    @property
    def words(self) -> str:
        """How such a card is spoken of."""
        return self.card_class


class Ask(NamedTuple):
    """Everything of a need that a rule reads. Two needs with one ask fit into the same rooms."""

    engine: str
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

    def claim(self, node_cores: int) -> Claim:
        """What one replica takes of a node with so many cores."""
        cores = max(1, node_cores // 2) if self.cpu_cores is None else self.cpu_cores
        return Claim(self.memory_bytes, cores, self.cards.number if self.cards else 0)


def ask_of(model: Model, profile: Profile, *, version: str = "", weights_bytes: int = 0) -> Ask:
    """What one replica of a profile asks of its node.

    Args:
        model: the model.
        profile: one of its own.
        version: the key of its weights; empty: they are read in place.
        weights_bytes: what they take of a node's disk.
    """
    cards = _cards(profile.gpu) if profile.gpu else None
    return Ask(
        engine=profile.engine,
        labels=tuple(sorted(profile.node_selector.items())),
        cards=cards,
        memory_bytes=round(profile.memory_gib * GIB),
        # Beside a card a core is enough: the card does the work.
        cpu_cores=1 if profile.cpu_cores is None and cards else profile.cpu_cores,
        path=model.source.from_ if model.source.is_path else "",
        version=version if weights_bytes else "",
        weights_bytes=weights_bytes if version else 0,
    )


def _cards(gpu: GpuNeed) -> CardAsk:
    return CardAsk(gpu.class_, gpu.count)
