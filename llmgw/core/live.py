"""What control tells an operator: the status as it is now, and all that planning needs."""

from __future__ import annotations

from msgspec import Struct, structs

from llmgw.core.actions import Held
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.status import FleetStatus


class Live(Struct, frozen=True):
    """`GET /v1/status`: what the status branch will say, and what moves too fast for it."""

    status: FleetStatus | None
    """None: the repository has not been read yet."""
    held: tuple[Held, ...]
    """With the figures that move."""
    observed: Observed
    trouble: tuple[str, ...] = ()
    """What control cannot do: read the repository, commit the status."""


class SeenNow(Struct, frozen=True):
    """`GET /v1/seen`: what a plan is made of."""

    commit: str
    """That is wanted now. Empty: none yet."""
    observed: Observed
    memory: Memory


def without_keys(observed: Observed) -> Observed:
    """The same without the engines' keys: those are for gateways only."""
    nodes = tuple(
        structs.replace(n, replicas=tuple(structs.replace(r, key="") for r in n.replicas)) for n in observed.nodes
    )
    return structs.replace(observed, nodes=nodes)
