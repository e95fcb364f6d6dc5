"""What hardware is not trusted with anything new, and why: nodes that fail in all they start, cards with errors.

Nothing is stopped for a suspicion: what serves there goes on, and is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from llmgw.core.actions import Held
from llmgw.core.memory import Failures
from llmgw.core.replicas import Fleet, Replica, Standing

ENOUGH = 2
"""Profiles that have to fail on a node before it is the node: one may be at fault itself."""

THEIR_OWN = frozenset({"bad_flags", "weights", "engine_missing", "refused"})
"""Causes that a profile takes along to every node it goes to, or that a rule of placement covers."""


def suspect_nodes(fleet: Fleet, failures: Mapping[str, Failures]) -> dict[str, Held]:
    """Nodes where several profiles failed and nothing serves, by name. A lost node has not failed in anything.

    Args:
        fleet: the settled fleet.
        failures: by model/profile, as updated in this pass.
    """
    failing: dict[str, list[str]] = defaultdict(list)
    for key, known in failures.items():
        elsewhere = any(r.serves and r.node not in known.nodes for r in fleet.of(key.rpartition("/")[0]))
        # What fails wherever it goes says nothing about any of the nodes.
        if known.cause not in THEIR_OWN and (elsewhere or len(known.nodes) == 1):
            for node in known.nodes:
                failing[node].append(key)
    suspects = {name: keys for name, keys in failing.items() if len(keys) >= ENOUGH and name in fleet.nodes}
    if not suspects:
        return {}
    working = {r.node for replicas in fleet.replicas.values() for r in replicas if r.serves}
    return {
        name: Held(
            name,
            f"everything it started failed ({', '.join(sorted(keys))}), so it is tried last",
            next=f"see what failed there and why, or take it out: llmgw node drain {name}",
        )
        for name, keys in sorted(suspects.items())
        if name not in working and fleet.nodes[name].standing is Standing.USABLE
    }


def disobeying(fleet: Fleet) -> Iterator[Held]:
    """Nodes whose agent says that it cannot do what it is told."""
    for node in fleet.nodes.values():
        if node.seen.trouble and node.standing is Standing.USABLE:
            why = f"it does not obey its orders: {node.seen.trouble}"
            yield Held(node.name, why, next="see its agent's log; what runs there goes on", stalled=True)


def faulty_cards(fleet: Fleet) -> Iterator[Held]:
    """Cards that are not well: nothing new is put on them, what serves there is named, and what to do is said.

    A card that is cut is spoken of once, with what runs on its slices.
    """
    for name, node in fleet.nodes.items():
        inventory = node.seen.inventory
        # Of nearly all nodes this is all that is looked at.
        if inventory is None or not any(card.errors for card in inventory.cards):
            continue
        faults: dict[str, set[str]] = defaultdict(set)
        parts: dict[str, set[str]] = defaultdict(set)
        for card in inventory.cards:
            faults[card.parent or card.uuid].update(card.errors)
            parts[card.parent or card.uuid].add(card.uuid)
        for whole in sorted(card for card, errors in faults.items() if errors):
            on = sorted(r.id for r in _on(name, fleet) if not parts[whole].isdisjoint(r.devices))
            stays = f", and {', '.join(on)} stays on it while it serves" if on else ""
            why = f"{whole} is not well ({', '.join(sorted(faults[whole]))}): nothing new is put on it{stays}"
            yield Held(name, why, next=_mend(name, whole, faults[whole]), kind="card_error")


def _on(node: str, fleet: Fleet) -> Iterator[Replica]:
    return (r for replicas in fleet.replicas.values() for r in replicas if r.node == node and r.holds)


def _mend(node: str, card: str, errors: Collection[str]) -> str:
    """What helps a card: what only hands can do comes before a reset."""
    off = f"move off what runs there: llmgw node drain {node} --card {card}"
    if "lost" in errors:
        return f"switch {node} off and on; if the card does not come back, put it into another slot or replace it"
    if "row remapping failed" in errors:
        return f"replace it; {off}"
    if "mig mode without slices" in errors:
        return f"cut it into slices, or switch MIG off: nvidia-smi -i {card} -mig 0"
    return f"{off}, reset it (nvidia-smi -i {card} --gpu-reset), and replace it if this comes again"


def where_it_works(key: str, known: Failures, fleet: Fleet) -> str:
    """Which node is at fault where a profile fails on some and works on others, or empty."""
    model, _, profile = key.rpartition("/")
    works = sorted({r.node for r in fleet.of(model) if r.profile == profile and r.serves} - set(known.nodes))
    if not works or not known.nodes:
        return ""
    more = f" and {len(works) - 3} more" if len(works) > 3 else ""
    return f"it fails on {', '.join(known.nodes)} and works on {', '.join(works[:3])}{more}"
