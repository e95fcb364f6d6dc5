"""What one commit asks for, once every file of it has been judged.

A file that cannot be used freezes its own models as they last were and leaves
the others alone; a commit that would remove more than the policy allows removes
nothing until another commit says how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from llmgw.catalog.check import SERVER, Catalog
from llmgw.catalog.fingerprint import fingerprint
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.catalog.problem import Problem
from llmgw.catalog.profile import Profile
from llmgw.catalog.server import Server
from llmgw.core.references import Files, References, own_key, same_files
from llmgw.planning.claim import claimed_gib, rounded
from llmgw.units import GIB

ALLOW_REMOVALS = "Llmgw-Allow-Removals"
"""The trailer that lets a commit remove this many models."""

_PROTECTED = "not removed: it is protected; take `protect` out of its file in one commit, and remove it in the next"


PURGE = "Llmgw-Purge"
"""The trailer that names a model whose files are freed as soon as nothing refers to them."""


@dataclass(frozen=True)
class WantedModel:
    """One model, as this commit or, where it is frozen, an earlier one asks for it."""

    model: Model
    path: str
    """The file of the catalog it is written in."""
    commit: str
    """The commit its spec is of."""
    since: int = 0
    """UTC seconds of that commit; 0 is unknown."""
    frozen: str = ""
    """Why this is not what the head says: a sentence. Empty: it is."""
    lock: Lock | None = None
    """What its source was found to be. None: it was not locked, or that is not known any more."""
    shared: str = ""
    """The change of server.yaml that made it what it is, in words, where one did: others share it."""
    raised: Mapping[str, float] = field(default_factory=dict)
    """By what the memory that is worked out for a profile is multiplied, as runs of its kind or its own took it."""
    fleet_stopped: bool = False
    """Whether server.yaml stops the whole fleet. No part of the model: taken out, it brings back what ran."""
    author: str = ""
    """Of its commit, `Name <address>`. Empty is unknown."""
    held_as: str = ""
    """The key of another name that has its weights, as after a rename. Empty: they are held under its own."""

    @property
    def version_key(self) -> str:
        """`name/version` that its weights are held under, or empty for a model read in place."""
        return self.held_as or own_key(self.model)

    @property
    def stopped(self) -> bool:
        """Whether none of it is to run."""
        return self.fleet_stopped or self.model.state == "stopped"

    @cached_property
    def sized(self) -> Model:
        """The model with the memory of each profile: what is written, or what is worked out from its lock.

        What runs is never compared with this: a better estimate makes nothing out of date.
        """
        if all(p.memory_is_written for p in self.model.profiles):
            return self.model
        profiles = tuple(
            p if p.memory_is_written else p.model_copy(update={"memory_gib": self._worked_out(p)})
            for p in self.model.profiles
        )
        return self.model.model_copy(update={"profiles": profiles})

    def _worked_out(self, profile: Profile) -> float | None:
        found, factor = claimed_gib(self.model, profile, self.lock), self.raised.get(profile.name, 1.0)
        # What cannot be worked out is as it is written, if it is.
        return profile.memory_gib if found is None else rounded(found * factor * GIB) / GIB

    def claiming(self, raised: Mapping[str, float]) -> WantedModel:
        """The same, with more memory for what is placed from now on."""
        again = replace(self, raised=raised)
        # No part of a fingerprint, and these are worth keeping: they are asked for in every pass.
        again.__dict__["outcomes"] = self.outcomes
        return again

    @cached_property
    def outcomes(self) -> Mapping[str, str]:
        """The fingerprint of what should run, by profile. Made once for all passes."""
        return {p.name: fingerprint(self.model, p) for p in self.model.profiles}


@dataclass(frozen=True, slots=True)
class WantedKey:
    """One client key that is good."""

    key: ClientKey
    path: str
    """The file of the repository it is written in."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that is wanted of the fleet."""

    commit: str
    committed_at: int
    server: Server
    models: Mapping[str, WantedModel] = field(default_factory=dict)
    """By name, in order of names."""
    keys: tuple[WantedKey, ...] = ()
    problems: tuple[Problem, ...] = ()
    held: tuple[str, ...] = ()
    """Guards that keep the commit from removing what it would: sentences with what lifts them."""
    applied: str = ""
    """The last commit that nothing was held of: what lifts a guard counts after it."""
    purged: frozenset[str] = frozenset()
    """Models whose files are not kept once nothing refers to them."""
    complete: bool = True
    """Whether what is not in `models` is really not wanted. False while a file cannot be read."""


