"""What a pass decides: actions, what is held and why, and the whole that should be."""

from __future__ import annotations

from msgspec import Struct

from llmgw.core.holdings import WantedFile
from llmgw.core.memory import Memory, Placement
from llmgw.core.unplaced import Reason


class Start(Struct, frozen=True, tag="start", order=True):
    """Start a replica on a node."""

    id: str
    generation: int
    node: str
    why: str


class Stop(Struct, frozen=True, tag="stop", order=True):
    """Drain a replica and end it; a failed one is cleared away."""

    id: str
    generation: int
    node: str
    why: str


class Fetch(Struct, frozen=True, tag="fetch", order=True, omit_defaults=True):
    """Have the mirror fetch a version."""

    name: str
    version: str
    source: str
    sha256: str | None
    retry: bool
    why: str
    files: tuple[WantedFile, ...] = ()
    """As its lock has them. Empty: the source names one file, and nobody said more of it."""


class Remove(Struct, frozen=True, tag="remove", order=True):
    """Have the mirror remove a version."""

    name: str
    version: str
    why: str


Action = Start | Stop | Fetch | Remove


class Stock(Struct, frozen=True, order=True):
    """What becomes of a version on one node, where no replica there says it. It holds for as long as it is said."""

    node: str
    version: str
    """`name/version`."""
    action: str
    """prefetch | may_remove | spare, as the node's orders say it."""
    why: str


class Held(Struct, frozen=True, order=True, omit_defaults=True):
    """Something that is not done, and why."""

    subject: str
    """A replica's id, a model, a profile (`model/profile`), a node or a version."""
    why: str
    """Stays the same as long as the reason does: a changed one is a status commit."""
    detail: str = ""
    """Figures that move: bytes, seconds, what is missing where."""
    next: str = ""
    """What a person can do about it, where there is something."""
    model: str = ""
    stalled: bool = False
    """Whether only a change can help: waiting will not."""
    reasons: tuple[Reason, ...] = ()
    """Of a replica without a node: the rules that kept it off each. Figures that move, too."""
    kind: str = ""
    """What sort of thing it is, where others have to tell it apart: `parked`, `card_error`."""

    @property
    def sentence(self) -> str:
        return f"{self.subject}: {self.reason}" + (f"; {self.next}" if self.next else "")

    @property
    def reason(self) -> str:
        return self.why + (f" ({self.detail})" if self.detail else "")


def internal_error(model: str, error: Exception) -> Held:
    """What is said of a model that cannot be decided, so that the others' pass goes on."""
    return Held(model, f"internal error: {error!r}", next="report it", model=model, stalled=True, kind="internal")


class Plan(Struct, frozen=True):
    """What one pass decided."""

    actions: tuple[Action, ...]
    """Starts, stops, fetches, removals; each group sorted."""
    held: tuple[Held, ...]
    placements: tuple[Placement, ...]
    """The whole of what should be on the nodes, sorted."""
    memory: Memory
    settled: bool = True
    stock: tuple[Stock, ...] = ()
    """Of the nodes' versions. Sorted, and what is spare by how long nothing has referred to it."""

    @property
    def empty(self) -> bool:
        """Whether nothing is to be done. What is held may still be there."""
        return not self.actions
