"""What is decided, as orders: for each node the whole of what should be on it.

Composed anew in every pass and sent only when they differ from the last, so a
lost message costs nothing and an idle fleet is quiet.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import structs

from llmgw.catalog import flags
from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.core.actions import Plan, Stock
from llmgw.core.lastgood import form
from llmgw.core.memory import LastGood, Memory, Placement, Sent
from llmgw.core.replicas import NO_CLAIM
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import (
    PROTOCOL,
    Action,
    Claim,
    EngineSpec,
    Orders,
    ReplicaOrder,
    VersionOrder,
    WeightFile,
    split_id,
)


def compose(wanted: Wanted, plan: Plan) -> tuple[dict[str, Orders], Memory]:
    """Orders for every node of server.yaml, and the memory that knows which were new.

    Args:
        wanted: what the placements were decided for.
        plan: a settled plan.
    """
    memory = plan.memory
    by_node: dict[str, list[Placement]] = defaultdict(list)
    for placement in plan.placements:
        by_node[placement.node].append(placement)
    stock: dict[str, list[Stock]] = defaultdict(list)
    for part in plan.stock:
        stock[part.node].append(part)
    orders: dict[str, Orders] = {}
    # Of nodes that are not listed now, too: an agent that comes back ignores what it thinks to have obeyed.
    sent: dict[str, Sent] = dict(memory.sent)
    placements: list[Placement] = []
    for node in wanted.server.nodes:
        mine = by_node[node.name]
        body = Orders(
            protocol=PROTOCOL,
            epoch=memory.epoch,
            seq=0,
            address=node.address,
            replicas=tuple(_replica(p, wanted, memory.good) for p in mine),
            versions=_versions(mine, stock[node.name], wanted, memory),
        )
        digest = hashlib.sha256(msgspec.json.encode(body)).hexdigest()[:16]
        last = memory.sent.get(node.name)
        new = last if last and last.digest == digest else Sent((last.seq if last else 0) + 1, digest)
        sent[node.name] = new
        orders[node.name] = structs.replace(body, seq=new.seq)
        placements += [p if p.seq else structs.replace(p, epoch=memory.epoch, seq=new.seq) for p in mine]
    return orders, structs.replace(memory, placements=tuple(sorted(placements)), sent=sent)


def _replica(placement: Placement, wanted: Wanted, good: Mapping[str, LastGood]) -> ReplicaOrder:
    order = ReplicaOrder(
        placement.id,
        placement.generation,
        placement.action,
        placement.fingerprint,
        version=placement.version,
        devices=placement.devices,
        attempt=placement.attempt,
    )
    if placement.action is not Action.RUN:
        return order
    model, profile = _asked(placement, wanted, good)
    source = model.source
    return structs.replace(
        order,
        spec=engine_spec(model, profile, placement.claim or NO_CLAIM),
        path=source.from_ if source.is_path else "",
    )


def _asked(placement: Placement, wanted: Wanted, good: Mapping[str, LastGood]) -> tuple[Model, Profile]:
    """The form that a placement is of: the one that is wanted, or the last good one."""
    name, profile_name, _ = split_id(placement.id)
    entry = wanted.models[name]
    model = entry.model
    if placement.fingerprint != entry.outcomes[profile_name]:
        model = form(good[f"{name}/{profile_name}"], profile_name)
    return model, next(p for p in model.profiles if p.name == profile_name)


def engine_spec(model: Model, profile: Profile, claim: Claim) -> EngineSpec:
    """What a node needs to build the engine's command line."""
    return EngineSpec(
        engine=profile.engine,
        served_name=model.name,
        kind=model.kind,
        context_tokens=profile.context or model.context_length * profile.parallel,
        parallel=profile.parallel,
        threads=profile.threads or max(1, claim.cpu_cores),
        claim=claim,
        start_timeout_s=profile.start_timeout_s,
        drain_timeout_s=profile.drain_timeout,
        args=(*flags.made(profile), *profile.args),
        env=dict(profile.env),
        engine_version=profile.engine_version or "",
    )


def _versions(
    placements: Iterable[Placement], stock: Iterable[Stock], wanted: Wanted, memory: Memory
) -> tuple[VersionOrder, ...]:
    """Versions a replica here needs, those fetched ahead, and those that may go: of the spare ones the oldest first."""
    needed = {p.version for p in placements if p.version}
    orders = [_fetched(key, "hold", wanted, memory.files) for key in needed]
    spare: list[VersionOrder] = []
    for part in stock:
        name, version = part.version.split("/", 1)
        if part.version in needed:
            continue
        if part.action == "prefetch":
            orders.append(_fetched(part.version, "prefetch", wanted, memory.files))
        elif part.action == "spare":
            spare.append(VersionOrder(name, version, "spare"))
        else:
            orders.append(VersionOrder(name, version, part.action))
    return (*sorted(orders, key=lambda v: (v.name, v.version)), *spare)


def _fetched(key: str, action: str, wanted: Wanted, files: Mapping[str, tuple[WeightFile, ...]]) -> VersionOrder:
    name, version = key.split("/", 1)
    base = wanted.server.mirror.base.rstrip("/") if wanted.server.mirror else ""
    sources = (f"{base}/{name}/{version}/",) if base else ()
    return VersionOrder(name, version, action, files.get(key, ()), sources)
