"""One file of the repository: what it says, where, and every problem of it.

Each answer depends on the file's path and bytes alone, so it is good until one
of the two changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from llmgw.catalog import fleet, rules
from llmgw.catalog.document import Document
from llmgw.catalog.fields import Strict
from llmgw.catalog.fit import fit
from llmgw.catalog.forms import ALIAS, NAME
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.catalog.parse import MOST_FINDINGS, SERVER_FILE, parse
from llmgw.catalog.pins import LockEntry, LockFile, lock_problems
from llmgw.catalog.planned import Note, set_in
from llmgw.catalog.problem import Finding, Place, Problem, Steps, label
from llmgw.catalog.server import Server
from llmgw.catalog.shared import NO_SHARED, Shared, apply, card_problems, named

SERVER = "server.yaml"

T = TypeVar("T", bound=Strict)


class Entry(NamedTuple):
    """One model that can be used as it is written."""

    model: Model
    path: str
    line: int
    column: int = 1
    places: tuple[tuple[Steps, Place], ...] = ()
    """Of what its fleet may have something against."""

    def place(self, at: Steps) -> Place:
        """Where a part of it is, as far as that is kept."""
        return dict(self.places).get(at, Place(self.line, self.column))


class Stray(NamedTuple):
    """A problem of a model that comes from what server.yaml brought into it."""

    at: Steps
    """The way to it in server.yaml."""
    what: str
    why: str
    do: str
    model: str

    def placed(self, place: Place) -> Problem:
        """The same where it is written."""
        return Problem(SERVER, *place, self.what, self.why, self.do, self.model)


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
    strays: tuple[Stray, ...] = ()
    """Problems whose place is in server.yaml: it may have moved there since this file was read."""
    notes: tuple[Note, ...] = ()
    """What it sets that does not act yet."""

    @property
    def names(self) -> tuple[str, ...]:
        """The models it speaks of, good or not."""
        return tuple(sorted({claim.model for claim in self.claims}))


class KeyEntry(NamedTuple):
    """One client key, and where it is written."""

    key: ClientKey
    path: str
    place: Place
    models: tuple[Place, ...] = ()
    """Of each of the models it may use."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What one file under keys/ says."""

    path: str
    keys: tuple[KeyEntry, ...]
    """The good ones."""
    problems: tuple[Problem, ...]
    notes: tuple[Note, ...] = ()
    """What it sets that does not act yet."""


@dataclass(frozen=True, slots=True)
class ServerFile:
    """What server.yaml says."""

    server: Server | None
    """None: it has a problem. A fleet that is understood in part is not acted on."""
    problems: tuple[Problem, ...]
    notes: tuple[Note, ...]
    shared: Shared
    """What models are read with, as far as it can be told."""
    document: Document


def read_models(path: str, data: bytes, shared: Shared = NO_SHARED) -> ModelFile:
    """One file under catalog/: a model, or a list of models.

    Args:
        path: of the file.
        data: what is in it.
        shared: what server.yaml says that models are read with.
    """
    file = ModelFile(path, models=(), problems=(), claims=(), readable=False)
    try:
        document = parse(data)
        bases = _bases(document)
        claims = tuple(claim for base in bases for claim in _claims(path, document, base))
        named_all = document.whole and bool(bases) and len({claim.at for claim in claims}) == len(bases)
        file = replace(file, claims=claims, readable=named_all)
        return _models(file, document, bases, shared)
    except Exception as error:  # noqa: BLE001 - a fault of ours in one file is no fault of the others
        return replace(file, problems=(_fault(path, error, *file.names),))


def _models(file: ModelFile, document: Document, bases: list[Steps], shared: Shared) -> ModelFile:
    path, names = file.path, {claim.at: claim.model for claim in file.claims}
    document, found = apply(shared, document, bases) if document.whole else (document, [])

    def check(model: Model) -> Iterator[Finding]:
        yield from rules.problems(model)
        yield from card_problems(shared, model)

    good, found = _read(Model, document, check, found, rules.missing)
    far = [(document.origin(f.at), f) for f in found]
    depth = len(next(iter(names), ()))
    strays = {Stray(at, f.what, f.why, f.do, names.get(f.at[:depth], "")) for at, f in far if at is not None}
    return replace(
        file,
        models=tuple(_entry(shared, path, document, base, model) for base, model in good.items()),
        problems=_problems(path, document, [f for at, f in far if at is None], names),
        strays=tuple(sorted(strays, key=repr)),
        notes=_notes(path, document, good),
    )


def _entry(shared: Shared, path: str, document: Document, base: Steps, model: Model) -> Entry:
    places = tuple((at, document.place((*base, *at))) for at in fleet.judged(model))
    return Entry(named(shared, model), path, *document.place(base), places)


def read_keys(path: str, data: bytes) -> KeyFile:
    """One file under keys/: a client key, or a list of keys."""
    try:
        return _keys(path, parse(data))
    except Exception as error:  # noqa: BLE001 - a fault of ours in one file is no fault of the others
        return KeyFile(path, (), (_fault(path, error),))


def _keys(path: str, document: Document) -> KeyFile:
    good, found = _read(ClientKey, document, rules.key_problems, [])
    entries = tuple(_key_entry(path, document, base, key) for base, key in good.items())
    return KeyFile(path, entries, _problems(path, document, found, {}), _notes(path, document, good))


