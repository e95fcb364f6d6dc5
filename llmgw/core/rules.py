"""What keeps a need off a node.

A rule is a function that answers what is missing, or None. The table of reasons
a person reads is made of the same answers that decided, so the two cannot differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from llmgw.core.cards import suits
from llmgw.core.needs import Ask
from llmgw.core.replicas import Standing
from llmgw.core.rooms import Room, Traits, domain_of
from llmgw.core.unplaced import NEAREST, Near, Reason
from llmgw.units import show_bytes, show_gib

T = TypeVar("T", Traits, Room)


class Missing(NamedTuple):
    """What keeps a need off a node."""

    amount: float
    """How much of it, in the rule's own unit, so that the nearest node can be named first."""
    text: str
    change: str
    """What would have to be different: `with 0.5 GiB less memory`."""


Fixed = Callable[[Ask, Traits], Missing | None]
"""A rule about what stays as it is while needs are placed."""
Moving = Callable[[Ask, Room], Missing | None]
"""A rule about what placing a need changes."""


def _reports(_ask: Ask, node: Traits) -> Missing | None:
    if node.standing is not Standing.USABLE:
        return Missing(0, f"it is {node.standing}", "once it reports again")
    return None if node.known else Missing(0, "it has not said what it has", "once it has said what it has")


def _not_drained(_ask: Ask, node: Traits) -> Missing | None:
    return Missing(0, "it is drained", "were it not drained") if node.drained else None


def _labels(ask: Ask, node: Traits) -> Missing | None:
    missing = [f"{k}={v}" for k, v in ask.labels if (k, v) not in node.labels]
    if not missing:
        return None
    return Missing(len(missing), f"it has no label {', '.join(missing)}", f"with the label {', '.join(missing)}")


def _engine(ask: Ask, node: Traits) -> Missing | None:
    if node.engines is None:
        return None  # an older agent that does not say; it will answer for itself
    words = f"{ask.engine} {ask.engine_version}".strip()
    # A version that a node does not know of its own engine is unknown, and excludes nothing.
    named = [
        e for e in node.engines if e.name == ask.engine and ask.engine_version in ("", e.version or ask.engine_version)
    ]
    if not named:
        return Missing(0, f"it reports no {words}", f"with {words} installed")
    if ask.cards is None:
        return None
    vendors = {kind.vendor for kind in node.kinds if suits(ask, kind)}
    if any(e.accelerators is None or vendors & set(e.accelerators) for e in named if e.build != "embedded"):
        return None
    if not vendors:
        return None  # what is missing is the card, and another rule says so
    return Missing(0, f"its {ask.engine} is for CPUs", f"with a {ask.engine} for its cards installed")


def _path(ask: Ask, node: Traits) -> Missing | None:
    if not ask.path or not node.known:
        return None
    for allowed in node.allow:
        kind, _, prefix = allowed.partition(":")
        if kind == "path" and (ask.path == prefix or ask.path.startswith(prefix.rstrip("/") + "/")):
            return None
    return Missing(0, f"its agent does not allow path:{ask.path}", f"were path:{ask.path} allowed there")


def _kind(ask: Ask, node: Traits) -> Missing | None:
    if ask.cards is None or any(suits(ask, kind) for kind in node.kinds):
        return None
    number, words = ask.cards.number, ask.cards.words
    return Missing(number, f"it has no {words}", f"with {number} {words}")


def _within(ask: Ask, room: Room) -> Missing | None:
    if ask.within is None:
        return None
    here, level = domain_of(room, ask.within.level), ask.within.level
    if here and here == ask.within.at:
        return None
    if not here:
        return Missing(1, f"it has no label {level}, within one of which all are kept", f"with the label {level}")
    return Missing(0, f"it is outside {ask.within.words}, where all are kept", f"were it in {ask.within.words}")


def _cards(ask: Ask, room: Room) -> Missing | None:
    if ask.cards is None:
        return None
    count = ask.cards.number
    free = max((len(uuids) for kind, uuids in room.free.items() if suits(ask, kind)), default=0)
    short = count - free
    if short <= 0:
        return None
    why = "".join(f", {text}" for text in room.unusable[:2])
    change = f"with {short} more free" if short == count else f"with {short} fewer card{'s' * (short > 1)}"
    return Missing(short, f"{short} {ask.cards.words} short of {count}{why}", change)


def _memory(ask: Ask, room: Room) -> Missing | None:
    short = ask.memory_bytes - room.memory_bytes
    if short <= 0:
        return None
    held = f", {room.holders}" if room.holders else ""
    return Missing(short, f"{show_gib(short)} of memory short{held}", f"with {show_gib(short)} less memory")


def _cores(ask: Ask, room: Room) -> Missing | None:
    short = ask.claim(room.cores).cpu_cores - room.cpu_cores
    if short <= 0:
        return None
    return Missing(short, f"{short} CPU cores short", f"with {short} core{'s' * (short > 1)} less")


