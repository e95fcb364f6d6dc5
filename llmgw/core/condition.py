"""Why something is not as asked: what a status says of a model, a node, or control itself."""

from __future__ import annotations

from msgspec import Struct

from llmgw.core.actions import Held


class Condition(Struct, frozen=True, omit_defaults=True):
    """Why something is not as asked."""

    subject: str
    why: str
    next: str = ""
    stalled: bool = False
    kind: str = ""
    """What sort of thing it is, where that is known: one of `core.problems.KINDS`."""


def condition(held: Held) -> Condition:
    """What stays the same of it, as long as the reason does."""
    return Condition(held.subject, held.why, held.next, held.stalled, held.kind)
