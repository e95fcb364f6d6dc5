"""The gateways' table, made of what is wanted, what is seen and what was decided."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import structs

from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.core.actions import Plan
from llmgw.core.memory import Scale
from llmgw.core.observed import Observed
from llmgw.core.replicas import Standing, survey
from llmgw.core.seats import counts
from llmgw.core.table import Serving, Table, TableKey, TableModel, TableReplica
from llmgw.core.wanted import Wanted, WantedModel
from llmgw_agent.protocol import Action, Phase, ReplicaReport, split_id

MOST_SLOTS = 4096
"""Of one replica: what a profile may ask, whatever a node says."""


def table(wanted: Wanted, seen: Observed, plan: Plan, now: float) -> Table:
    """What gateways may send where. A replica of a silent node stays, marked."""
    fleet = survey(wanted, seen, plan.memory, now)
    draining = {(p.id, p.generation, p.node) for p in plan.placements if p.action is Action.DRAIN}
    replicas: dict[str, list[TableReplica]] = {name: [] for name in wanted.models}
    for node in fleet.nodes.values():
        for report in node.seen.replicas:
            model = split_id(report.id)[0]
            entry = wanted.models.get(model)
            leaving = (report.id, report.generation, node.name) in draining
            row = _replica(report, node.name, node.entry.address, node.standing, entry, leaving=leaving)
            if row is not None and entry is not None:
                replicas[model].append(row)
    why = _reasons(plan)
    models = tuple(
        _model(entry, tuple(sorted(replicas[name])), why.get(name, ""), plan.memory.scales)
        for name, entry in sorted(wanted.models.items())
    )
    keys = {k.key.sha256: TableKey(k.key.name, k.key.models) for k in wanted.keys}
    body = Table("", wanted.server.cluster, models, keys)
    return structs.replace(body, version=hashlib.sha256(msgspec.json.encode(body)).hexdigest()[:16])


def _replica(
    report: ReplicaReport,
    node: str,
    address: str,
    standing: Standing,
    entry: WantedModel | None,
    *,
    leaving: bool,
) -> TableReplica | None:
    if report.port is None or report.phase not in (Phase.STARTING, Phase.READY, Phase.DRAINING):
        return None
    if leaving or report.phase is Phase.DRAINING:
        state = Serving.DRAINING
    elif report.phase is Phase.STARTING:
        state = Serving.STARTING
    else:
        state = Serving.READY if standing is Standing.USABLE else Serving.SILENT
    profile = _profile(report, entry.model if entry else None)
    return TableReplica(
        id=report.id,
        generation=report.generation,
        node=node,
        url=_url(report.address or address, report.port),
        key=report.key,
        engine=report.engine,
        tier=profile.priority if profile else -1_000_000,
        weight=profile.weight if profile else 1,
        capacity=min(max(1, report.parallel), MOST_SLOTS),
        state=state,
    )


def _url(address: str, port: int) -> str:
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


def _profile(report: ReplicaReport, model: Model | None) -> Profile | None:
    """Its profile, as it is wanted now; None: that is gone."""
    name = split_id(report.id)[1]
    return next((p for p in model.profiles if p.name == name), None) if model else None


def _reasons(plan: Plan) -> Mapping[str, str]:
    reasons: dict[str, str] = {}
    for held in plan.held:
        if held.model:
            reasons.setdefault(held.model, held.why)
    return reasons


def _model(entry: WantedModel, replicas: Iterable[TableReplica], why: str, scales: Mapping[str, Scale]) -> TableModel:
    model = entry.model
    rows = tuple(replicas)
    serving = any(r.state in (Serving.READY, Serving.SILENT) for r in rows)
    wanted = sum(counts(entry, scales).values())
    # One that runs on demand has none until it is asked, and then some.
    stopped = entry.stopped or not (wanted or model.scaling)
    if stopped:
        why = "it is stopped"
    return TableModel(
        name=model.name,
        kind=model.kind,
        context_length=model.context_length,
        description=model.description,
        aliases=model.aliases,
        owner=model.owner,
        tags=model.tags,
        license=model.license,
        capabilities=tuple(str(word) for word in model.capabilities),
        unlisted=model.unlisted,
        replaced_by=model.replaced_by or "",
        max_output=model.max_output,
        created=entry.since,
        state="stopped" if stopped else "running",
        why="" if serving else why,
        wanted=wanted,
        replicas=rows,
    )