def _disk(ask: Ask, room: Room) -> Missing | None:
    fetched = ask.weights_bytes if ask.version and not room.stored[ask.version] else 0
    if room.disk_bytes is None or not (fetched or ask.disk_bytes):
        return None
    short = fetched + ask.disk_bytes - room.disk_bytes
    if short <= 0:
        return None
    size = show_bytes(short)
    return Missing(
        short, f"{size} of disk short{' for the weights' * bool(fetched)}", f"with {size} more of its disk free"
    )


def _apart(ask: Ask, room: Room) -> Missing | None:
    there = [name for name in ask.shuns if room.models[name]] if ask.shuns else None
    if not there:
        return None
    return Missing(
        len(there), f"{', '.join(there)} runs there, which it is kept apart from", f"without {', '.join(there)}"
    )


FIXED: tuple[tuple[str, Fixed], ...] = (
    ("reports", _reports),
    ("not drained", _not_drained),
    ("labels", _labels),
    ("engine", _engine),
    ("weights", _path),
    ("cards", _kind),
)
MOVING: tuple[tuple[str, Moving], ...] = (
    ("within", _within),
    ("cards", _cards),
    ("memory", _memory),
    ("cores", _cores),
    ("disk", _disk),
    ("apart", _apart),
)
NAMES = tuple(dict.fromkeys(name for name, _ in (*FIXED, *MOVING)))
"""In this order; a node is counted under the first that keeps the need off it."""


class Rules:
    """The rules for one ask. What does not move is asked once of all nodes that are alike in it."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._fixed: dict[int, bool] = {}
        # Of those that move, the ones it asks anything of: they are what most of a large pass is spent on.
        asked = {"memory": True, "cores": True, "cards": ask.cards, "within": ask.within, "apart": ask.shuns}
        asked["disk"] = bool(ask.version or ask.disk_bytes)
        self._moving = tuple(rule for name, rule in MOVING if asked[name])

    def admits(self, room: Room) -> bool:
        """Whether nothing that stays as it is keeps the ask off."""
        known = self._fixed.get(room.alike)
        if known is None:
            known = self._fixed[room.alike] = all(rule(self.ask, room.traits) is None for _, rule in FIXED)
        return known

    def fits(self, room: Room) -> bool:
        """Whether nothing keeps the ask off."""
        return self.admits(room) and not any(rule(self.ask, room) for rule in self._moving)

    def times(self, room: Room, model: str) -> int:
        """How often the ask, of a model by this name, fits into one room."""
        ask = self.ask
        if not self.fits(room):
            return 0
        claim = ask.claim(room.cores)
        most = [room.memory_bytes // claim.memory_bytes]
        if claim.cpu_cores:
            most.append(room.cpu_cores // claim.cpu_cores)
        if claim.cards:
            # All cards of one replica are of one kind.
            most.append(sum(len(u) // claim.cards for kind, u in room.free.items() if suits(ask, kind)))
        if ask.disk_bytes and room.disk_bytes is not None:
            fetched = 0 if room.stored[ask.version] else ask.weights_bytes
            most.append((room.disk_bytes - fetched) // ask.disk_bytes)
        if model in ask.shuns:
            most.append(1)  # it is kept apart from its own
        return min(most)

    def table(self, rooms: Iterable[Room]) -> tuple[Reason, ...]:
        """What keeps it off each room, by the first rule that does."""
        first: dict[int, tuple[str, Missing] | None] = {}
        against: dict[str, list[tuple[float, str, str, Room]]] = defaultdict(list)
        for room in rooms:
            if room.alike not in first:
                first[room.alike] = next(_obstacles(FIXED, self.ask, room.traits), None)
            rule, missing = first[room.alike] or next(_obstacles(MOVING, self.ask, room))
            against[rule].append((missing.amount, room.name, missing.text, room))
        return tuple(_reason(rule, against[rule], self.ask) for rule in NAMES if rule in against)


def _reason(rule: str, rows: list[tuple[float, str, str, Room]], ask: Ask) -> Reason:
    nearest = sorted(rows, key=lambda row: row[:2])[:NEAREST]
    return Reason(rule, len(rows), tuple(Near(a, name, text, _changes(ask, room)) for a, name, text, room in nearest))


def _changes(ask: Ask, room: Room) -> tuple[str, ...]:
    """All that would have to be different: not the first thing only."""
    fixed = dict(_obstacles(FIXED, ask, room.traits))
    # A node without the card is not short of it as well, and of one that does not report the rest is not known.
    moving = {} if "reports" in fixed else dict(_obstacles(MOVING, ask, room))
    return tuple(missing.change for missing in {**moving, **fixed}.values())


def _obstacles(
    rules: Iterable[tuple[str, Callable[[Ask, T], Missing | None]]], ask: Ask, of: T
) -> Iterator[tuple[str, Missing]]:
    return ((name, missing) for name, rule in rules if (missing := rule(ask, of)))
