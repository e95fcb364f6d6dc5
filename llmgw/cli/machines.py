"""The machines that a model is judged for: a fleet as it was last seen, one that a file tells of, or this machine."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from llmgw.catalog.parse import SERVER_FILE, parse
from llmgw.cli.change import see
from llmgw.cli.seen import Seen, from_control
from llmgw.cli.workcopy import WorkCopy
from llmgw.core.live import SeenNow
from llmgw.core.machines import machine_of, machines
from llmgw.core.replicas import survey
from llmgw.core.wanted import Wanted, judge
from llmgw.errors import Misused, OperatorError, Refused
from llmgw.planning.cards import find
from llmgw.planning.learned import Run
from llmgw.planning.machines import Machine
from llmgw.units import parse_bytes
from llmgw_agent.probe import bandwidth, engines, gpu, host
from llmgw_agent.probe.card_class import card_class
from llmgw_agent.protocol import Card, InstalledEngine, Inventory

MOST_CARDS = 64
"""Of one machine of a file."""
MOST_MACHINES = 10_000


@dataclass(frozen=True, slots=True)
class Known:
    """Machines, and where they are known from."""

    machines: tuple[Machine, ...]
    how: str
    """`status branch 4d5e6f7, 3m old`, `fleet.yaml`, `this machine`."""
    runs: tuple[Run, ...] = ()
    """What has run there, and how it was measured."""


class _Cards(Struct, frozen=True, forbid_unknown_fields=True):
    """Cards of one kind, as a person writes them."""

    name: str
    count: int = 1
    memory: str = ""
    """Empty: the table of cards says."""
    class_: str = msgspec.field(default="", name="class")
    """Empty: made of the name and the memory, as nodes make it."""


class _Node(Struct, frozen=True):
    """A node: with the inventory that it reports, or with what a person knows of it. The rest of a file is its own."""

    name: str
    inventory: Inventory | None = None
    memory: str = ""
    cores: int = 0
    cards: tuple[_Cards, ...] = ()
    engines: tuple[str, ...] | None = None
    memory_gbs: float | None = None
    core_gbs: float | None = None


def known(repo: Path | None = None, fleet: Path | None = None) -> Known:
    """The machines that are meant.

    Args:
        repo: a fleet's repository. None: the one around this folder, if there is one.
        fleet: a file that tells of machines.

    Raises:
        OperatorError: the file cannot be used, or the repository cannot be read.
    """
    if fleet is not None:
        return Known(from_file(fleet), str(fleet))
    if (root := fleet_around(repo)) is None:
        return Known((this_machine(),), "this machine")
    copy = WorkCopy.find(root)
    seen = see(copy)
    wanted = seen.base or judge(copy.catalog, commit=copy.now.commit, committed_at=copy.now.committed_at, last=None)
    if seen.observed is None or wanted is None:
        return Known((this_machine(),), "this machine, since nothing is known of the fleet")
    return Known(_of(seen, wanted), seen.how, seen.memory.learned.published.runs)


def fleet_around(repo: Path | None) -> Path | None:
    """The fleet's repository that a folder is in."""
    start = (repo or Path()).absolute()
    for folder in (start, *start.parents):
        if (folder / "server.yaml").is_file():
            return folder
        if (folder / ".git").exists():
            break
    return None


def _of(seen: Seen, wanted: Wanted) -> tuple[Machine, ...]:
    assert seen.observed is not None, "asked only of a fleet that was seen"
    names = {card.class_: card.name for card in wanted.server.cards}
    return machines(survey(wanted, seen.observed, seen.memory, time.time()), names)


def this_machine() -> Machine:
    """The machine that this runs on, by the agent's own looks."""
    folders = tuple(Path(folder) for folder in os.environ.get("PATH", "").split(":") if folder)
    here, cards = host.look(Path("/")), asyncio.run(gpu.Probe(folders).look(()))
    rates = _rates()
    return machine_of(
        "here",
        Inventory(
            here.hostname,
            here.cpu_cores,
            here.memory_bytes,
            memory_used_by_others_bytes=here.memory_used_bytes,
            cards=cards.cards,
            # What is not there can be installed: the embedded engine is one package.
            engines=engines.look(folders) or None,
            memory_gbs=rates.all_gbs if rates else None,
            memory_core_gbs=rates.core_gbs if rates else None,
        ),
    )


