"""`llmgw node drain` and `undrain`: a machine, or one of its cards, left alone and taken back."""

from __future__ import annotations

from typing import Annotated

import typer

from llmgw.catalog.written import Written, unknown
from llmgw.cli.change import Change, How, carry_out, see
from llmgw.cli.render import count
from llmgw.cli.workcopy import Branch, Commit, Json, Push, Repo, WorkCopy
from llmgw.core.observed import NodeSeen
from llmgw.errors import Refused
from llmgw_agent.protocol import Inventory

Node = Annotated[str, typer.Argument(help="The node, as server.yaml calls it.")]
Card = Annotated[
    list[str] | None,
    typer.Option("--card", help="Only this card of it, by its UUID.", show_default=False),
]


def drain(
    name: Node,
    card: Card = None,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Start nothing new on a node, or on one of its cards, and move what runs there off."""
    copy = WorkCopy.find(repo)
    server, at = _entry(copy, name)
    if not card:
        said = (f"Draining {name} starts nothing new there; {_moves(_seen(copy, name))}.",)
        change = Change.of(server.put((*at, "drained"), True), f"{name}: drained", said)
        carry_out(copy, change, How(commit, branch, push, json))
        return
    out, card = _out(server, at), list(dict.fromkeys(card))
    told = (
        f"Draining {_cards(card)} of {name} starts nothing new there; what runs there moves where there is room.",
        *_unsure(copy, name, card),
    )
    new = [uuid for uuid in card if uuid not in out]
    changed = server.put((*at, "cards_out"), [*out, *new])
    carry_out(
        copy,
        Change.of(changed, f"{name}: without {_cards(card)}", told),
        How(commit, branch, push, json),
    )


def undrain(
    name: Node,
    card: Card = None,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Take a drained node, or a card of it, back."""
    copy = WorkCopy.find(repo)
    server, at = _entry(copy, name)
    if not card:
        drained = server.file.read().value_at(at).get("drained") is True
        changed = server.clear((*at, "drained"), otherwise=False) if drained else server
        carry_out(
            copy,
            Change.of(changed, f"{name}: taken back"),
            How(commit, branch, push, json),
        )
        return
    out, card = _out(server, at), list(dict.fromkeys(card))
    if not out:
        raise Refused(
            f"{_cards(card)} of {name} {'is' if len(card) == 1 else 'are'} not drained",
            why=f"no card of {name} is: it has no `cards_out`",
            do=f"llmgw node undrain {name} takes the whole node back",
        )
    for uuid in card:
        if uuid not in out:
            raise unknown(f"{uuid} of {name} is not drained", uuid, out, "drained cards")
    left = [uuid for uuid in out if uuid not in card]
    changed = server.put((*at, "cards_out"), left) if left else server.clear((*at, "cards_out"), [])
    carry_out(
        copy,
        Change.of(changed, f"{name}: with {_cards(card)} again"),
        How(commit, branch, push, json),
    )


def _entry(copy: WorkCopy, name: str) -> tuple[Written, tuple[str, int]]:
    server, index = copy.node(name)
    return server, ("nodes", index)


def _out(server: Written, at: tuple[str, int]) -> list[str]:
    found = server.file.read().value_at(at).get("cards_out")
    return [str(uuid) for uuid in found] if isinstance(found, list) else []


def _seen(copy: WorkCopy, name: str) -> NodeSeen | None:
    seen = see(copy).observed
    return next((node for node in seen.nodes if node.name == name), None) if seen else None


def _moves(node: NodeSeen | None) -> str:
    """What a drain moves, as far as it is known what runs there."""
    if node is None or node.age_s is None:
        return "its replicas move to other nodes where there is room"
    if not node.replicas:
        return "no replica runs there that would move"
    verb = "moves" if len(node.replicas) == 1 else "move"
    return f"its {count(len(node.replicas), 'replica')} {verb} to other nodes where there is room"


def _unsure(copy: WorkCopy, name: str, uuids: list[str]) -> list[str]:
    """That it is not known whether these cards are there, where the fleet is seen and the node does not say.

    Raises:
        Refused: the node reports its cards, and one of these is not among them.
    """
    seen = see(copy).observed
    if seen is None:
        return []
    node = next((node for node in seen.nodes if node.name == name), None)
    if node is None or node.inventory is None:
        return [f"{name} has not reported its cards, so it is not known whether it has {', '.join(uuids)}."]
    for uuid in uuids:
        _must_be_there(node.inventory, name, uuid)
    return []


def _must_be_there(inventory: Inventory, name: str, uuid: str) -> None:
    uuids = [card.uuid for card in inventory.cards]
    if not uuids:
        raise Refused(
            f"{name} has no card {uuid}",
            why="it reports none",
            do="llmgw status --json lists its inventory",
        )
    if uuid not in uuids:
        raise unknown(f"{name} has no card {uuid}", uuid, uuids, "cards")


def _cards(uuids: list[str]) -> str:
    return f"card {uuids[0]}" if len(uuids) == 1 else f"cards {', '.join(uuids)}"
