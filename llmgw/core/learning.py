"""What runs are held against: predictions beside what nodes measure, and what follows for the next ones.

Nothing that runs is touched by it: an estimate that was too low raises what is claimed for the
replicas that are placed from then on, and no claim is made smaller than what was worked out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from llmgw.catalog.profile import Profile
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.replicas import parts
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.cards import Card, find
from llmgw.planning.learned import CPU, About, Estimates, Figure, Kind, Learned, Run, merged, published, raises
from llmgw.planning.machines import ASSUMED_GBS
from llmgw.planning.predicted import Predicted, Spot, predicted, solved
from llmgw_agent.protocol import SILENT_AFTER_S, Inventory, Phase, ReplicaReport
from llmgw_agent.protocol import Card as SeenCard

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
            if entry is not None and _counts(entry, profile, report):
                there[model, profile, node.name].append(report)
    turn = sorted(there, key=lambda key: (known.get(key, 0), key))[:AT_ONCE]
    fresh = (_run(wanted.models[key[0]], nodes[key[2]], there[key], now) for key in turn)
    runs = merged(learned.runs, (run for run in fresh if run is not None))
    return published(Learned(runs, learned.published, now, learned.moved_since), now)


def taught(wanted: Wanted, estimates: Estimates) -> Wanted:
    """What is wanted, claiming more where runs of its kind took more than was worked out."""
    factors = raises(estimates.runs)
    if not factors:
        return wanted
    return replace(wanted, models={name: _taught(entry, factors) for name, entry in wanted.models.items()})


def about(entry: WantedModel, profile: Profile, *, node: str = "") -> About | None:
    """What a prediction of a profile is of, or None where nothing is known of its files."""
    architecture = entry.lock.facts.get("architecture") if entry.lock else None
    if not isinstance(architecture, str):
        return None
    place = (profile.gpu.class_ or "") if profile.gpu else CPU
    return About(profile.engine, architecture, place, profile.engine_version or "", node)


def prediction(
    entry: WantedModel, profile: Profile, node: NodeSeen, devices: Iterable[str], cores: int
) -> Predicted | None:
    """What was worked out for a replica of a profile on a node.

    Args:
        entry: whose profile it is.
        profile: of it.
        node: where it runs.
        devices: UUIDs of its cards.
        cores: that it claims.
    """
    spot = _spot(node.inventory, devices, 0, cores)
    return predicted(entry.model, profile, entry.lock, spot) if spot else None


def measured(entry: WantedModel, node: NodeSeen, report: ReplicaReport) -> Run | None:
    """One replica as it is now beside what was predicted of it; None where nothing was."""
    return _run(entry, node, [report], 0.0)


def _taught(entry: WantedModel, factors: Mapping[Kind, float]) -> WantedModel:
    more: dict[str, float] = {}
    for profile in entry.model.profiles:
        what = about(entry, profile) if profile.memory_gib is None else None
        if what is not None and (factor := factors.get((what.engine, what.architecture, what.place))):
            more[profile.name] = factor
    return entry.claiming(more) if more else entry


def _counts(entry: WantedModel, profile: str, report: ReplicaReport) -> bool:
    """Whether it is as the catalog asks now, and has answered: an idle one has not needed all that it may."""
    served = report.tps is not None or entry.model.kind == "embedding"
    as_asked = report.fingerprint != "" and entry.outcomes.get(profile) == report.fingerprint
    return report.phase is Phase.READY and served and as_asked


def _run(entry: WantedModel, node: NodeSeen, reports: Iterable[ReplicaReport], now: float) -> Run | None:
    """Of several replicas of one profile on a node, the one that took most, and the quickest answer."""
    of = sorted(reports, key=lambda r: (-(r.memory_peak_bytes or 0), r.id))
    first = of[0]
    _, name, _ = parts(first.id)
    profile = next((p for p in entry.model.profiles if p.name == name), None)
    cores = first.claim.cpu_cores if first.claim else 0
    spot = _spot(node.inventory, first.devices, first.claim.memory_bytes if first.claim else 0, cores)
    if profile is None or spot is None:
        return None
    expected = predicted(entry.model, profile, entry.lock, spot)
    if expected is None:
        return None
    tps = max((r.tps for r in of if r.tps), default=None)
    return Run(
        entry.model.name,
        name,
        node.name,
        profile.engine,
        expected.architecture,
        _place(node.inventory, first.devices),
        version=first.engine_version,
        at=int(now),
        host=_figure(expected.host_bytes, first.memory_peak_bytes),
        card=_figure(expected.card_bytes, max((r.card_peak_bytes or 0 for r in of), default=0)),
        tps=_figure(expected.tps, tps),
        speed=solved(profile, entry.lock, spot, tps) if tps else None,
    )


def _figure(expected: float | None, found: float | None) -> Figure | None:
    return Figure(round(expected, 3), round(found, 3)) if expected and found else None


def _spot(inventory: Inventory | None, devices: Iterable[str], claim_bytes: int, cores: int) -> Spot | None:
    """Where a replica runs, as planning sees it; None where its node does not say, or has other cards by now."""
    if inventory is None:
        return None
    there = {card.uuid: card for card in inventory.cards}
    asked = tuple(devices)
    if not there.keys() >= set(asked):
        return None
    return Spot(
        tuple(_card(there[uuid]) for uuid in asked),
        claim_bytes,
        max(1, cores),
        inventory.memory_gbs or ASSUMED_GBS,
        inventory.memory_core_gbs or 0.0,
    )


def _card(card: SeenCard) -> Card:
    """As the table knows it, with the memory that its driver says."""
    known = find(card.name, card.memory_bytes)
    if known is None:
        return Card(card.vendor, card.name, card.memory_bytes, 0.0, None, "", bf16=True, shared=False)
    return replace(known, memory_bytes=card.memory_bytes)


def _place(inventory: Inventory | None, devices: Iterable[str]) -> str:
    asked = set(devices)
    classes = sorted({c.card_class for c in inventory.cards if c.uuid in asked}) if inventory else []
    return "+".join(classes) or CPU
