"""One file of the repository: what it says, where, and every problem of it.

Each answer depends on the file's path and bytes alone, so it is good until one
of the two changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from llmgw.catalog import rules
from llmgw.catalog.document import Document
from llmgw.catalog.fields import ALIAS, NAME, Strict
from llmgw.catalog.fit import fit
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.catalog.parse import MOST_FINDINGS, SERVER_FILE, parse
from llmgw.catalog.pins import LockEntry, LockFile, lock_problems
from llmgw.catalog.problem import Finding, Place, Problem, Steps
from llmgw.catalog.server import Server

SERVER = "server.yaml"

T = TypeVar("T", bound=Strict)


class Entry(NamedTuple):
    """One model that can be used as it is written."""

    model: Model
    path: str
    line: int
    column: int = 1


class Claim(NamedTuple):
    """A name that a file gives to a model, whether or not the rest of it is good."""

    name: str
    model: str
    """The model's own name: another one, where this is an alias."""
    path: str
    at: Steps
    """The way to the model in its file."""
    place: Place


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What one file under catalog/ says."""

    path: str
    models: tuple[Entry, ...]
    """The good ones."""
    problems: tuple[Problem, ...]
    claims: tuple[Claim, ...]
    readable: bool
    """Whether the names of all its models are known."""

    @property
    def names(self) -> tuple[str, ...]:
        """The models it speaks of, good or not."""
        return tuple(sorted({claim.model for claim in self.claims}))


class KeyEntry(NamedTuple):
    """One client key, and where it is written."""

    key: ClientKey
    path: str
    place: Place


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What one file under keys/ says."""

    path: str
    keys: tuple[KeyEntry, ...]
    """The good ones."""
    problems: tuple[Problem, ...]


def read_models(path: str, data: bytes) -> ModelFile:
    """One file under catalog/: a model, or a list of models."""
    document = parse(data)
    bases = _bases(document)
    claims = tuple(claim for base in bases for claim in _claims(path, document, base))
    names = {claim.at: claim.model for claim in claims}
    good, problems = _read(path, Model, document, rules.problems, names)
    return ModelFile(
        path,
        models=tuple(Entry(model, path, *document.place(base)) for base, model in good.items()),
        problems=problems,
        claims=claims,
        readable=document.whole and bool(bases) and len(names) == len(bases),
    )


def read_keys(path: str, data: bytes) -> KeyFile:
    """One file under keys/: a client key, or a list of keys."""
    document = parse(data)
    good, problems = _read(path, ClientKey, document, lambda _: iter(()), {})
    return KeyFile(path, tuple(KeyEntry(key, path, document.place(base)) for base, key in good.items()), problems)


def read_lock(path: str, data: bytes) -> LockFile:
    """One file under locks/: what one model's source was found to be."""
    document, read = parse(data), LockFile(path, None, ())
    again = f"llmgw lock {read.model}"
    lock, found = None, list(document.findings)
    if document.whole and document.value is None:
        found.append(Finding((), "the file holds no lock", "it is empty", again))
    elif document.whole:
        lock, more = fit(Lock, document, (), lock_problems, MOST_FINDINGS)
        # A program wrote it: what a person would write in its place is of no use.
        found += [finding._replace(do=again) for finding in more]
    places = {key: document.key_place((key,)) for key in ("model", "source", "files")}
    entry = LockEntry(lock, path, places) if lock and not found else None
    return read._replace(entry=entry, problems=_problems(path, document, found, {(): read.model}))


def read_server(data: bytes) -> tuple[Server | None, tuple[Problem, ...]]:
    """server.yaml. None with any problem: a fleet that is understood in part is not acted on."""
    document = parse(data, SERVER_FILE)
    server, found = None, list(document.findings)
    if document.whole:
        server, more = fit(Server, document, (), rules.server_problems, MOST_FINDINGS)
        found += more
    return (None if found else server), _problems(SERVER, document, found, {})


def _bases(document: Document) -> list[Steps]:
    """The ways to the values of a file that holds one value, or a list of them."""
    if isinstance(document.value, list):
        return [(index,) for index in range(len(document.value))]
    return [] if document.value is None else [()]


def _claims(path: str, document: Document, base: Steps) -> Iterator[Claim]:
    raw = document.value_at(base)
    name = raw.get("name") if isinstance(raw, dict) else None
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        return
    yield Claim(name, name, path, base, document.place((*base, "name")))
    aliases = raw.get("aliases")
    for index, alias in enumerate(aliases if isinstance(aliases, list) else ()):
        if isinstance(alias, str) and re.fullmatch(ALIAS, alias):
            yield Claim(alias, name, path, base, document.place((*base, "aliases", index)))


def _read(
    path: str, kind: type[T], document: Document, check: Callable[[T], Iterator[Finding]], names: Mapping[Steps, str]
) -> tuple[dict[Steps, T], tuple[Problem, ...]]:
    """The good values of a file of one or several, by the way to them, and all its problems."""
    found, bases = list(document.findings), _bases(document)
    good: dict[Steps, T] = {}
    if document.whole and not bases:
        noun = kind.model_config.get("title")
        found.append(Finding((), f"the file holds no {noun}", "it is empty", f"write a {noun}, or remove the file"))
    elif document.whole:
        depth = len(bases[0])
        spoiled = {finding.at[:depth] for finding in found}
        for base in bases:
            value, more = fit(kind, document, base, check, MOST_FINDINGS - len(found))
            found += more
            if value is not None and not spoiled & {base, ()}:
                good[base] = value
    return good, _problems(path, document, found, names)


def _problems(path: str, document: Document, found: list[Finding], names: Mapping[Steps, str]) -> tuple[Problem, ...]:
    depth = len(next(iter(names), ()))
    return tuple(
        sorted(
            Problem(path, *(f.place or document.place(f.at)), f.what, f.why, f.do, names.get(f.at[:depth], ""))
            for f in found
        )
    )
