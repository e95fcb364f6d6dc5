"""What a course takes of cards, memory and disks: before, at its fullest, and in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from llmgw.core.actions import Start
from llmgw.core.learning import Foretold
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.simulate import Course
from llmgw_agent.protocol import Phase, ReplicaReport, split_id

_GONE = (Phase.FAILED, Phase.STOPPED)
"""Phases in which a replica holds nothing. One that is leaving holds all of it until it is gone."""


class CardUse(Struct, frozen=True, order=True):
    """How many cards of one class engines have."""

    card_class: str
    total: int
    before: int
    peak: int
    """While what starts and what stops overlap."""
    after: int


class MemoryUse(Struct, frozen=True, order=True):
    """What is left of one node's memory, in bytes."""

    node: str
    total: int
    """That engines may have: less what others hold."""
    before: int
    least: int
    after: int


class CardFit(Struct, frozen=True):
    """One card that a replica is put on."""

    card: str
    """Its uuid."""
    card_class: str
    free_bytes: int
    """Its memory, less what others hold."""
    needs_bytes: int | None = None
    """What is worked out to be taken of it. None: nothing could be."""


class Fit(Struct, frozen=True):
    """One replica that starts, against what is free where it goes."""

    id: str
    node: str
    claim_bytes: int
    """Of the node's memory."""
    free_bytes: int
    """Of the node's memory, when it starts."""
    cards: tuple[CardFit, ...] = ()


def card_uses(course: Course) -> tuple[CardUse, ...]:
    """Of every class that a course takes from or gives back to, by name."""
    total: Counter[str] = Counter()
    for node in course.end.nodes:
        total.update(card.card_class for card in (node.inventory.cards if node.inventory else ()))
    worlds = [_cards(_living(step.after)) for step in course.steps]
    before = _cards(_living(course.steps[0].before if course.steps else course.end))
    after = _cards(_living(course.end))
    found = []
    for name in sorted(total):
        fullest = max((world[name] for world in worlds), default=0)
        use = CardUse(name, total[name], before[name], max(fullest, before[name], after[name]), after[name])
        if not use.before == use.peak == use.after:
            found.append(use)
    return tuple(found)


def memory_uses(course: Course) -> tuple[MemoryUse, ...]:
    """Of every node that a course takes from or gives back to, by name."""
    touched = {a.node for step in course.steps for a in step.actions if hasattr(a, "node")}
    if not touched:
        return ()
    before = _memory(_living(course.steps[0].before))
    worlds = [_memory(_living(step.after)) for step in course.steps]
    after = _memory(_living(course.end))
    found = []
    for node in course.end.nodes:
        if node.name not in touched or node.inventory is None:
            continue
        name, total = node.name, _usable(node)
        most = max(world[name] for world in worlds)
        found.append(MemoryUse(name, total, total - before[name], total - most, total - after[name]))
    return tuple(found)


def fits(course: Course) -> dict[str, list[Fit]]:
    """Each replica that starts, beside what is free where it goes; by model."""
    found: dict[str, list[Fit]] = {}
    for step in course.steps:
        held = _memory(_living(step.before))
        nodes = {node.name: (node, {r.id: r for r in node.replicas}) for node in step.after.nodes}
        for start in step.actions:
            if not isinstance(start, Start) or start.node not in nodes:
                continue
            node, replicas = nodes[start.node]
            report = replicas.get(start.id)
            if node.inventory is None or report is None or report.claim is None:
                continue
            fit = Fit(
                start.id, node.name, report.claim.memory_bytes, _usable(node) - held[node.name], _cards_of(node, report)
            )
            found.setdefault(split_id(start.id)[0], []).append(fit)
    return found


def needing(of: Iterable[Fit], estimates: Iterable[Foretold]) -> Iterator[Fit]:
    """With what is worked out to be taken of each card: the cards of one replica share it."""
    needs = {e.profile: e.card_bytes for e in estimates}
    for fit in of:
        need = needs.get(split_id(fit.id)[1])
        if need is None or not fit.cards:
            yield fit
        else:
            cards = (structs.replace(card, needs_bytes=need // len(fit.cards)) for card in fit.cards)
            yield structs.replace(fit, cards=tuple(cards))


def _cards_of(node: NodeSeen, report: ReplicaReport) -> tuple[CardFit, ...]:
    cards = {card.uuid: card for card in (node.inventory.cards if node.inventory else ())}
    mine = (cards[uuid] for uuid in report.devices if uuid in cards)
    return tuple(CardFit(c.uuid, c.card_class, c.memory_bytes - (c.used_by_others_bytes or 0)) for c in mine)


def _usable(node: NodeSeen) -> int:
    has = node.inventory
    return has.memory_bytes - (has.memory_used_by_others_bytes or 0) if has else 0


def _living(seen: Observed) -> list[tuple[NodeSeen, list[ReplicaReport]]]:
    return [(node, [r for r in node.replicas if r.phase not in _GONE]) for node in seen.nodes]


def _cards(on: Iterable[tuple[NodeSeen, Iterable[ReplicaReport]]]) -> Counter[str]:
    taken: Counter[str] = Counter()
    for node, replicas in on:
        classes = {card.uuid: card.card_class for card in (node.inventory.cards if node.inventory else ())}
        for replica in replicas:
            taken.update(classes[uuid] for uuid in replica.devices if uuid in classes)
    return taken


def _memory(on: Iterable[tuple[NodeSeen, Iterable[ReplicaReport]]]) -> Counter[str]:
    taken: Counter[str] = Counter()
    for node, replicas in on:
        taken[node.name] += sum(r.claim.memory_bytes for r in replicas if r.claim)
    return taken
