"""The catalog that the files of a repository make together, and every problem of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from llmgw.catalog import clients, fleet, pins
from llmgw.catalog.files import (
    SERVER,
    Claim,
    Entry,
    KeyEntry,
    KeyFile,
    ModelFile,
    ServerFile,
    Stray,
    read_keys,
    read_lock,
    read_models,
    read_server,
    read_server_file,
)
from llmgw.catalog.lock import Lock
from llmgw.catalog.pins import LockFile
from llmgw.catalog.planned import Note
from llmgw.catalog.problem import Finding, Problem
from llmgw.catalog.server import Server
from llmgw.catalog.shared import Shared

__all__ = [
    "MISSING_SERVER",
    "SERVER",
    "Catalog",
    "Claim",
    "Entry",
    "KeyFile",
    "ModelFile",
    "assemble",
    "read_fleet",
    "read_keys",
    "read_lock",
    "read_models",
    "read_server",
]

MISSING_SERVER = Problem(
    SERVER,
    0,
    0,
    "server.yaml is missing",
    "it names the fleet, its nodes and who may call it",
    "write it at the top of the repository; `llmgw init` writes one into a new folder",
)

MOST_NAMED = 5
"""Models that a problem of what is brought into them names."""

_KEPT = 20_000
"""Files whose reading is kept: several times the fleet this is made for."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a repository asks for, as far as it can be told, and all that is wrong with it."""

    server: Server | None
    """None: server.yaml is missing, or has a problem."""
    models: tuple[Entry, ...] = ()
    """The good ones, by name."""
    keys: tuple[KeyEntry, ...] = ()
    """The good ones, by name."""
    locks: Mapping[str, Lock] = field(default_factory=dict)
    """Of the good models that have one, by the model's name."""
    read: tuple[Entry, ...] = ()
    """Every model that is good by itself, by name: what it lacks may be its lock, or a name of its own."""
    problems: tuple[Problem, ...] = ()
    """By file, line and column."""
    frozen: tuple[str, ...] = ()
    """Models a file speaks of that cannot be used as it writes them. They stay as they last were good."""
    unreadable_paths: tuple[str, ...] = ()
    """Files under catalog/ that may hold models whose names cannot be told. While
    there is one, no model is removed for being absent."""
    notes: tuple[Note, ...] = ()
    """What is set and does not act yet, by file, line and column."""

    def problems_of(self, model: str) -> tuple[Problem, ...]:
        """What is wrong with a model: its own, and what it is read with."""
        own = tuple(p for p in self.problems if p.model == model)
        shared = tuple(p for p in self.problems if p.path == SERVER) if model in self.frozen else ()
        # Where no model could be read, what is said of one is only what follows from that.
        return own or shared if self.read else shared or own


def read_fleet(files: Mapping[str, bytes], others: Iterable[Problem] = ()) -> Catalog:
    """All that a repository says. A file that is as it was before is not read again.

    Args:
        files: server.yaml, catalog/**.yaml, keys/*.yaml and locks/*.yaml, by path.
        others: problems of entries that are no such files: links, names that are no text.
    """
    problems = list(others)
    server: ServerFile | None = None
    if SERVER in files:
        server = _server(files[SERVER])
        problems += server.problems
    elif all(problem.path != SERVER for problem in problems):
        problems.append(MISSING_SERVER)
    # Without server.yaml nobody knows what models were to be read with, and what runs would start again.
    shared = server.shared if server else Shared(known=False)
    models = [_models(path, data, shared) for path, data in files.items() if path.startswith("catalog/")]
    keys = [_keys(path, data) for path, data in files.items() if path.startswith("keys/")]
    locks = [_locks(path, data) for path, data in files.items() if path.startswith("locks/")]
    return assemble(server, models, keys, problems, locks)


_models = lru_cache(_KEPT)(read_models)
_keys = lru_cache(_KEPT)(read_keys)
_locks = lru_cache(_KEPT)(read_lock)
_server = lru_cache(2)(read_server_file)