def _rates() -> bandwidth.Rates | None:
    """How fast memory is read here: measured once a boot, and kept beside what other programs keep."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmgw"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return bandwidth.measured(folder / "bandwidth.json")
    except (OSError, RuntimeError):
        # A home that is not there, or not to be written: it is measured and not kept.
        return bandwidth.measure()


def from_file(path: Path) -> tuple[Machine, ...]:
    """The machines of a file: a recorded fleet, nodes of a status branch, or a list of what a person knows.

    Raises:
        OperatorError: it tells of none.
    """
    try:
        data = path.read_bytes()
    except OSError as e:
        raise Refused(f"{path} cannot be read", why=e.strerror or str(e), do="name a file") from None
    document = parse(data, SERVER_FILE)
    if document.findings:
        found = document.findings[0]
        raise OperatorError(f"{path}:{document.place(found.at).line}: {found.what}", why=found.why, do=found.do)
    value: Any = document.value
    try:
        if isinstance(value, dict) and "observed" in value:
            seen = from_control(msgspec.convert(value, SeenNow), how=str(path))
            return _of(seen, seen.base) if seen.base is not None else ()
        listed = value.get("nodes", [value]) if isinstance(value, dict) else value
        nodes = msgspec.convert(listed, tuple[_Node, ...])
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise _none_of(path, str(e)) from None
    if not 0 < len(nodes) <= MOST_MACHINES or len({n.name for n in nodes}) != len(nodes):
        raise _none_of(path, f"it has {len(nodes)} nodes, or two of one name")
    return tuple(sorted((_machine(path, node) for node in nodes), key=lambda m: m.name))


def _machine(path: Path, node: _Node) -> Machine:
    if node.inventory is not None:
        return machine_of(node.name, node.inventory)
    try:
        memory = parse_bytes(node.memory)
    except ValueError as e:
        raise _none_of(path, f"memory of {node.name}: {e}") from None
    if not 1 <= node.cores <= 4096:
        raise _none_of(path, f"cores of {node.name} is {node.cores}: 1 to 4096 can be")
    cards = tuple(card for cards in node.cards for card in _cards(path, node.name, cards))
    installed = None if node.engines is None else tuple(InstalledEngine(name) for name in node.engines)
    rates = [rate for rate in (node.memory_gbs, node.core_gbs) if rate is not None]
    if not all(0 < rate <= 100_000 for rate in rates):
        raise _none_of(path, f"memory_gbs and core_gbs of {node.name} are 10^9 bytes a second: more than 0")
    return machine_of(
        node.name,
        Inventory(
            node.name,
            node.cores,
            memory,
            cards=cards,
            engines=installed,
            memory_gbs=node.memory_gbs,
            memory_core_gbs=node.core_gbs,
        ),
    )


def _cards(path: Path, node: str, cards: _Cards) -> list[Card]:
    known_card = find(cards.name)
    try:
        memory = parse_bytes(cards.memory) if cards.memory else (known_card.memory_bytes if known_card else None)
    except ValueError as e:
        raise _none_of(path, f"memory of {cards.name} on {node}: {e}") from None
    if not memory:
        raise _none_of(path, f"the table of cards does not know the memory of {cards.name!r} on {node}: write `memory`")
    if not 1 <= cards.count <= MOST_CARDS:
        raise _none_of(path, f"count of {cards.name} on {node} is {cards.count}: 1 to {MOST_CARDS} can be")
    vendor = known_card.vendor if known_card else "nvidia"
    called = cards.class_ or card_class(cards.name, memory)
    return [Card(f"{node}-{called}-{n}", cards.name, vendor, called, memory) for n in range(cards.count)]


def _none_of(path: Path, why: str) -> Misused:
    do = "write for example:\n  - {name: n1, memory: 128GiB, cores: 32, cards: [{name: RTX 4090, count: 2}]}"
    return Misused(f"{path} tells of no fleet", why=" ".join(why.split())[:200], do=do)
