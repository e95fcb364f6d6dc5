"""Step 6 of a pass: whose weights can be had, what the mirror fetches, and what it may remove.

The mirror is asked before a node is, and a node before a start: a replica is
placed only when the files of its version are known, with their sums.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from msgspec import structs

from llmgw.catalog.lock import Lock, written_sum
from llmgw.catalog.model import Model
from llmgw.catalog.source import Source
from llmgw.core.actions import Fetch, Held, Remove
from llmgw.core.backoff import LONGEST_S, delay_s
from llmgw.core.holdings import Failure, Holding, HoldingState, MirrorSeen, WantedFile
from llmgw.core.memory import FetchTries, Memory, MirrorRefusal, Purge
from llmgw.core.mirror_disk import MirrorDisk
from llmgw.core.needs import RANK
from llmgw.core.observed import Observed
from llmgw.core.purges import purges
from llmgw.core.references import same_files
from llmgw.core.replicas import Fleet
from llmgw.core.retention import Retention, retention
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.units import show_bytes
from llmgw_agent.protocol import Phase, WeightFile


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
    kept: Retention
    purges: tuple[Purge, ...]
    at: Mapping[str, frozenset[str] | None]
    """By model: the nodes that have its version whole. None: a path, where nothing is fetched."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each version, by key."""
        return {key: sum(f.bytes for f in files) for key, files in self.files.items()}


def artifacts(wanted: Wanted, seen: Observed, fleet: Fleet, memory: Memory, now: float) -> Artifacts:
    """Decide fetches and removals, and say for each model whether its weights can be had."""
    holdings = {h.key: h for h in seen.mirror.holdings} if seen.mirror else {}
    files = {**memory.files, **{k: h.files for k, h in holdings.items() if h.state is HoldingState.PRESENT}}
    kept = retention(wanted, holdings, fleet, memory, now)
    asking = _Asking(wanted, seen.mirror, kept, memory.fetches, now)
    ready: dict[str, tuple[WeightFile, ...]] = {}
    held: dict[str, Held] = {}
    lent = {w.held_as: w for w in wanted.models.values() if w.held_as}
    # The mirror fetches what it is asked first, and room goes to whose class is the highest.
    for name, entry in sorted(wanted.models.items(), key=lambda m: (RANK[m[1].model.class_], m[1].stopped, m[0])):
        key = entry.version_key
        if not key:
            ready[name] = ()
            continue
        if key in lent and not same_files(lent[key], entry):
            why = f"{key} is what the weights of {lent[key].model.name} are held under, and they are others"
            held[name] = Held(name, why, next="give its source another version", model=name, stalled=True)
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
        elif why := _wrong_sums(entry):
            held[name] = _not_had(entry.model, why, "name that file in checksums, or lock it: llmgw lock")
        elif entry.stopped and not entry.model.source.prefetch:
            held[name] = Held(name, "it is stopped, so its weights are not fetched", model=name)
        else:
            held[name] = asking.arriving(entry, holding)
    gone = [
        Remove(h.name, h.version, kept.why(key))
        for key, h in sorted(holdings.items())
        if h.origin == "catalog" and kept.over(key, now)
    ]
    released = [r for r in asking.released if r not in gone]
    stay = {k: v for k, v in sorted(files.items()) if seen.mirror is None or k in holdings}
    done = purges(wanted, holdings if seen.mirror else None, fleet, memory)
    actions: tuple[Fetch | Remove, ...] = (*asking.actions, *released, *gone)
    return Artifacts(ready, held, actions, asking.fetches, stay, kept, done, _at(wanted, fleet))


def _at(wanted: Wanted, fleet: Fleet) -> dict[str, frozenset[str] | None]:
    holders: dict[str, set[str]] = defaultdict(set)
    for name, node in fleet.nodes.items():
        for version in node.seen.versions:
            if version.state == "held":
                holders[version.key].add(name)
    found: dict[str, frozenset[str] | None] = {}
    for name, entry in wanted.models.items():
        found[name] = None
        if key := entry.version_key:
            runs = {r.node for r in fleet.of(name) if r.version == key and r.phase is Phase.READY}
            found[name] = frozenset(holders[key] | runs)
    return found


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