def _key_entry(path: str, document: Document, base: Steps, key: ClientKey) -> KeyEntry:
    models = tuple(document.place((*base, "models", index)) for index in range(len(key.models or ())))
    return KeyEntry(key, path, document.place(base), models)


def read_lock(path: str, data: bytes) -> LockFile:
    """One file under locks/: what one model's source was found to be."""
    read = LockFile(path, None, ())
    try:
        return _lock(read, parse(data))
    except Exception as error:  # noqa: BLE001 - a fault of ours in one file is no fault of the others
        return read._replace(problems=(_fault(path, error, read.model),))


def _lock(read: LockFile, document: Document) -> LockFile:
    path = read.path
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
    """server.yaml. None with any problem."""
    file = read_server_file(data)
    return file.server, file.problems


def read_server_file(data: bytes) -> ServerFile:
    """server.yaml, and what models are read with even where it has a problem elsewhere."""
    try:
        return _server(parse(data, SERVER_FILE))
    except Exception as error:  # noqa: BLE001 - the fleet goes on as it last was known
        unread = Document(None, (), whole=False)
        return ServerFile(None, (_fault(SERVER, error),), (), Shared(known=False), unread)


def _server(document: Document) -> ServerFile:
    server, found = None, list(document.findings)
    if document.whole:
        server, more = fit(Server, document, (), fleet.server_problems, MOST_FINDINGS)
        found += more
    flawed = {f.at[0] for f in found if f.at}
    known = document.whole and len(found) < MOST_FINDINGS and not flawed & {"defaults", "blocks", "cards"}
    known = known and all(f.at for f in found)
    shared = Shared.of(document.value, known=known)
    notes = _notes(SERVER, document, {(): server}) if server else ()
    return ServerFile(None if found else server, _problems(SERVER, document, found, {}), notes, shared, document)


def _notes(path: str, document: Document, good: Mapping[Steps, Strict]) -> tuple[Note, ...]:
    # What server.yaml brought in is noted there.
    ways = ((base, at) for base, value in good.items() for at in set_in(value, base) if not document.origin(at))
    return tuple(sorted(Note(path, *document.key_place(at), label(at[len(base) :])) for base, at in ways))


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
    for alias, at in _other_names(raw):
        if isinstance(alias, str) and re.fullmatch(ALIAS, alias):
            yield Claim(alias, name, path, base, document.place((*base, *at)))


def _other_names(raw: Mapping[str, Any]) -> Iterator[tuple[Any, Steps]]:
    """Its aliases and its adapters, which clients ask for by their names too."""
    aliases, source = raw.get("aliases"), raw.get("source")
    for index, alias in enumerate(aliases if isinstance(aliases, list) else ()):
        yield alias, ("aliases", index)
    adapters = source.get("adapters") if isinstance(source, dict) else None
    for index, adapter in enumerate(adapters if isinstance(adapters, list) else ()):
        if isinstance(adapter, dict):
            yield adapter.get("name"), ("source", "adapters", index, "name")


def _read(
    kind: type[T],
    document: Document,
    check: Callable[[T], Iterator[Finding]],
    found: list[Finding],
    missing: Callable[[Any], Iterator[Finding]] = lambda _: iter(()),
) -> tuple[dict[Steps, T], list[Finding]]:
    """The good values of a file of one or several, by the way to them, and all that is wrong in it.

    Args:
        kind: what each should be.
        document: the file.
        check: what is wrong with one that fits the type.
        found: what is wrong already.
        missing: what one lacks, told before it is known to fit.
    """
    found, bases = [*document.findings, *found], _bases(document)
    good: dict[Steps, T] = {}
    if document.whole and not bases:
        noun = kind.model_config.get("title")
        found.append(Finding((), f"the file holds no {noun}", "it is empty", f"write a {noun}, or remove the file"))
    elif document.whole:
        depth = len(bases[0])
        spoiled = {finding.at[:depth] for finding in found}
        for base in bases:
            value, more = fit(kind, document, base, check, MOST_FINDINGS - len(found))
            lacks = [f._replace(at=(*base, *f.at)) for f in missing(document.value_at(base))]
            more += [f for f in lacks if not document.unsure & {f.at, f.at[:-1]}]
            found += more[: MOST_FINDINGS - len(found)]
            if value is not None and not lacks and not spoiled & {base, ()}:
                good[base] = value
    return good, found


def _fault(path: str, error: Exception, *models: str) -> Problem:
    """The problem of a file that llmgw itself fails to read."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    # Never its text, which may quote the file.
    kind = type(error).__name__
    spot = f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}" if trace else "an unknown place"
    why = f"reading it ends in {kind} at {spot}, which is a fault of llmgw and not of the file"
    do = "report it with this line; until then write the part that was changed last in another way"
    return Problem(path, 1, 1, "internal error", why, do, models[0] if len(models) == 1 else "")


def _problems(path: str, document: Document, found: list[Finding], names: Mapping[Steps, str]) -> tuple[Problem, ...]:
    depth = len(next(iter(names), ()))
    return tuple(
        sorted(
            Problem(path, *(f.place or document.place(f.at)), f.what, f.why, f.do, names.get(f.at[:depth], ""))
            for f in found
        )
    )
