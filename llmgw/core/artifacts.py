"""Step 6 of a pass: whose weights can be had, what the mirror fetches, and what it may remove.

The mirror is asked before a node is, and a node before a start: a replica is
placed only when the files of its version are known, with their sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from llmgw.catalog.lock import Lock, written_sum
from llmgw.catalog.model import Model
from llmgw.catalog.source import Source
from llmgw.core.actions import Fetch, Held, Remove
from llmgw.core.backoff import LONGEST_S, delay_s
from llmgw.core.holdings import Failure, Holding, HoldingState, WantedFile
from llmgw.core.memory import FetchTries, Memory, MirrorRefusal
from llmgw.core.observed import Observed
from llmgw.core.replicas import Fleet
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.units import show_bytes
from llmgw_agent.protocol import WeightFile


@dataclass(frozen=True, slots=True)
class Artifacts:
    """What is decided about weights in one pass."""

    ready: Mapping[str, tuple[WeightFile, ...]]
    """By model: the files of its version. Empty for a path, where nothing is fetched."""
    held: Mapping[str, Held]
    """By model: why its weights cannot be had yet. Every wanted model is here or in `ready`."""
    actions: tuple[Fetch | Remove, ...]
    fetches: dict[str, FetchTries]
    files: dict[str, tuple[WeightFile, ...]]
    unreferenced: dict[str, float]


def version_key(model: Model) -> str:
    """`name/version` of a mirrored model, or empty for one read in place."""
    return "" if model.source.is_path else f"{model.name}/{model.source.version}"


def artifacts(wanted: Wanted, seen: Observed, fleet: Fleet, memory: Memory, now: float) -> Artifacts:
    """Decide fetches and removals, and say for each model whether its weights can be had."""
    holdings = {h.key: h for h in seen.mirror.holdings} if seen.mirror else {}
    boot = seen.mirror.boot if seen.mirror else ""
    files = {**memory.files, **{k: h.files for k, h in holdings.items() if h.state is HoldingState.PRESENT}}
    ready: dict[str, tuple[WeightFile, ...]] = {}
    held: dict[str, Held] = {}
    actions: list[Fetch | Remove] = []
    fetches: dict[str, FetchTries] = {}
    for name, entry in wanted.models.items():
        key = version_key(entry.model)
        if not key:
            ready[name] = ()
            continue
        if entry.model.source.is_later:
            why = "nobody fetches yet what its source names: that form is planned"
            held[name] = Held(name, why, next="name a file by https:// or hf://", model=name, stalled=True)
            continue
        holding = holdings.get(key)
        if holding is not None and holding.state is HoldingState.PRESENT:
            ready[name] = holding.files
        elif seen.mirror is None or wanted.server.mirror is None:
            if key in files:
                ready[name] = files[key]  # a node may hold it already, or have it from another
            else:
                held[name] = _away(name, wanted)
        elif entry.stopped:
            held[name] = Held(name, "it is stopped, so its weights are not fetched", model=name)
        else:
            held[name] = _arriving(entry, holding, memory.fetches.get(key), now, actions, fetches, boot)
    unreferenced = _unreferenced(wanted, holdings, fleet, memory, now)
    actions += _removals(wanted, holdings, unreferenced, now)
    kept = {k: v for k, v in sorted(files.items()) if seen.mirror is None or k in holdings}
    return Artifacts(ready, held, tuple(actions), fetches, kept, unreferenced)


def _away(name: str, wanted: Wanted) -> Held:
    if wanted.server.mirror is None:
        return Held(
            name,
            "server.yaml names no mirror to fetch its weights",
            next="add mirror: {base, api}",
            model=name,
            stalled=True,
        )
    return Held(
        name,
        "the mirror cannot be reached, and what it holds is not known",
        next=f"see that the mirror runs at {wanted.server.mirror.api}",
        model=name,
    )


def _arriving(
    entry: WantedModel,
    holding: Holding | None,
    tries: FetchTries | None,
    now: float,
    actions: list[Fetch | Remove],
    fetches: dict[str, FetchTries],
    boot: str,
) -> Held:
    model, source = entry.model, _digest(entry)
    known = tries if tries and tries.source == source else None
    version = str(model.source.version)
    key = f"{model.name}/{version}"
    if known and known.refused:
        if known.refused.boot == boot:
            fetches[key] = known
            return _not_had(model, f"the mirror does not fetch its weights: {known.refused.why}", known.refused.do)
        known = None
    if holding is None or (holding.state is HoldingState.FAILED and known is None):
        # Not there, or failed for a source that the catalog has changed since.
        if known is None or _due(known, now):
            asked = known.count + 1 if known else 0
            # An ask that the mirror could not take, or that was lost, is made again later each time.
            fetches[key] = FetchTries(source, asked, now + delay_s(asked + 1))
            actions.append(_fetch(entry, retry=holding is not None, why="the catalog asks for it"))
        else:
            fetches[key] = known
        return Held(model.name, "the mirror is asked for its weights", model=model.name)
    known = known or FetchTries(source)
    fetches[key] = known
    if holding.state is not HoldingState.FAILED and (holding.done_bytes or not known.failure):
        total = f" of {show_bytes(holding.total_bytes)}" if holding.total_bytes else ""
        arrived = f"{show_bytes(holding.done_bytes)}{total}"
        return Held(model.name, "the mirror fetches its weights", arrived, model=model.name)
    if holding.state is not HoldingState.FAILED:
        # A try that has brought nothing yet is no better than the last one.
        return Held(model.name, f"its weights are tried again: {known.failure}", model=model.name)
    failure = holding.failure or Failure("upstream", "the mirror does not say why")
    if failure.lasting:
        why = f"the mirror could not get its weights: {failure.message}"
        return _not_had(model, why, failure.do or "change its source")
    if _due(known, now):
        failed = known.count + 1
        fetches[key] = FetchTries(source, failed, now + delay_s(failed), failure.message)
        actions.append(_fetch(entry, retry=True, why=f"try {failed + 1}, after: {failure.message}"))
    else:
        fetches[key] = structs.replace(known, failure=failure.message)
    return Held(model.name, f"its weights are tried again: {failure.message}", next=failure.do, model=model.name)


def _due(tries: FetchTries, now: float) -> bool:
    """Whether it may be tried again. No wait is longer than the longest, whatever a clock said."""
    return not 0 < tries.next_at - now <= LONGEST_S


def _not_had(model: Model, why: str, do: str) -> Held:
    return Held(model.name, why, next=do, model=model.name, stalled=True)


def _fetch(entry: WantedModel, *, retry: bool, why: str) -> Fetch:
    model, source = entry.model, entry.model.source
    files = _files(entry.lock, source) if entry.lock else ()
    return Fetch(model.name, str(source.version), source.from_, source.sha256, retry, why, files)


def _files(lock: Lock, source: Source) -> tuple[WantedFile, ...]:
    """What the mirror is asked for: the sums and sizes that were locked, and the sums the model itself writes."""
    return tuple(
        WantedFile(file.path, url, file.bytes, written_sum(source, file.path, len(lock.files)) or file.sha256)
        for file, url in zip(lock.files, lock.urls(), strict=True)
        if url
    )


def _digest(entry: WantedModel) -> str:
    """Changes when something else is asked for, so that what failed before is tried again."""
    source = entry.model.source
    text = f"{source.from_}\n{source.version}\n{source.sha256}"
    if entry.lock is not None:
        text += "".join(f"\n{f.path} {f.bytes} {f.sha256}" for f in entry.lock.files) + f"\n{entry.lock.commit}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def refused(memory: Memory, action: Fetch, why: str, do: str, boot: str) -> Memory:
    """What is remembered once the mirror has said that it will not fetch something.

    Args:
        memory: of the pass that asked.
        action: what was asked.
        why: the mirror's own words.
        do: what it says to do.
        boot: the mirror's, when it said so.
    """
    key = f"{action.name}/{action.version}"
    known = memory.fetches.get(key)
    if known is None:
        return memory
    said = structs.replace(known, refused=MirrorRefusal(why, do, boot))
    return structs.replace(memory, fetches={**memory.fetches, key: said})


def _unreferenced(
    wanted: Wanted, holdings: Mapping[str, Holding], fleet: Fleet, memory: Memory, now: float
) -> dict[str, float]:
    """Since when nothing refers to each version. After a loss of memory it begins anew.

    What is purged has had no reference for ever, and that is remembered with the rest.
    """
    if not wanted.complete:
        return dict(memory.unreferenced)  # what an unreadable file refers to is not known
    used = {version_key(w.model) for w in wanted.models.values()}
    used |= {r.version for replicas in fleet.replicas.values() for r in replicas}
    held = set(holdings) | {v.key for n in fleet.nodes.values() for v in n.seen.versions}
    known = held | set(memory.unreferenced)
    gone = {k for k in known if k not in held and holdings}
    since = {k: memory.unreferenced.get(k, now) for k in sorted(known - used - gone)}
    return {k: 0.0 if k.partition("/")[0] in wanted.purged else at for k, at in since.items()}


def _over(since: float) -> str:
    return f"nothing refers to it, and {'its retention is over' if since else 'it is to be purged'}"


def _removals(
    wanted: Wanted, holdings: Mapping[str, Holding], unreferenced: Mapping[str, float], now: float
) -> list[Fetch | Remove]:
    if wanted.server.mirror is None or not wanted.complete:
        return []
    retain = wanted.server.mirror.retain
    return [
        Remove(h.name, h.version, _over(unreferenced[key]))
        for key, h in sorted(holdings.items())
        if h.origin == "catalog" and key in unreferenced and now - unreferenced[key] >= retain
    ]