def assemble(
    server: ServerFile | None,
    models: Iterable[ModelFile],
    keys: Iterable[KeyFile] = (),
    problems: Iterable[Problem] = (),
    locks: Iterable[LockFile] = (),
) -> Catalog:
    """The catalog of files that were each read by themselves.

    Args:
        server: as it was read, or None where it is missing.
        models: every file under catalog/.
        keys: every file under keys/.
        problems: of server.yaml, and of entries that could not be read as files. One
            under catalog/ may hide a model.
        locks: every file under locks/.
    """
    models = sorted(models, key=lambda file: file.path)
    keys = list(keys)
    found = list(problems)
    fleet_is = server.server if server else None
    hidden = {problem.path for problem in found if problem.path.startswith("catalog/")}
    hidden.update(file.path for file in models if not file.readable)
    for file in models:
        found += file.problems
    found += _brought(server, [stray for file in models for stray in file.strays]) if server else ()
    contested = set()
    for claim, other in _contests(models):
        contested.add((claim.path, claim.model))
        found.append(_contest(claim, other))
    entries = [entry for file in models for entry in file.models]
    claimed = None if hidden else {name for file in models for name in file.names}
    locked, unlocked, wrong = pins.joined(locks, (entry.model for entry in entries), claimed)
    found += wrong
    names = {claim.name for file in models for claim in file.claims}
    good = []
    for entry in entries:
        name = entry.model.name
        lacks = [_problem(entry, f) for f in fleet.fleet_problems(entry.model, fleet_is, names)]
        if name not in locked and name not in unlocked:
            lacks += (_problem(entry, f) for f in pins.model_problems(entry.model))
        if name not in unlocked:
            lacks += (_problem(entry, f) for f in pins.memory_problems(entry.model, locked.get(name)))
        found += lacks
        if not lacks and name not in unlocked and (entry.path, name) not in contested:
            good.append(entry)
    if server is None or not server.shared.known:
        good = entries = []
    usable = {entry.model.name for entry in good}
    key_entries, key_problems = clients.joined(keys, server, None if hidden else names)
    notes = {note for file in models for note in file.notes} | {note for file in keys for note in file.notes}
    return Catalog(
        fleet_is,
        models=tuple(sorted(good, key=lambda entry: entry.model.name)),
        keys=key_entries,
        locks={name: lock for name, lock in sorted(locked.items()) if name in usable},
        read=tuple(sorted(entries, key=lambda entry: (entry.model.name, entry.path))),
        problems=tuple(sorted({*found, *key_problems})),
        frozen=tuple(sorted({name for file in models for name in file.names} - usable)),
        unreadable_paths=tuple(sorted(hidden)),
        notes=tuple(sorted(notes.union(server.notes if server else ()))),
    )


def _brought(server: ServerFile, strays: Iterable[Stray]) -> Iterator[Problem]:
    """What is wrong with parts of server.yaml in the models they are brought into: each once, with all those models."""
    known = {(problem.line, problem.column) for problem in server.problems}
    of: dict[Stray, list[str]] = defaultdict(list)
    for stray in strays:
        of[stray._replace(model="")].append(stray.model)
    for stray, every in of.items():
        place, names = server.document.place(stray.at), sorted({name for name in every if name})
        # What cannot be right in any model is said of server.yaml by itself.
        if not {place, server.document.key_place(stray.at)} & known:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            why = f"{stray.why}; it is brought into {', '.join(names[:MOST_NAMED])}{more}" if names else stray.why
            yield stray._replace(why=why, model=names[0] if len(names) == 1 else "").placed(place)


def _problem(entry: Entry, finding: Finding) -> Problem:
    return Problem(entry.path, *entry.place(finding.at), finding.what, finding.why, finding.do, entry.model.name)


def _contests(files: Iterable[ModelFile]) -> Iterator[tuple[Claim, Claim]]:
    """Every claim to a name that another model claims too, with the first of these others."""
    by_name: dict[str, list[Claim]] = defaultdict(list)
    for file in files:
        for claim in file.claims:
            by_name[claim.name].append(claim)
    for claims in by_name.values():
        first = claims[0]
        second = next((c for c in claims if (c.path, c.at) != (first.path, first.at)), None)
        if second:
            # A name said twice in one model is that file's own problem.
            yield from ((c, second if (c.path, c.at) == (first.path, first.at) else first) for c in claims)


def _contest(claim: Claim, other: Claim) -> Problem:
    where = f"{other.path}:{other.place.line}"
    owner = "a model" if other.name == other.model else f"an alias of {other.model}"
    return Problem(
        claim.path,
        *claim.place,
        f"the name {claim.name} is taken twice",
        f"{where} has it for {owner}, and a request by that name could mean either",
        "rename one of the two; until then what runs under it goes on",
        claim.model,
    )
