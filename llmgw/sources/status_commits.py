"""One commit of the status branch: what it says, as its objects have it."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import NamedTuple

from dulwich.objects import Blob, ObjectID, Tree
from dulwich.repo import Repo

from llmgw.errors import Refused
from llmgw.sources.history import trailers_of
from llmgw.sources.history_files import FOLDER, in_order
from llmgw.sources.objects import is_commit, load, load_commit
from llmgw.sources.scope import MAX_DEPTH, MAX_ENTRIES, MAX_TOTAL_BYTES
from llmgw.sources.snapshot import Trailer

OWNED = (
    "README.md",
    "estimates.yaml",
    "inventory.yaml",
    "mirror.yaml",
    "models",
    "nodes",
    "problems.yaml",
    "summary.yaml",
)
"""Entries of the top folder that are ours as a whole: each write replaces them.
Whatever else is on the branch was put there by somebody, and stays."""


class LogEntry(NamedTuple):
    """One commit of the branch."""

    commit: str
    committed_at: int
    """UTC seconds."""
    subject: str
    author: str = ""
    body: str = ""
    """The rest of its message, trailers included."""


@dataclass(frozen=True, slots=True)
class StatusTree:
    """What one commit of the branch says."""

    commit: str
    files: dict[str, bytes]
    """Ours, by path, sorted."""
    subject: str
    committed_at: int
    """UTC seconds."""
    trailers: tuple[Trailer, ...]


@dataclass(frozen=True, slots=True)
class Tip:
    """The last commit of the branch, without its files."""

    commit: str
    author: str
    trailers: tuple[Trailer, ...]


def history_of(repo: Repo, tree: ObjectID) -> dict[str, ObjectID]:
    """The files of history in a tree, oldest first."""
    top = {e.path: e for e in load(repo, tree, Tree).iteritems()}
    folder = top.get(FOLDER.encode())
    if folder is None or not stat.S_ISDIR(folder.mode):
        return {}
    files = {
        e.path.decode("utf-8", "replace"): e.sha
        for e in load(repo, folder.sha, Tree).iteritems()
        if stat.S_ISREG(e.mode)
    }
    return {name: files[name] for name in in_order(files)}


def tip_of(repo: Repo, commit_id: ObjectID) -> Tip:
    commit = load_commit(repo, commit_id)
    return Tip(commit_id.decode(), commit.author, tuple(trailers_of(commit)))


def read_status(repo: Repo, commit_id: ObjectID) -> StatusTree:
    commit = load_commit(repo, commit_id)
    files: dict[str, bytes] = {}
    left, room = MAX_ENTRIES, MAX_TOTAL_BYTES
    todo = [
        entry for entry in load(repo, commit.tree, Tree).iteritems() if entry.path.decode("utf-8", "replace") in OWNED
    ]
    while todo:
        here, mode, object_id = todo.pop()
        path = here.decode("utf-8", "replace")
        left -= 1
        if left < 0 or room < 0 or path.count("/") > MAX_DEPTH:
            raise Refused(
                f"the status of {commit_id.decode()[:10]} was not read",
                why="somebody put more on the branch than a status has",
                do="delete the branch: it is written again",
            )
        if stat.S_ISDIR(mode):
            todo += [entry.in_path(here) for entry in load(repo, object_id, Tree).iteritems()]
        elif stat.S_ISREG(mode):
            files[path] = load(repo, object_id, Blob).data
            room -= len(files[path])
    return StatusTree(
        commit=commit_id.decode(),
        files=dict(sorted(files.items())),
        subject=commit.subject,
        committed_at=commit.at,
        trailers=tuple(trailers_of(commit)),
    )


def log_of(repo: Repo, tip: ObjectID, n: int) -> tuple[list[LogEntry], bool]:
    """The first parents, and whether they are all there are, or as many as were asked for."""
    found: list[LogEntry] = []
    here: ObjectID | None = tip
    while here is not None and len(found) < n:
        if found and not is_commit(repo, here):
            return found, False
        commit = load_commit(repo, here)
        body = commit.message.strip().partition("\n")[2].strip()
        found.append(LogEntry(here.decode(), commit.at, commit.subject, commit.author, body))
        here = next(iter(commit.parents), None)
    return found, True
