"""The client keys of all files together: each once, each for a client, each for models there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from difflib import get_close_matches

from llmgw.catalog.files import SERVER, KeyEntry, KeyFile, ServerFile
from llmgw.catalog.fleet import callers
from llmgw.catalog.problem import Problem


def joined(
    files: Iterable[KeyFile], server: ServerFile | None, names: AbstractSet[str] | None
) -> tuple[tuple[KeyEntry, ...], list[Problem]]:
    """Every key once, and the problems of all key files. Of two with one hash the first counts.

    Args:
        files: every file under keys/.
        server: who else has keys. A client with one of those would be both.
        names: everything that clients can ask for; None where it cannot be known.
    """
    found: list[Problem] = []
    named: dict[str, KeyEntry] = {}
    hashed: dict[str, KeyEntry] = {}
    for file in sorted(files, key=lambda file: file.path):
        found += file.problems
        for entry in file.keys:
            found += _twice(entry, named.setdefault(entry.key.name, entry), hashed.setdefault(entry.key.sha256, entry))
            found += _unknown(entry, names) if names is not None else ()
    for entry, problems in _callers(hashed, server):
        found += problems
        hashed.pop(entry.key.sha256, None)
    return tuple(sorted(hashed.values(), key=lambda e: (e.key.name, e.key.sha256))), found


def expired(entries: Iterable[KeyEntry], today: str) -> Iterator[str]:
    """Keys whose last day is over, one a line: in the repository they are of no more use.

    Args:
        entries: the keys.
        today: the day it is in UTC, as `expires` is written.
    """
    for entry in entries:
        if entry.key.expires is not None and entry.key.expires < today:
            where = f"{entry.path}:{entry.place.line}:{entry.place.column}"
            yield f"{where}: note: the last day of key {entry.key.name} was {entry.key.expires}"


def _twice(entry: KeyEntry, named: KeyEntry, hashed: KeyEntry) -> Iterator[Problem]:
    if named is not entry:
        why = f"{named.path}:{named.place.line} has a key of that name"
        what = f"the key {entry.key.name} is there twice"
        yield Problem(entry.path, *entry.place, what, why, "rename one of them")
    if hashed is not entry:
        why = f"{hashed.path}:{hashed.place.line} has it too, and only that one counts"
        what = f"the hash of key {entry.key.name} is there twice"
        yield Problem(entry.path, *entry.place, what, why, "make another with `llmgw key new client`")


def _unknown(entry: KeyEntry, names: AbstractSet[str]) -> Iterator[Problem]:
    for wanted, place in zip(entry.key.models or (), entry.models, strict=True):
        if wanted not in names:
            close = get_close_matches(wanted, sorted(names), n=1)
            do = f"write `{close[0]}`" if close else "write the name of a model of this fleet, or take it out"
            what = f"the key {entry.key.name} may use {wanted}, which is no model"
            yield Problem(entry.path, *place, what, f"no file under catalog/ has the name or the alias {wanted}", do)


def _callers(
    hashed: dict[str, KeyEntry], server: ServerFile | None
) -> Iterator[tuple[KeyEntry, tuple[Problem, Problem]]]:
    """Keys that a node, a gateway or an operator has as well, and the problem in both places."""
    for at, caller in callers(server.server) if server and server.server else ():
        entry = hashed.get(caller.key_sha256 or "")
        if server is None or entry is None:
            continue
        who, place = f"the {str(at[0]).removesuffix('s')} {caller.name}", server.document.place(at)
        why = "whoever has the one could call as the other"
        do = "make the client another with `llmgw key new client`"
        yield (
            entry,
            (
                Problem(entry.path, *entry.place, f"the client {entry.key.name} has the key of {who}", why, do),
                Problem(SERVER, *place, f"{who} has the key of the client {entry.key.name}", why, do),
            ),
        )
