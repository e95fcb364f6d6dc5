"""Step 3 of a pass, before anything changes: whose turn it is in a change that many models share.

A default, or a block that models extend, can restart a whole fleet with one line.
One model goes first, of the lowest class and the smallest; when its replicas are
ready and have been so for a while the others follow, a few at a time. What fails,
or answers much slower than before, holds the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from msgspec import structs

from llmgw.core.actions import Held
from llmgw.core.memory import Failures, Memory, Wave
from llmgw.core.needs import RANK
from llmgw.core.replicas import Fleet, Replica, Standing
from llmgw.core.schedule import is_open
from llmgw.core.seats import counts
from llmgw.core.wanted import Wanted, WantedModel

KEPT_SPEED = 0.75
"""The share of its earlier speed that a model must keep for the others to follow it."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Who may not change yet."""

    held: Mapping[str, Held]
    """By model: what it has of an earlier form is left to run, and why."""
    waves: dict[str, Wave]
    """By what is shared: the changes that are under way."""


def take_turns(wanted: Wanted, fleet: Fleet, failures: Mapping[str, Failures], memory: Memory, now: float) -> Turns:
    """Decide whose replicas may change from one form to the next in this pass.

    Args:
        wanted: what the commit asks.
        fleet: the settled fleet.
        failures: as updated in this pass, by model/profile.
        memory: of the last pass, with the numbers of this one.
        now: UTC seconds.
    """
    if window := next((w.name for w in wanted.server.freeze if is_open(w, now)), None):
        why = f"nothing that runs is changed in the freeze window {window}"
        stale = (n for n, entry in wanted.models.items() if _old(entry, fleet.of(n)))
        return Turns({name: Held(name, why, model=name) for name in stale}, memory.waves)
    groups: dict[str, list[WantedModel]] = defaultdict(list)
    for entry in wanted.models.values():
        if entry.shared:
            groups[entry.shared].append(entry)
    held: dict[str, Held] = {}
    waves: dict[str, Wave] = {}
    for shared, entries in sorted(groups.items()):
        group = _Group(shared, entries, fleet, failures, memory)
        if group.old:
            wave = group.seen(memory.waves.get(shared, Wave(since=now)), now)
            waiting, moving = group.waiting(wave, wanted.server.policy.soak, wanted.server.policy.models_at_once, now)
            waves[shared] = structs.replace(wave, moving=moving)
            held |= waiting
    return Turns(held, waves)


def _old(entry: WantedModel, replicas: Collection[Replica]) -> list[Replica]:
    """The replicas of an earlier form. An older agent's says nothing of its form, and is not old.

    What a lost node had counts where nothing else of the profile is there: it comes back as it was.
    """
    there = {r.profile for r in replicas if r.holds}
    return [
        r
        for r in replicas
        if (r.holds or (r.standing is Standing.LOST and not r.leaving and r.profile not in there))
        and r.fingerprint not in ("", entry.outcomes.get(r.profile))
    ]


def _keeps(entry: WantedModel) -> bool:
    """Whether what runs of a model stays in its form, whatever is asked."""
    return entry.model.rollout.freeze or entry.model.rollout.strategy == "keep"


