"""What one look at a fleet's repository finds: a commit, and the files of it that matter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

UNBORN = "0" * 40
"""In place of a commit's id where there is none: a working copy without one yet, a branch that is made or removed."""


class Blob(NamedTuple):
    """One file as git keeps it."""

    id: str
    """Its blob id: equal ids are equal bytes, so what was parsed once is parsed."""
    data: bytes


class Bad(NamedTuple):
    """An entry that cannot be read as a file, and is said rather than skipped."""

    path: str
    why: str
    do: str


class Trailer(NamedTuple):
    """A `Key: value` line of a commit's message."""

    key: str
    value: str
    commit: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of one commit, or of a working copy as it is now."""

    commit: str
    """Whole id, in hex. With `dirty`, the commit that the working copy started from."""
    committed_at: int
    """UTC seconds."""
    author: str
    """`Name <address>`, as the commit says it."""
    subject: str
    identity: str
    """Equal where the files, and what is wrong with others, are equal: whatever
    else a commit changed, two snapshots with one identity ask for the same."""
    files: Mapping[str, Blob]
    """server.yaml, catalog/**.yaml, keys/*.yaml and locks/*.yaml, sorted by path."""
    bad: tuple[Bad, ...]
    """Sorted by path. While there is one, nothing absent counts as removed."""
    dirty: bool = False
    """The working copy differs from its commit in a file that matters."""
    rewritten: bool = False
    """The commit seen before this one is not among its ancestors, as far as is held."""


def identity_of(files: Mapping[str, Blob], bad: Iterable[Bad]) -> str:
    """Names what the files ask for, whatever commit carries them.

    Not the ids of the trees: a README beside the models would change those.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path}\0{files[path].id}\n".encode())
    for entry in bad:
        digest.update(f"{entry.path}\0{entry.why}\n".encode())
    return digest.hexdigest()
