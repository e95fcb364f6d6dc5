"""Cards as placement sees them: which are as good as each other, which may be used, and which are asked for."""

from __future__ import annotations

from typing import NamedTuple

from llmgw.core.needs import Ask
from llmgw.units import Span, show_gib
from llmgw_agent.protocol import Card, ForeignProcess

CARD_IN_USE_SHARE = 0.1
"""A card of which others hold more than this share is not free: a desktop's few
hundred MiB are tolerated, another engine is not."""


class CardKind(NamedTuple):
    """What makes two cards as good as each other."""

    card_class: str
    vendor: str
    name: str
    memory_bytes: int
    compute_capability: str
    slice: str


def kind_of(card: Card) -> CardKind:
    """What it has in common with those as good as it."""
    return CardKind(card.card_class, card.vendor, card.name, card.memory_bytes, card.compute_capability, card.slice)


def usable(
    cards: tuple[Card, ...], out: frozenset[str], problem: str
) -> tuple[dict[str, tuple[CardKind, int]], dict[CardKind, list[str]], tuple[str, ...]]:
    """The usable ones with their order, the free ones by kind, and what keeps the rest from being used.

    While the driver does not answer none is usable: what is known of them is how they were before.
    """
    if problem:
        return {}, {}, (problem,)
    order: dict[str, tuple[CardKind, int]] = {}
    free: dict[CardKind, list[str]] = {}
    unusable = []
    cut = {c.parent for c in cards if c.parent}
    for place, card in enumerate(cards):
        if card.uuid in cut or card.uuid in order:
            continue  # its slices are cards of their own; one that is told twice is one
        if why := f"{card.uuid} is taken out" if {card.uuid, card.parent} & out else _fault(card):
            unusable.append(why)
            continue
        kind = kind_of(card)
        order[card.uuid] = (kind, place)
        free.setdefault(kind, []).append(card.uuid)
    return order, free, tuple(unusable)


def _fault(card: Card) -> str:
    """Why nothing new is put on a card, or empty."""
    if card.errors:
        return f"{card.uuid} is not well ({', '.join(card.errors)})"
    others = card.used_by_others_bytes or 0
    if others > card.memory_bytes * CARD_IN_USE_SHARE:
        return f"{show_gib(others)} of {card.uuid} held by {' and '.join(map(named, card.processes[:2])) or 'others'}"
    return ""


def named(process: ForeignProcess) -> str:
    """How a program is spoken of that holds something."""
    return f"{process.name or 'a program'} (pid {process.pid})"


def suits(ask: Ask, kind: CardKind) -> bool:
    """Whether a card is one of those that are asked for."""
    card = ask.cards
    if card is None or kind.slice != (card.slice or ""):
        return False
    return (
        card.card_class in (None, kind.card_class)
        and card.vendor in (None, kind.vendor)
        and (card.name or "").lower() in kind.name.lower()
        and (card.memory is None or card.memory.holds(kind.memory_bytes))
        and (card.compute_capability is None or _can(kind.compute_capability, card.compute_capability))
    )


def _can(capability: str, asked: Span) -> bool:
    """Whether a card can do what is asked. One whose driver does not say is not excluded."""
    try:
        return asked.holds(float(capability))
    except ValueError:
        return True
