"""What keeps a version of weights once nothing refers to it, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llmgw.core.holdings import Holding
from llmgw.core.memory import Memory
from llmgw.core.replicas import Fleet
from llmgw.core.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each version is kept, as of one pass."""

    unreferenced: dict[str, float]
    """Since when nothing refers to each version, UTC seconds; 0: it is to be purged."""
    retains: dict[str, float]
    """Seconds that versions are kept, where their model says so itself. It is remembered when the model has gone."""
    default_s: float | None
    """Seconds the others are kept. None: there is no mirror, and nothing is removed."""
    complete: bool
    """Whether all that may refer to something is known. If not, nothing is removed."""

    def over(self, key: str, now: float) -> bool:
        """Whether a version may go."""
        since = self.unreferenced.get(key)
        if since is None or self.default_s is None or not self.complete:
            return False
        return now - since >= (self.retains.get(key, self.default_s) if since else 0.0)

    def spare(self, keys: Iterable[str]) -> list[str]:
        """Those of some versions that are kept by nothing but their retention, the longest unreferenced first."""
        if self.default_s is None or not self.complete:
            return []
        return sorted((k for k in keys if k in self.unreferenced), key=lambda k: (self.unreferenced[k], k))

    def why(self, key: str) -> str:
        """Why one that may go goes."""
        over = "its retention is over" if self.unreferenced[key] else "it is to be purged"
        return f"nothing refers to it, and {over}"


def retention(wanted: Wanted, holdings: Mapping[str, Holding], fleet: Fleet, memory: Memory, now: float) -> Retention:
    """How long everything is kept that the mirror or a node has. After a loss of memory it begins anew."""
    mirror = wanted.server.mirror
    since = _unreferenced(wanted, holdings, fleet, memory, now)
    known = {*since, *holdings, *memory.files}
    return Retention(since, _retains(wanted, memory, known), mirror.retain if mirror else None, wanted.complete)


def _unreferenced(
    wanted: Wanted, holdings: Mapping[str, Holding], fleet: Fleet, memory: Memory, now: float
) -> dict[str, float]:
    """Since when nothing refers to each version.

    What is purged has had no reference for ever, and that is remembered with the rest.
    """
    if not wanted.complete:
        return dict(memory.unreferenced)  # what an unreadable file refers to is not known
    used = {w.version_key for w in wanted.models.values()}
    used |= {r.version for replicas in fleet.replicas.values() for r in replicas}
    # What comes back where a new form does not come up is not fetched again for it.
    used |= {
        good.version
        for key, good in memory.good.items()
        if (entry := wanted.models.get(key.partition("/")[0])) and not entry.stopped
    }
    held = set(holdings) | {v.key for n in fleet.nodes.values() for v in n.seen.versions}
    known = held | set(memory.unreferenced)
    gone = {k for k in known if k not in held and holdings}
    since = {k: memory.unreferenced.get(k, now) for k in sorted(known - used - gone)}
    # Where it may run unseen, a purge does not hurry: it has its retention like everything else.
    purged = wanted.purged - {r.model for rs in fleet.replicas.values() for r in rs if not r.version}
    purged = frozenset() if unseen(fleet) else purged
    return {k: 0.0 if k.partition("/")[0] in purged else at for k, at in since.items()}


def unseen(fleet: Fleet) -> tuple[str, ...]:
    """Nodes that have not spoken since control started, in order: what runs there is not known."""
    return tuple(name for name, node in fleet.nodes.items() if node.seen.age_s is None)


def _retains(wanted: Wanted, memory: Memory, keys: Iterable[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    # One that is held under another name is kept as long as the model says that has it.
    referring = {w.held_as: w for w in wanted.models.values() if w.held_as}
    for key in sorted(keys):
        entry = wanted.models.get(key.partition("/")[0]) or referring.get(key)
        seconds = entry.model.source.retain if entry else memory.retains.get(key)
        if seconds is not None:
            found[key] = seconds
    return found
