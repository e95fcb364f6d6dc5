"""Why a need has no node: a table of rules, and what would change that."""

from __future__ import annotations

from msgspec import Struct

NEAREST = 10
"""Nodes a reason names."""


class Near(Struct, frozen=True, order=True):
    """One node that a rule kept out."""

    amount: float
    """How much is missing, in the rule's own unit."""
    node: str
    missing: str
    """What is missing, in words."""
    changes: tuple[str, ...]
    """All that would have to be different for it to fit here: `with 0.5 GiB less memory`."""


class Reason(Struct, frozen=True, order=True):
    """One rule that kept nodes out."""

    rule: str
    nodes: int
    nearest: tuple[Near, ...]
    """The least missing first, at most ten."""


class Unplaced(Struct, frozen=True):
    """Why no node was found."""

    reasons: tuple[Reason, ...]
    """In the order of the rules."""
    searched: int = 0
    """Steps after which the search for another arrangement was given up. 0: there is none, or none was needed."""

    @property
    def furthest(self) -> str:
        """The last rule that a node came to: all before it are met somewhere. Empty: there are no nodes."""
        return self.reasons[-1].rule if self.reasons else ""

    @property
    def words(self) -> str:
        """What is missing on the nearest node of each rule, and the least that would change it."""
        parts = []
        for reason in self.reasons:
            near = reason.nearest[0]
            more = f", and {reason.nodes - 1} more" if reason.nodes > 1 else ""
            parts.append(f"{near.node}: {near.missing}{more}")
        if self.searched:
            parts.append(
                f"whether moving others of its class about would help was not found in {self.searched:,} steps"
            )
        if self.would_fit:
            parts.append(self.would_fit)
        return "; ".join(parts) or "server.yaml lists no nodes"

    @property
    def would_fit(self) -> str:
        """The least change that would give it a node: a sentence, or empty where there are none."""
        # Where the last rule was reached, all before it are met.
        best = min(
            ((len(n.changes), -place, n.amount, n.node, n) for place, r in enumerate(self.reasons) for n in r.nearest),
            default=None,
        )
        return f"it would fit on {best[3]} {' and '.join(best[4].changes)}" if best else ""