def judge(
    catalog: Catalog,
    *,
    commit: str,
    committed_at: int,
    last: Wanted | None,
    author: str = "",
    running: Iterable[str] = (),
    held: Files | None = None,
    allowed_removals: int | None = None,
    purged: Iterable[str] = (),
) -> Wanted | None:
    """What is wanted at `commit`, or None where that cannot be known.

    Args:
        catalog: every file of the commit, read and checked.
        commit: its id.
        committed_at: its time, in UTC seconds.
        last: what was wanted before, from the last pass or the status branch.
        author: of the commit, `Name <address>`. Empty is unknown.
        running: names of models that replicas run of, whether or not they are in `last`.
        held: what the mirror has whole and what nodes have, as `held_files` says.
        allowed_removals: the highest count of the removal trailers since the last applied commit.
        purged: the names in the purge trailers since then.
    """
    server = catalog.server or (last.server if last else None)
    if server is None:
        return None
    before, held = dict(last.models) if last else {}, held or {}
    models = {
        name: _entry(
            before.get(name),
            WantedModel(entry.model, entry.path, commit, committed_at, author=author, lock=catalog.locks.get(name)),
        )
        for entry in catalog.models
        for name in [entry.model.name]
    }
    for name, entry in models.items():
        if why := _rebuilt(entry, before.get(name), held):
            models[name] = replace(before[name], frozen=why)
    for name, kept in sorted(before.items()):
        if name not in models and (why := _why_frozen(name, kept, catalog)):
            models[name] = replace(kept, frozen=why)
    for name, kept in sorted(before.items()):
        if name not in models and kept.model.protect:
            models[name] = replace(kept, frozen=_PROTECTED)
    refers = References(models, before, held)
    models = {
        n: m if m.frozen or m.held_as == (key := refers.of(n)) else replace(m, held_as=key) for n, m in models.items()
    }
    if last is not None:
        models = {n: _by_sharing(m, before.get(n), last.server, server, commit) for n, m in models.items()}
    stopped = server.state == "stopped"
    models = {n: m if m.fleet_stopped is stopped else replace(m, fleet_stopped=stopped) for n, m in models.items()}
    wanted = Wanted(
        commit=commit,
        committed_at=committed_at,
        server=server,
        models=dict(sorted(models.items())),
        keys=_keys(catalog, last),
        problems=catalog.problems,
        complete=not catalog.unreadable_paths,
        applied=commit,
        # Until its replicas have stopped more commits may come; one that brings the model back takes it back.
        purged=frozenset({*_had({*purged}, before), *(last.purged if last else ())} - models.keys()),
    )
    return _guarded(wanted, last, set(running), allowed_removals)


def _keys(catalog: Catalog, last: Wanted | None) -> tuple[WantedKey, ...]:
    """The good keys. A file with a problem keeps those it last had: clients must not be shut out by a slip."""
    keys = {e.key.sha256: WantedKey(e.key, e.path) for e in catalog.keys}
    broken = {p.path for p in catalog.problems if p.path.startswith("keys/")}
    for known in last.keys if last else ():
        if known.path in broken:
            keys.setdefault(known.key.sha256, known)
    return tuple(keys[sha] for sha in sorted(keys))


def _entry(known: WantedModel | None, new: WantedModel) -> WantedModel:
    """A model as a commit asks for it. One that is as it was is the one that was: much is worked out of each."""
    if known is None or not (known.model is new.model or known.model == new.model):
        return new
    as_it_was = (known.path, known.frozen, known.held_as) == (new.path, "", "")
    if as_it_was and (known.lock is new.lock or known.lock == new.lock):
        return known
    # The commit that changed a model is worth more to a reader than the newest one.
    return replace(known, path=new.path, frozen="", held_as="", lock=new.lock)


