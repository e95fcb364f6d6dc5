"""What control tells an operator: the status as it is now, and all that planning needs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from llmgw.catalog import canonical
from llmgw.catalog.lock import Lock
from llmgw.catalog.server import Server
from llmgw.core.actions import Held
from llmgw.core.learning import expected
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.replicas import parts
from llmgw.core.status import FleetStatus
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.predicted import Predicted
from llmgw_agent.protocol import Phase


class Live(Struct, frozen=True):
    """`GET /v1/status`: what the status branch will say, and what moves too fast for it."""

    status: FleetStatus | None
    """None: the repository has not been read yet."""
    held: tuple[Held, ...]
    """With the figures that move."""
    observed: Observed
    trouble: tuple[str, ...] = ()
    """What control cannot do: read the repository, commit the status."""


class SpecNow(Struct, frozen=True):
    """A model as it is wanted now."""

    path: str
    commit: str
    since: int
    frozen: str
    spec: dict[str, Any]
    held_as: str = ""
    """The key of another name that has its weights. Empty: they are held under its own."""
    lock: dict[str, Any] = {}
    """What its source was found to be, which its memory is worked out from. Empty: it was not locked."""


class SeenNow(Struct, frozen=True):
    """`GET /v1/seen`: what a plan is made of."""

    commit: str
    """That is wanted now. Empty: none yet."""
    applied: str
    """The last one that nothing was held of."""
    server: dict[str, Any]
    """server.yaml in canonical form; empty: none has been good yet."""
    models: tuple[SpecNow, ...]
    observed: Observed
    memory: Memory


class ReplicaFigures(Struct, frozen=True):
    """One ready replica: what it is, and what was predicted of it beside what is measured."""

    id: str
    node: str
    parallel: int
    """Requests it serves at the same time."""
    expected: Predicted | None
    """None: nothing is known of its files, or it runs no more as it did."""
    host_peak_bytes: int | None = None
    card_peak_bytes: int | None = None
    """Of all its cards together."""


class Figures(Struct, frozen=True):
    """`GET /v1/figures/MODEL`: what a measurement of it is held against."""

    weights: dict[str, int]
    """As its file has them, by profile."""
    priorities: dict[str, int]
    replicas: tuple[ReplicaFigures, ...]
    """Those that are ready, sorted."""


def figures(wanted: Wanted, observed: Observed, model: str) -> Figures | None:
    """Of one model. None: it is not in the catalog."""
    entry = wanted.models.get(model)
    if entry is None:
        return None
    ready = (
        ReplicaFigures(
            report.id,
            node.name,
            report.parallel,
            expected(entry, node, report),
            report.memory_peak_bytes,
            report.card_peak_bytes,
        )
        for node in observed.nodes
        for report in node.replicas
        if report.phase is Phase.READY and parts(report.id)[0] == model
    )
    profiles = entry.model.profiles
    return Figures(
        {p.name: p.weight for p in profiles},
        {p.name: p.priority for p in profiles},
        tuple(sorted(ready, key=lambda r: (r.id, r.node))),
    )


def wanted_now(seen: SeenNow) -> Wanted | None:
    """What control wants. None: nothing yet.

    Raises:
        pydantic.ValidationError: it is of a later version.
    """
    if not seen.server:
        return None
    server = Server.model_validate(seen.server)
    asleep = server.state == "stopped"
    models = (
        WantedModel(
            canonical.from_spec(m.spec),
            m.path,
            m.commit,
            m.since,
            m.frozen,
            fleet_stopped=asleep,
            held_as=m.held_as,
            lock=Lock.model_validate(m.lock) if m.lock else None,
        )
        for m in seen.models
    )
    return Wanted(seen.commit, 0, server, {w.model.name: w for w in models}, applied=seen.applied)


def specs(wanted: Wanted) -> tuple[SpecNow, ...]:
    """Its models, in the form that travels."""
    return tuple(
        SpecNow(w.path, w.commit, w.since, w.frozen, canonical.spec(w.model), w.held_as, _lock(w.lock))
        for w in wanted.models.values()
    )


def _lock(lock: Lock | None) -> dict[str, Any]:
    return lock.model_dump(mode="json", exclude_defaults=True) if lock else {}


def without_keys(observed: Observed) -> Observed:
    """The same without the engines' keys: those are for gateways only."""
    nodes = tuple(
        structs.replace(n, replicas=tuple(structs.replace(r, key="") for r in n.replicas)) for n in observed.nodes
    )
    return structs.replace(observed, nodes=nodes)
