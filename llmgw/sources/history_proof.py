"""Whether a status branch's history is whole: signed, and only ever added to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dulwich.objects import ObjectID, valid_hexsha
from dulwich.repo import Repo

from llmgw.errors import Refused
from llmgw.sources.history import trailers_of
from llmgw.sources.objects import CommitText, is_commit, load_commit
from llmgw.sources.signatures import Signers, check

PREVIOUS = "Llmgw-Previous-Tip"
"""The trailer of a commit without a parent that goes on from another."""
ARCHIVE = "git fetch origin 'refs/llmgw/archive/*:refs/llmgw/archive/*'"


class Fault(NamedTuple):
    """One thing that is wrong with one commit."""

    commit: str
    at: int
    """UTC seconds, as the commit says."""
    what: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What a look at every commit that is held came to."""

    commits: int
    signed_by: Mapping[str, int]
    """How many commits each signer signed. Empty where signatures were not asked for."""
    faults: tuple[Fault, ...]
    """Youngest first."""
    back_to: int
    """When the oldest of those commits was made, UTC seconds."""
    whole: bool
    """Whether that one is the first there ever was."""


Files = Mapping[str, ObjectID]


def prove(
    repo: Repo,
    tip: ObjectID,
    signers: Signers | None,
    files_of: Callable[[Repo, ObjectID], Files],
    read: Callable[[Repo, ObjectID], bytes],
) -> Proof:
    """Look at every commit, from the last one back.

    Args:
        repo: what has them.
        tip: the last one.
        signers: whose signatures count. None: signatures are not looked at.
        files_of: the files of history in a tree, by name.
        read: the content of one.
    """
    faults: list[Fault] = []
    signed: dict[str, int] = {}
    here, count = tip, 0
    while True:
        commit = load_commit(repo, here)
        count += 1
        if signers is not None:
            try:
                name = check(repo, here, signers)
                signed[name] = signed.get(name, 0) + 1
            except Refused as e:
                faults.append(Fault(here.decode(), commit.at, e.why))
        before, missing = _before(repo, commit)
        if missing:
            faults.append(Fault(here.decode(), commit.at, missing))
        if before is None:
            return Proof(count, dict(sorted(signed.items())), tuple(faults), commit.at, whole=not missing)
        was = files_of(repo, load_commit(repo, before).tree)
        lost = _lost(repo, was, files_of(repo, commit.tree), read)
        faults += (Fault(here.decode(), commit.at, f"{what}, by {commit.author}") for what in lost)
        here = before


def _before(repo: Repo, commit: CommitText) -> tuple[ObjectID | None, str]:
    """The commit before it, across a rotation too, and what keeps that from being known."""
    if commit.parents:
        parent = commit.parents[0]
        if is_commit(repo, parent):
            return parent, ""
        return None, f"the commits before it, {parent.decode()[:10]} and older, are not held here: give a whole clone"
    named = next((t.value for t in trailers_of(commit) if t.key == PREVIOUS), "")
    if not named:
        return None, ""
    previous = ObjectID(named.encode("ascii", "replace"))
    if valid_hexsha(previous) and is_commit(repo, previous):
        return previous, ""
    return None, f"it goes on from {named[:10]}, which is not held here: {ARCHIVE}"


def _lost(repo: Repo, was: Files, now: Files, read: Callable[[Repo, ObjectID], bytes]) -> list[str]:
    """What of the history before is not in the one after."""
    found = []
    for name, old in was.items():
        new = now.get(name)
        if new is None:
            found.append(f"history/{name} was removed")
        elif new != old and not read(repo, new).startswith(read(repo, old)):
            found.append(f"lines of history/{name} were changed or removed")
    return found
