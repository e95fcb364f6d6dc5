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
from llmgw.core.actions import Plan
from llmgw.core.memory import Memory, Placement, Sent
from llmgw.core.observed import Observed
from llmgw.core.replicas import NO_CLAIM
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import (
    PROTOCOL,
    Action,
    Claim,
    EngineSpec,
    HeldVersion,
    Orders,
    ReplicaOrder,
    VersionOrder,
    WeightFile,
    split_id,
)


def compose(wanted: Wanted, seen: Observed, plan: Plan, now: float) -> tuple[dict[str, Orders], Memory]:
    """Orders for every node of server.yaml, and the memory that knows which were new.

    Args:
        wanted: what the placements were decided for.
        seen: which versions each node holds.
        plan: a settled plan.
        now: UTC seconds.
    """
    memory = plan.memory
    by_node: dict[str, list[Placement]] = defaultdict(list)
    for placement in plan.placements:
        by_node[placement.node].append(placement)
    held = {n.name: n.versions for n in seen.nodes}
    orders: dict[str, Orders] = {}
    sent: dict[str, Sent] = {}
    placements: list[Placement] = []
    for node in wanted.server.nodes:
        mine = by_node[node.name]
        body = Orders(
            protocol=PROTOCOL,
            epoch=memory.epoch,
            seq=0,
            address=node.address,
            replicas=tuple(_replica(p, wanted) for p in mine),
            versions=_versions(mine, held.get(node.name, ()), wanted, memory, now),
        )
        digest = hashlib.sha256(msgspec.json.encode(body)).hexdigest()[:16]
        last = memory.sent.get(node.name)
        new = last if last and last.digest == digest else Sent((last.seq if last else 0) + 1, digest)
        sent[node.name] = new
        orders[node.name] = structs.replace(body, seq=new.seq)
        placements += [p if p.seq else structs.replace(p, epoch=memory.epoch, seq=new.seq) for p in mine]
    return orders, structs.replace(memory, placements=tuple(sorted(placements)), sent=sent)


def _replica(placement: Placement, wanted: Wanted) -> ReplicaOrder:
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
    model, profile = _asked(placement, wanted)
    source = model.source
    return structs.replace(
        order,
        spec=engine_spec(model, profile, placement.claim or NO_CLAIM),
        path=source.from_ if source.is_path else "",
    )


def _asked(placement: Placement, wanted: Wanted) -> tuple[Model, Profile]:
    name, profile_name, _ = split_id(placement.id)
    model = wanted.models[name].model
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
    )


def _versions(
    placements: Iterable[Placement], held: Iterable[HeldVersion], wanted: Wanted, memory: Memory, now: float
) -> tuple[VersionOrder, ...]:
    """Versions a replica here needs, and those on the node that nothing has referred to for long enough."""
    needed = {p.version for p in placements if p.version}
    orders = [_hold(key, wanted, memory.files) for key in needed]
    mirror = wanted.server.mirror
    for version in held:
        since = memory.unreferenced.get(version.key)
        if version.key not in needed and since is not None and mirror and now - since >= mirror.retain:
            orders.append(VersionOrder(version.name, version.version, "may_remove"))
    return tuple(sorted(orders, key=lambda v: (v.name, v.version)))


def _hold(key: str, wanted: Wanted, files: Mapping[str, tuple[WeightFile, ...]]) -> VersionOrder:
    name, version = key.split("/", 1)
    base = wanted.server.mirror.base.rstrip("/") if wanted.server.mirror else ""
    sources = (f"{base}/{name}/{version}/",) if base else ()
    return VersionOrder(name, version, "hold", files.get(key, ()), sources)
