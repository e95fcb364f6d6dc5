"""How fast each profile would answer, and which are slower than they may be.

A choice of something very slow is made on purpose, by a `min_tps` that
everybody sees in review, and not by counting replicas where no card is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from llmgw.catalog.check import Catalog, Entry
from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.catalog.policy import Policy
from llmgw.catalog.problem import Problem
from llmgw.catalog.profile import Profile
from llmgw.catalog.server import Server
from llmgw.core.machines import machine_of
from llmgw.core.observed import NodeSeen
from llmgw.core.wanted import Wanted
from llmgw.errors import OperatorError
from llmgw.planning.claim import options_of
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.machines import Machine
from llmgw.planning.need import CPU, Files, Place
from llmgw.planning.shape import from_facts
from llmgw.planning.speed import VERY_SLOW_TPS, reply, said
from llmgw.planning.ways import speed_of
from llmgw.units import GIB


class Pace(NamedTuple):
    """What one answer of a profile would come at, where it is placed best."""

    tps: float
    basis: str
    """What that rests on, in words."""


def floor_of(profile: Profile, policy: Policy) -> float | None:
    """Tokens a second that a profile has to reach. None: any will do.

    What a profile writes may be more than the fleet's floor, and not less. Where
    neither is written a CPU must not be very slow.
    """
    if profile.min_tps is not None:
        return max(profile.min_tps, policy.min_tps or 0.0)
    if policy.min_tps is not None:
        return policy.min_tps
    return None if profile.gpu else VERY_SLOW_TPS


def files_of(model: Model, lock: Lock | None) -> Files | None:
    """A model's files by its lock. None: it does not say what they are."""
    if lock is None or not lock.facts or not lock.total_bytes:
        return None
    try:
        shape = from_facts(lock.facts)
    except OperatorError:
        # Facts that a later version wrote.
        return None
    return Files(model.name, shape, lock.total_bytes) if shape.known and shape.answers else None


def pace_of(model: Model, profile: Profile, lock: Lock | None, machines: Iterable[Machine]) -> Pace | None:
    """How fast it would answer on the machine that does best. None: too little is known.

    Args:
        model: whose profile it is.
        profile: as it is run.
        lock: what its source was found to be.
        machines: of the fleet, those that its labels allow. Where the host's memory has a part in it and one of
            them has not measured that, nothing is known: a guess refuses nobody.
    """
    files = files_of(model, lock)
    if files is None or profile.engine == "command" or model.kind == "embedding":
        return None
    options = options_of(model, profile) if profile.engine == "llamacpp" else LlamaOptions()
    memory = (profile.memory_gib or 0) * GIB
    able = [m for m in machines if m.memory_bytes >= memory]
    on_host = profile.gpu is None or profile.gpu_layers is not None or bool(profile.cpu_moe)
    if on_host and any(m.memory_gbs is None for m in able):
        return None
    if profile.gpu is None:
        cores = profile.threads or profile.cpu_cores or 0
        paces = [speed_of(files, profile.engine, CPU, options, host, cpu_cores=cores) for host in able]
    else:
        gpu = profile.gpu
        paces = [
            speed_of(files, profile.engine, Place(cards.card, gpu.count, cards.card_class), options, machine)
            for machine in able
            for cards in machine.cards
            if cards.card_class == gpu.class_ and cards.count >= gpu.count
        ]
    known = [Pace(tps, basis) for tps, basis in paces if tps is not None]
    return max(known, key=lambda pace: (pace.tps, pace.basis), default=None)


def allowed(profile: Profile, server: Server | None, nodes: Iterable[NodeSeen]) -> Iterator[Machine]:
    """The machines that a profile's labels allow, of those that have said what they have."""
    labels = {node.name: node.labels for node in server.nodes} if server else {}
    for node in nodes:
        has: Mapping[str, str] = labels.get(node.name, {})
        if node.inventory is not None and profile.node_selector.items() <= has.items():
            yield machine_of(node.name, node.inventory)


def judged(catalog: Catalog) -> bool:
    """Whether some profile has a floor, and files that it can be held against."""
    if catalog.server is None:
        return False
    policy = catalog.server.policy
    return any(
        files_of(entry.model, catalog.locks.get(entry.model.name)) is not None
        and any(floor_of(profile, policy) is not None for profile in entry.model.profiles)
        for entry in catalog.models
    )


def paced(catalog: Catalog, nodes: Iterable[NodeSeen] = (), last: Wanted | None = None) -> Catalog:
    """The catalog without the models that would answer slower than they may: they stay as they last were good.

    One that is wanted already as it is written is not judged again: what is
    measured later moves nothing.

    Args:
        catalog: every file, read and checked.
        nodes: as they were last seen.
        last: what is wanted now.
    """
    if catalog.server is None:
        return catalog
    seen = tuple(nodes)
    known = {name: entry.model for name, entry in last.models.items()} if last else {}
    slow: dict[str, list[Problem]] = {}
    for entry in catalog.models:
        if known.get(entry.model.name) != entry.model and (found := list(_problems(entry, catalog, seen))):
            slow[entry.model.name] = found
    if not slow:
        return catalog
    more = [problem for problems in slow.values() for problem in problems]
    return replace(
        catalog,
        models=tuple(entry for entry in catalog.models if entry.model.name not in slow),
        locks={name: lock for name, lock in catalog.locks.items() if name not in slow},
        problems=tuple(sorted({*catalog.problems, *more})),
        frozen=tuple(sorted({*catalog.frozen, *slow})),
    )


def _problems(entry: Entry, catalog: Catalog, nodes: Iterable[NodeSeen]) -> Iterator[Problem]:
    assert catalog.server is not None, "asked only of a fleet"
    model, lock = entry.model, catalog.locks.get(entry.model.name)
    for index, profile in enumerate(model.profiles):
        floor = floor_of(profile, catalog.server.policy)
        if floor is None:
            continue
        pace = pace_of(model, profile, lock, allowed(profile, catalog.server, nodes))
        if pace is None or pace.tps >= floor:
            continue
        why = f"{said(pace.tps)} is predicted ({pace.basis}), so that {reply(pace.tps)}; {_asks(profile, catalog)}"
        least = int(pace.tps * 10) / 10
        may = (catalog.server.policy.min_tps or 0.0) <= least
        do = "place it on cards, or take a model with fewer bits or fewer active weights"
        if may and least > 0:
            do += f"; if it is meant, write `min_tps: {least:g}` in the profile"
        place = entry.place(("profiles", index))
        yield Problem(entry.path, *place, f"profile {profile.name} would be too slow", why, do, model.name)


def _asks(profile: Profile, catalog: Catalog) -> str:
    """Which floor it does not reach."""
    assert catalog.server is not None, "asked only of a fleet"
    fleet = catalog.server.policy.min_tps
    if profile.min_tps is not None and profile.min_tps >= (fleet or 0.0):
        return f"its `min_tps` is {profile.min_tps:g}"
    if fleet is not None:
        return f"`policy.min_tps` of server.yaml is {fleet:g}"
    return f"a CPU profile is not under {VERY_SLOW_TPS:g} unless its `min_tps` says that it may be"