class _Group:
    """The models of one shared change, as they are now."""

    def __init__(
        self,
        shared: str,
        entries: Iterable[WantedModel],
        fleet: Fleet,
        failures: Mapping[str, Failures],
        memory: Memory,
    ) -> None:
        self._shared, self._failures = shared, failures
        # Who keeps what runs takes no turn: nobody is to wait for that one.
        self._entries = {e.model.name: e for e in entries if not _keeps(e)}
        self._wanted = {name: sum(counts(e, memory.scales).values()) for name, e in self._entries.items()}
        self._replicas = {name: [r for r in fleet.of(name) if r.holds] for name in self._entries}
        old = {name: _old(entry, fleet.of(name)) for name, entry in self._entries.items()}
        self.old = {name: replicas for name, replicas in old.items() if replicas}

    def seen(self, wave: Wave, now: float) -> Wave:
        """The wave with what this look adds: who has come through, and how fast the others were before."""
        # A model may have left the catalog, or the change, since it came through.
        through = {name: at for name, at in wave.through.items() if name in self._entries and self._is_through(name)}
        through |= {name: now for name in self._entries if name not in through and self._is_through(name)}
        speeds = {name: tps for name, replicas in self.old.items() if (tps := _speed(replicas)) is not None}
        return structs.replace(wave, through=through, speeds={**speeds, **wave.speeds})

    def waiting(self, wave: Wave, soak: float, at_once: int, now: float) -> tuple[dict[str, Held], tuple[str, ...]]:
        """Who has to wait, and for what; and who may change now."""
        moving = sorted(n for n in self._entries if n not in wave.through and (n in wave.moving or self._has_begun(n)))
        if trouble := self._trouble(wave):
            whose, what = trouble
            why, do = f"{self._shared} goes no further: {whose} {what}", "mend it, or take the change back"
            waits = {name: Held(name, why, next=do, model=name, stalled=True) for name in self.old if name != whose}
            return waits, tuple(moving)
        first = next(iter((*moving, *wave.through, *self._in_order())))
        if any(now - at >= soak for at in wave.through.values()):
            free = max(0, at_once - len(moving))
            allowed = {*moving, *[name for name in self._in_order() if name not in moving][:free]}
            why = f"it waits its turn in {self._shared}"
        else:
            allowed = {*moving} or {first}
            why = f"{first} goes first in {self._shared}, and the others follow once it has served for {soak:.0f} s"
        waits = {name: Held(name, why, model=name) for name in self.old if name not in allowed}
        return waits, tuple(sorted(allowed))

    def _is_through(self, name: str) -> bool:
        """Whether all that is wanted of a model serves in the new form: none wanted proves nothing."""
        serving = sum(r.serves for r in self._replicas[name])
        return name not in self.old and 0 < self._wanted[name] <= serving

    def _has_begun(self, name: str) -> bool:
        """Whether something of it is on its way to the new form."""
        outcomes, changing = self._entries[name].outcomes, self._changing(name)
        if not changing:
            return bool(self._replicas[name])
        return any(r.profile in changing and r.fingerprint == outcomes[r.profile] for r in self._replicas[name])

    def _changing(self, name: str) -> set[str]:
        """Its profiles that have replicas of an earlier form: what the change leaves alone says nothing of it."""
        return {r.profile for r in self.old.get(name, ())}

    def _in_order(self) -> list[str]:
        """The old ones, who goes first first."""

        def size(entry: WantedModel) -> tuple[int, float]:
            takes = ((p.gpu.count if p.gpu else 0, p.memory_gib or 0.0) for p in entry.sized.profiles)
            return min(takes, default=(0, 0.0))

        entries = (self._entries[name] for name in self.old)
        ranked = sorted(entries, key=lambda e: (-RANK[e.model.class_], size(e), e.model.name))
        return [e.model.name for e in ranked]

    def _trouble(self, wave: Wave) -> tuple[str, str] | None:
        """The model that none may follow, and why."""
        for name, entry in sorted(self._entries.items()):
            changing = self._changing(name)
            for profile in entry.model.profiles:
                known = self._failures.get(f"{name}/{profile.name}")
                # What failed before the change came, in a profile that it leaves alone, says nothing of it.
                if known and known.cause and (profile.name in changing or known.last_at >= wave.since):
                    return name, f"fails with it ({known.cause})"
        for name in wave.through:
            before, after = wave.speeds.get(name), _speed(self._replicas[name])
            if before and after is not None and after < before * KEPT_SPEED:
                return name, f"answers with {after:.0f} tokens a second, and did with {before:.0f}"
        return None


def _speed(replicas: Iterable[Replica]) -> float | None:
    """Tokens a second of the one in the middle. None: none has been measured."""
    measured = [r.tps for r in replicas if r.tps is not None]
    return median(measured) if measured else None