class _Asking:
    """What the mirror is asked to fetch, in one pass."""

    def __init__(
        self,
        wanted: Wanted,
        seen: MirrorSeen | None,
        kept: Retention,
        before: Mapping[str, FetchTries],
        now: float,
    ) -> None:
        self.actions: list[Fetch] = []
        self.fetches: dict[str, FetchTries] = {}
        self._said: dict[str, Held] = {}
        self._before, self._now = before, now
        self._boot = seen.boot if seen else ""
        self._disk = None
        if wanted.server.mirror is not None and seen is not None:
            sizes = {w.version_key: size for w in wanted.models.values() if (size := _locked_size(w.lock))}
            self._disk = MirrorDisk(wanted.server.mirror, seen, kept, sizes)

    @property
    def released(self) -> list[Remove]:
        """What goes before its time to make room."""
        return self._disk.removals if self._disk else []

    def arriving(self, entry: WantedModel, holding: Holding | None) -> Held:
        """Have a version fetched that is not held whole, and say how far that is."""
        key, name = entry.version_key, entry.model.name
        if key not in self._said:
            self._said[key] = self._arriving(entry, holding)
        # Of models that share one version the first asks for it.
        return structs.replace(self._said[key], subject=name, model=name)

    def _arriving(self, entry: WantedModel, holding: Holding | None) -> Held:
        model, source, key = entry.model, _digest(entry), entry.version_key
        tries = self._before.get(key)
        known = tries if tries and tries.source == source else None
        if known and known.refused:
            if known.refused.boot == self._boot:
                self.fetches[key] = known
                return _not_had(model, f"the mirror does not fetch its weights: {known.refused.why}", known.refused.do)
            known = None
        if holding is None or (holding.state is HoldingState.FAILED and known is None):
            # Not there, or failed for a source that the catalog has changed since.
            asked = known.count + 1 if known else 0
            # An ask that the mirror could not take, or that was lost, is made again later each time.
            after = FetchTries(source, asked, self._now + delay_s(asked + 1))
            return self._ask(entry, holding, known, after, "the catalog asks for it") or Held(
                model.name, "the mirror is asked for its weights", model=model.name
            )
        known = known or FetchTries(source)
        if holding.state is not HoldingState.FAILED:
            self.fetches[key] = known
            return _under_way(model, holding, known)
        failure = holding.failure or Failure("upstream", "the mirror does not say why")
        if failure.lasting:
            self.fetches[key] = known
            why = f"the mirror could not get its weights: {failure.message}"
            return _not_had(model, why, failure.do or "change its source")
        failed = known.count + 1
        after = FetchTries(source, failed, self._now + delay_s(failed), failure.message)
        waits = structs.replace(known, failure=failure.message)
        return self._ask(entry, holding, waits, after, f"try {failed + 1}, after: {failure.message}") or Held(
            model.name,
            f"its weights are tried again: {failure.message}",
            next=failure.do,
            model=model.name,
            kind="fetch_failed",
        )

    def _ask(
        self, entry: WantedModel, holding: Holding | None, known: FetchTries | None, after: FetchTries, why: str
    ) -> Held | None:
        """Ask if it is time and there is room. Why not, where there is none.

        Args:
            entry: the model.
            holding: what the mirror has of it, failed.
            known: what is remembered of earlier tries; None: there was none.
            after: what is remembered once it is asked.
            why: the reason that is said with the action.
        """
        model, key = entry.model, entry.version_key
        size = _locked_size(entry.lock)
        if size is None and holding is not None:
            size = holding.total_bytes
        have = holding.done_bytes if holding else 0
        full = self._disk.admit(model.name, key, size, have) if self._disk else None
        if not full and (known is None or _due(known, self._now)):
            self.fetches[key] = after
            unsure = "" if size is not None else "; its size is not known, so whether it fits is for the mirror to see"
            self.actions.append(_fetch(entry, retry=holding is not None, why=why + unsure))
        elif known is not None:
            self.fetches[key] = known
        return full


def _under_way(model: Model, holding: Holding, known: FetchTries) -> Held:
    if holding.done_bytes or not known.failure:
        total = f" of {show_bytes(holding.total_bytes)}" if holding.total_bytes else ""
        arrived = f"{show_bytes(holding.done_bytes)}{total}"
        return Held(model.name, "the mirror fetches its weights", arrived, model=model.name)
    # A try that has brought nothing yet is no better than the last one.
    return Held(model.name, f"its weights are tried again: {known.failure}", model=model.name, kind="fetch_failed")


def _locked_size(lock: Lock | None) -> int | None:
    """Bytes of all files of a version, or None where the lock does not say them all."""
    sizes = [file.bytes for file in lock.files] if lock else []
    known = [size for size in sizes if size is not None]
    return sum(known) if sizes and len(known) == len(sizes) else None


def _due(tries: FetchTries, now: float) -> bool:
    """Whether it may be tried again. No wait is longer than the longest, whatever a clock said."""
    return not 0 < tries.next_at - now <= LONGEST_S


def _not_had(model: Model, why: str, do: str) -> Held:
    return Held(model.name, why, next=do, model=model.name, stalled=True, kind="fetch_failed")


def _fetch(entry: WantedModel, *, retry: bool, why: str) -> Fetch:
    source, name = entry.model.source, entry.version_key.partition("/")[0]
    files = _files(entry.lock, source) if entry.lock else ()
    sha256 = written_sum(source, _one_file(source), 1)
    return Fetch(name, str(source.version), source.from_, sha256, retry, why, files)


def _wrong_sums(entry: WantedModel) -> str:
    """Why sums that a model writes would be of nothing. With a lock, the catalog's own check has compared them."""
    source = entry.model.source
    if entry.lock is not None or not source.checksums or _one_file(source) in source.checksums:
        return ""
    return f"its checksums are not of {_one_file(source)}, the file that its source names"


def _one_file(source: Source) -> str:
    """The name of the file that a source without a lock is."""
    return unquote(urlsplit(source.from_).path).rpartition("/")[2]


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
    text += "".join(f"\n{path} {sha256}" for path, sha256 in source.checksums.items())
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
