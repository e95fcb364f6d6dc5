"""The fleet as planning sees it: each machine that can be used, with what is free of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from llmgw.core.cards import CardKind, kind_of
from llmgw.core.replicas import Fleet, Standing
from llmgw.core.rooms import Rooms
from llmgw.planning.cards import Card, find
from llmgw.planning.machines import Cards, EngineHere, Machine
from llmgw_agent.protocol import Inventory


def machines(fleet: Fleet, classes: Mapping[str, str] = MappingProxyType({})) -> tuple[Machine, ...]:
    """Every machine that says what it has and may be given something, by name.

    Args:
        fleet: the settled fleet.
        classes: what profiles call each class of cards, by the word nodes report for it. Where there are any, a
            profile may ask for no other. Empty: they are called as nodes report them.
    """
    found = []
    for name, room in sorted(Rooms(fleet).all.items()):
        has = fleet.nodes[name].seen.inventory
        if has is None or room.traits.standing is not Standing.USABLE or room.traits.drained:
            continue
        whole = Counter(kind for kind, _ in room.order.values())
        cards = tuple(
            Cards(called, card_of(kind), count, len(room.free[kind]))
            for kind, count in sorted(whole.items())
            if (called := classes.get(kind.card_class, "" if classes else kind.card_class)) and not kind.slice
        )
        found.append(replace(machine_of(name, has), free_bytes=max(room.memory_bytes, 0), cards=cards))
    return tuple(found)


def machine_of(name: str, has: Inventory) -> Machine:
    """A machine on which nothing of ours runs.

    Args:
        name: of the node.
        has: what it reports.
    """
    kinds = Counter(kind_of(card) for card in has.cards if not card.slice and not card.errors)
    memory = max(has.memory_bytes - (has.memory_used_by_others_bytes or 0), 0)
    engines = None
    if has.engines is not None:
        engines = tuple(EngineHere(e.name, e.accelerators, e.build == "embedded") for e in has.engines)
    return Machine(
        name=name,
        memory_bytes=memory,
        free_bytes=memory,
        cores=has.cpu_cores,
        cards=tuple(Cards(kind.card_class, card_of(kind), n, n) for kind, n in sorted(kinds.items())),
        engines=engines,
        memory_gbs=has.memory_gbs,
        core_gbs=has.memory_core_gbs,
        disk_gbs=has.disk_gbs,
        mirror_gbs=has.fetch_gbs,
    )


def card_of(kind: CardKind) -> Card:
    """A kind of card as the table knows it, with what its driver says, which is nearer to the truth."""
    said = kind.compute_capability
    capability = float(said) if said.replace(".", "", 1).isdigit() else None
    known = find(kind.name, kind.memory_bytes)
    if known is None:
        return Card(kind.vendor, kind.name, kind.memory_bytes, 0.0, capability, "", bf16=True, shared=False)
    return replace(known, memory_bytes=kind.memory_bytes, capability=capability or known.capability)