def _by_sharing(entry: WantedModel, known: WantedModel | None, was: Server, now: Server, commit: str) -> WantedModel:
    """The entry, marked where what restarts it is something that many models are read with."""
    if known is None or known is entry or known.outcomes == entry.outcomes:
        return entry
    block = entry.model.extends
    if block and was.blocks.get(block) != now.blocks.get(block):
        return replace(entry, shared=f"the change of block {block} in {commit[:8]}")
    if was.defaults != now.defaults:
        return replace(entry, shared=f"the change of defaults in {commit[:8]}")
    return entry


def _had(names: Iterable[str], before: Mapping[str, WantedModel]) -> Iterable[str]:
    """Some names of models, and those that their weights are held under."""
    return {*names, *(before[n].version_key.partition("/")[0] for n in names if n in before)} - {""}


def _rebuilt(entry: WantedModel, known: WantedModel | None, held: Files) -> str:
    """Why a changed source cannot be told from the files that are held under its version."""
    now = entry.model.source
    if known is None or known is entry or known.model.source.version != now.version or same_files(known, entry):
        return ""
    if known.version_key not in held:
        return ""
    return (
        f"stays as it was at {known.commit[:8]}: its source changed and its version {now.version} did not, "
        "which the mirror holds already; give the new files a new version"
    )


def _why_frozen(name: str, kept: WantedModel, catalog: Catalog) -> str:
    if name in catalog.frozen:
        mine = [p for p in catalog.problems if p.model == name or p.path in {kept.path, SERVER}]
        return f"stays as it was at {kept.commit[:8]}: {mine[0].line_form() if mine else 'its file has a problem'}"
    if catalog.unreadable_paths:
        return f"not removed while {', '.join(catalog.unreadable_paths[:3])} cannot be read"
    return ""


def _guarded(wanted: Wanted, last: Wanted | None, running: set[str], allowed: int | None) -> Wanted:
    before = dict(last.models) if last else {}
    known = set(before) | running
    gone = sorted(known - set(wanted.models))
    if not gone or not wanted.complete:
        return wanted
    # The guard of the last applied commit counts: the one judged could lift its own.
    policy = (last.server if last else wanted.server).policy
    limit = policy.max_removals if policy.max_removals is not None else max(3, len(known) // 4)
    empty = not wanted.models
    if not (empty or len(gone) > limit) or (allowed or 0) >= len(gone):
        return wanted
    what = "its catalog is empty" if empty else f"at most {limit} may go at once"
    why = (
        f"commit {wanted.commit[:8]} would remove {len(gone)} of {len(known)} models ({', '.join(gone[:5])}"
        f"{' …' if len(gone) > 5 else ''}) and {what}; to remove them, push a commit with the line "
        f"`{ALLOW_REMOVALS}: {len(gone)}` at its end"
    )
    kept = {name: replace(before[name], frozen="its removal is held") for name in gone if name in before}
    return replace(
        wanted,
        # Nor may it be lifted by the next commit in the name of this one's policy.
        server=wanted.server.model_copy(update={"policy": policy}),
        models=dict(sorted({**wanted.models, **kept}.items())),
        held=(why,),
        applied=last.applied if last else "",
        # What runs of a model nobody has a spec of is kept as well, and not explained.
        complete=False,
    )


def purged_names(trailers: Iterable[tuple[str, str]]) -> Iterable[str]:
    """The models that the purge trailers name, as keys and values."""
    return (value.strip() for key, value in trailers if key.lower() == PURGE.lower())


def allowed_removals(trailers: Iterable[tuple[str, str]]) -> int | None:
    """The highest count of the removal trailers, as keys and values. One that is no number allows nothing."""
    counts = [int(value) for key, value in trailers if key.lower() == ALLOW_REMOVALS.lower() and value.isdecimal()]
    return max(counts, default=None)
