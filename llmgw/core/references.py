"""Under which key a model's weights are held: its own, or that of the same files, which another name had first.

It is decided with each commit and goes with the model from then on, through the status branch as
well: so it is the same in every pass, whatever is away or forgotten meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from llmgw.catalog.lock import Lock, asked, written_sum
from llmgw.catalog.model import Model
from llmgw.core.holdings import HoldingState
from llmgw.core.observed import Observed
from llmgw_agent.protocol import WeightFile

Files = Mapping[str, tuple[WeightFile, ...]]
"""What is held, by key. Of some it is not known which files they are: an empty tuple."""


class Asking(Protocol):
    """A model with what its files are known to be."""

    @property
    def model(self) -> Model: ...
    @property
    def lock(self) -> Lock | None: ...
    @property
    def version_key(self) -> str: ...


def own_key(model: Model) -> str:
    """`name/version` of a mirrored model, or empty for one read in place."""
    return "" if model.source.is_path else f"{model.name}/{model.source.version}"


def other_key(model: Model, key: str) -> str:
    """A key that was written down for a model, where it is that of another name and can be meant; else empty."""
    name, _, version = key.partition("/")
    return key if name and key != own_key(model) and version == model.source.version else ""


def held_files(seen: Observed, remembered: Files) -> dict[str, tuple[WeightFile, ...]]:
    """What the mirror has whole, or had when it was last seen, and what nodes have."""
    on_nodes = {v.key: () for n in seen.nodes for v in n.versions if v.state == "held"}
    if seen.mirror is None:
        return {**on_nodes, **remembered}
    return {**on_nodes, **{h.key: h.files for h in seen.mirror.holdings if h.state is HoldingState.PRESENT}}


def same_files(one: Asking, other: Asking) -> bool:
    """Whether two models ask for the same files, as far as can be told."""
    if one is other:
        return True
    was, now = one.model.source, other.model.source
    locked = _agree(one.lock, other.lock)
    if locked or (was.sha256 is not None and was.sha256 == now.sha256):
        return True
    return locked is None and was.from_ == now.from_ and None in (was.sha256, now.sha256)


def _agree(one: Lock | None, other: Lock | None) -> bool | None:
    """Whether two locks are of the same files. None: that cannot be told."""
    if one is None or other is None:
        return None
    mine, theirs = ({file.path: file for file in lock.files} for lock in (one, other))
    if mine.keys() != theirs.keys():
        return False
    sums = [(mine[path].sha256, theirs[path].sha256) for path in mine]
    sizes = [(mine[path].bytes, theirs[path].bytes) for path in mine]
    if any(None not in pair and pair[0] != pair[1] for pair in (*sums, *sizes)):
        return False
    return True if all(None not in pair for pair in sums) else None


@dataclass(frozen=True)
class References:
    """What the models of a commit may refer to."""

    models: Mapping[str, Asking]
    """Of the commit, by name."""
    before: Mapping[str, Asking]
    """What was wanted before it, by name."""
    held: Files = field(default_factory=dict)

    def of(self, name: str) -> str:
        """The key of another name that has the weights of a model. Empty: they are held under its own.

        What it refers to already stays, unless a model that has that name now is to have other files there and
        nothing is there yet. Else its own comes first, and then what is known to be the same.
        """
        mine, known = self.models[name], self.before.get(name)
        own = own_key(mine.model)
        if not own:
            return ""
        if known is not None and same_files(known, mine):
            kept = other_key(mine.model, known.version_key)
            if kept and (kept in self.held or not self._claimed(kept, mine)) and not self._differs(kept, mine):
                return kept
        if own in self.held:
            return ""
        found = (k for k in self._same(mine) if not self._claimed(k, mine) and not self._differs(k, mine))
        return next(found, "")

    def _same(self, mine: Asking) -> Iterator[str]:
        """Keys of the same version that were asked for with the same source, and then those of the same sums."""
        fetched = asked(mine.model.source)
        for other in self._asked.get(mine.model.source.from_, ()):
            if asked(other.model.source) == fetched and same_files(other, mine):
                yield from filter(None, [other_key(mine.model, other.version_key)])
        for key in self._summed.get(frozenset(_sums(mine)), ()):
            if other_key(mine.model, key) and self._is(key, mine):
                yield key

    @cached_property
    def _asked(self) -> Mapping[str, list[Asking]]:
        """What was wanted before, by where its source is."""
        found: dict[str, list[Asking]] = defaultdict(list)
        for _, entry in sorted(self.before.items()):
            found[entry.model.source.from_].append(entry)
        return found

    @cached_property
    def _summed(self) -> Mapping[frozenset[str], list[str]]:
        """What is held, by the sums of all its files."""
        found: dict[frozenset[str], list[str]] = defaultdict(list)
        for key, files in sorted(self.held.items()):
            if files:
                found[frozenset(f.sha256 for f in files)].append(key)
        return found

    def _claimed(self, key: str, mine: Asking) -> bool:
        """Whether a key is that of a model of the catalog which has other files."""
        other = self.models.get(key.partition("/")[0])
        return other is not None and other.version_key == key and not same_files(other, mine)

    def _differs(self, key: str, mine: Asking) -> bool:
        """Whether what is held under a key is seen not to be what a model asks for."""
        files = self.held.get(key, ())
        return any(mine_ and mine_ != theirs for mine_, theirs in _beside(files, mine)) or (
            bool(files) and mine.lock is not None and {f.path for f in files} != {f.path for f in mine.lock.files}
        )

    def _is(self, key: str, mine: Asking) -> bool:
        """Whether what is held under a key is seen to be what a model asks for."""
        files = self.held.get(key, ())
        return bool(files) and all(mine_ == theirs for mine_, theirs in _beside(files, mine))


def _sums(mine: Asking) -> Iterable[str]:
    """The sha256 of all that a model asks for, as far as they are known."""
    source, lock = mine.model.source, mine.lock
    if lock is None:
        return [source.sha256] if source.sha256 else source.checksums.values()
    sums = (written_sum(source, f.path, len(lock.files)) or f.sha256 for f in lock.files)
    return [one for one in sums if one]


def _beside(files: tuple[WeightFile, ...], mine: Asking) -> Iterator[tuple[str | None, str]]:
    """Of each file that is held: the sha256 that a model asks for, if it says one, and the one that it has."""
    locked = {f.path: f.sha256 for f in mine.lock.files} if mine.lock else {}
    for file in files:
        yield written_sum(mine.model.source, file.path, len(files)) or locked.get(file.path), file.sha256
