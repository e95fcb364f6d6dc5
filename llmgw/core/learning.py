"""What runs are held against: predictions beside what nodes measure, and what follows for the next ones.

Nothing that runs is touched by it: an estimate that was too low raises what is claimed for the
replicas that are placed from then on, and no claim is made smaller than what was worked out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import Struct

from llmgw.catalog.profile import Profile
from llmgw.core.cards import kind_of
from llmgw.core.machines import card_of
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.replicas import parts
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.learned import (
    CPU,
    About,
    Estimates,
    Figure,
    Kind,
    Learned,
    Margin,
    Run,
    card_speed,
    margin,
    merged,
    published,
    quicker,
    raises,
    shares,
)
from llmgw.planning.machines import ASSUMED_GBS
from llmgw.planning.predicted import Predicted, Spot, predicted, solved
from llmgw_agent.protocol import SILENT_AFTER_S, Claim, Inventory, Phase, ReplicaReport

LOOK_EVERY_S = 60.0
"""Peaks and smoothed speeds move slowly."""
AT_ONCE = 50
"""Profiles on nodes that are worked out at a look, those first that were not for longest."""


def learn(learned: Learned, wanted: Wanted, seen: Observed, now: float) -> Learned:
    """With what nodes report now beside what was predicted of it.

    Args:
        learned: at the last look.
        wanted: what runs.
        seen: what nodes report of it.
        now: UTC seconds.
    """
    if 0 <= now - learned.looked_at < LOOK_EVERY_S:
        return learned
    known = {(run.model, run.profile, run.node): run.at for run in learned.runs}
    there: dict[tuple[str, str, str], list[ReplicaReport]] = defaultdict(list)
    nodes = {node.name: node for node in seen.nodes if node.age_s is not None and node.age_s <= SILENT_AFTER_S}
    for node in nodes.values():
        for report in node.replicas:
            model, profile, _ = parts(report.id)
            entry = wanted.models.get(model)
            if entry is not None and _counts(entry, report):
                there[model, profile, node.name].append(report)
    turn = sorted(there, key=lambda key: (known.get(key, 0), key))[:AT_ONCE]
    fresh = (_run(wanted.models[key[0]], nodes[key[2]], there[key], now) for key in turn)
    runs = merged(learned.runs, (run for run in fresh if run is not None))
    return published(Learned(runs, learned.published, now, learned.moved_since), now)


def taught(wanted: Wanted, estimates: Estimates) -> Wanted:
    """What is wanted, claiming what runs say of the memory that is worked out.

    More, where runs of its kind took more; and as much as its own took, where a profile asks for what is measured.
    """
    if not estimates.runs:
        return wanted
    measures = any(p.memory_claim == "measured" for entry in wanted.models.values() for p in entry.model.profiles)
    factors, own = raises(estimates.runs), shares(estimates.runs) if measures else {}
    if not factors and not own:
        return wanted
    return replace(wanted, models={name: _taught(entry, factors, own) for name, entry in wanted.models.items()})


def about(entry: WantedModel, profile: Profile, *, node: str = "") -> About | None:
    """What a prediction of a profile is of, or None where nothing is known of its files."""
    architecture = entry.lock.facts.get("architecture") if entry.lock else None
    if not isinstance(architecture, str):
        return None
    place = (profile.gpu.class_ or "") if profile.gpu else CPU
    return About(profile.engine, architecture, place, profile.engine_version or "", node)


def expected(entry: WantedModel, node: NodeSeen, report: ReplicaReport) -> Predicted | None:
    """What was worked out for a replica that runs as its profile asks now; None where nothing was."""
    found = _where(entry, node, report) if _as_asked(entry, report) else None
    return predicted(entry.model, found[0], entry.lock, found[1]) if found else None


class Foretold(Struct, frozen=True):
    """What is said of a replica before it runs."""

    profile: str
    node: str
    host_bytes: int | None
    card_bytes: int | None
    tps: float | None
    host_margin: Margin | None = None
    """How far off it may be. None: nothing like it has run."""
    card_margin: Margin | None = None
    tps_margin: Margin | None = None


def foretold(entry: WantedModel, node: NodeSeen, report: ReplicaReport, runs: Sequence[Run]) -> Foretold | None:
    """What was worked out for a replica that is placed, corrected by runs like it; None where nothing was.

    Args:
        entry: whose it is.
        node: where it was placed.
        report: as it will be reported once it is there.
        runs: that are known.
    """
    found = _where(entry, node, report)
    if found is None or node.inventory is None:
        return None
    profile, spot = found
    architecture = entry.lock.facts.get("architecture", "") if entry.lock else ""
    built = {e.version for e in node.inventory.engines or () if e.name == profile.engine}
    version = built.pop() if len(built) == 1 else ""
    what = About(profile.engine, str(architecture), _place(node.inventory, report.devices), version, node.name)
    more = raises(runs).get(what.kind, 1.0)
    if profile.memory_gib is None:
        # Its cache of prompts is a part of what was claimed before that was raised.
        spot = replace(spot, claim_bytes=round(spot.claim_bytes / more))
    worked_out = predicted(entry.model, profile, entry.lock, spot)
    if worked_out is None:
        return None
    tps = worked_out.tps
    if tps is not None and (speed := card_speed(runs, what)) is not None:
        tps = (predicted(entry.model, profile, entry.lock, spot, speed=speed) or worked_out).tps
    elif tps is not None:
        tps *= quicker(runs, what)
    return Foretold(
        profile.name,
        node.name,
        None if worked_out.host_bytes is None else round(worked_out.host_bytes * more),
        worked_out.card_bytes,
        None if tps is None else round(tps, 2),
        margin(runs, what, "host"),
        margin(runs, what, "card") if worked_out.card_bytes is not None else None,
        margin(runs, what, "tps") if tps is not None else None,
    )


def _taught(entry: WantedModel, factors: Mapping[Kind, float], own: Mapping[tuple[str, str], float]) -> WantedModel:
    found: dict[str, float] = {}
    for profile in entry.model.profiles:
        what = None if profile.memory_is_written else about(entry, profile)
        if what is None:
            continue
        factor = factors.get((what.engine, what.architecture, what.place))
        if profile.memory_claim == "measured":
            factor = own.get((entry.model.name, profile.name), factor)
        if factor:
            found[profile.name] = factor
    return entry.claiming(found) if found else entry


def _counts(entry: WantedModel, report: ReplicaReport) -> bool:
    """Whether it is as the catalog asks now, and has answered: an idle one has not needed all that it may."""
    served = report.tps is not None or entry.model.kind == "embedding"
    return report.phase is Phase.READY and served and _as_asked(entry, report)


def _as_asked(entry: WantedModel, report: ReplicaReport) -> bool:
    return entry.outcomes.get(parts(report.id)[1]) == report.fingerprint


def _run(entry: WantedModel, node: NodeSeen, reports: Iterable[ReplicaReport], now: float) -> Run | None:
    """Of several replicas of one profile on a node, the one that took most, and the quickest answer."""
    of = sorted(reports, key=lambda r: (-(r.memory_peak_bytes or 0), r.id))
    first = of[0]
    if (found := _where(entry, node, first)) is None:
        return None
    profile, spot = found
    worked_out = predicted(entry.model, profile, entry.lock, spot)
    if worked_out is None:
        return None
    tps = max((r.tps for r in of if r.tps), default=None)
    return Run(
        entry.model.name,
        profile.name,
        node.name,
        profile.engine,
        worked_out.architecture,
        _place(node.inventory, first.devices),
        version=first.engine_version,
        at=int(now),
        host=_figure(worked_out.host_bytes, first.memory_peak_bytes),
        card=_figure(worked_out.card_bytes, max((r.card_peak_bytes or 0 for r in of), default=0)),
        tps=_figure(worked_out.tps, tps),
        speed=solved(profile, entry.lock, spot, tps) if tps else None,
    )


def _where(entry: WantedModel, node: NodeSeen, report: ReplicaReport) -> tuple[Profile, Spot] | None:
    """Its profile, and where it runs; None where either is not known any more."""
    _, name, _ = parts(report.id)
    profile = next((p for p in entry.model.profiles if p.name == name), None)
    spot = _spot(node.inventory, report.devices, report.claim)
    return None if profile is None or spot is None else (profile, spot)


def _figure(worked_out: float | None, found: float | None) -> Figure | None:
    return Figure(round(worked_out, 3), round(found, 3)) if worked_out and found else None


def _spot(inventory: Inventory | None, devices: Iterable[str], claim: Claim | None) -> Spot | None:
    """Where a replica runs, as planning sees it; None where its node does not say, or has other cards by now."""
    if inventory is None:
        return None
    there = {card.uuid: card for card in inventory.cards}
    asked = tuple(devices)
    if not there.keys() >= set(asked):
        return None
    return Spot(
        tuple(card_of(kind_of(there[uuid])) for uuid in asked),
        claim.memory_bytes if claim else 0,
        max(1, claim.cpu_cores if claim else 0),
        inventory.memory_gbs or ASSUMED_GBS,
        inventory.memory_core_gbs or 0.0,
    )


def _place(inventory: Inventory | None, devices: Iterable[str]) -> str:
    asked = set(devices)
    classes = sorted({c.card_class for c in inventory.cards if c.uuid in asked}) if inventory else []
    return "+".join(classes) or CPU
