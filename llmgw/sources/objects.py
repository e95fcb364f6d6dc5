"""Reading git refs and objects, where one that cannot be had is a `Damaged` and nothing else."""

from __future__ import annotations

import zlib
from typing import NamedTuple, TypeVar

from dulwich.errors import ApplyDeltaError, ChecksumMismatch, FileFormatException
from dulwich.file import FileLocked
from dulwich.objects import Commit, ObjectID, ShaFile, valid_hexsha
from dulwich.pack import UnresolvedDeltas
from dulwich.refs import Ref, SymrefLoop
from dulwich.repo import Repo

S = TypeVar("S", bound=ShaFile)

UNREADABLE = (
    ApplyDeltaError,
    AssertionError,
    ChecksumMismatch,
    EOFError,
    FileFormatException,
    FileLocked,
    IndexError,
    KeyError,
    OSError,
    UnresolvedDeltas,
    ValueError,
    zlib.error,
)
"""What the library raises at packs, trees and commits that are cut, wrong or missing."""

YEAR_10000 = 253_402_300_800
"""A commit may claim any time; what prints one must not fail at it."""


class Damaged(Exception):
    """An object that should be there is not, or is not what its id says.

    Of a private copy: make a new one. Of somebody's repository: say so.
    """


class CommitText(NamedTuple):
    """A commit, with something in every field: git lets one be pushed that lacks them."""

    id: ObjectID
    tree: ObjectID
    parents: tuple[ObjectID, ...]
    at: int
    """UTC seconds."""
    author: str
    message: str

    @property
    def subject(self) -> str:
        return next(iter(self.message.strip().splitlines()), "")


def target(repo: Repo, ref: Ref) -> ObjectID | None:
    """The id that a ref leads to; None: there is no such ref.

    Raises:
        Damaged: it is there and leads nowhere.
    """
    try:
        found = repo.refs.follow(ref)[1]
    except (SymrefLoop, StopIteration, *UNREADABLE) as e:
        raise Damaged("its refs cannot be read") from e
    if found is not None and not valid_hexsha(found):
        raise Damaged(f"{ref.decode('utf-8', 'backslashreplace')} holds no id")
    return found


def load(repo: Repo, object_id: ObjectID, kind: type[S]) -> S:
    """One object of a known kind.

    Raises:
        Damaged: it cannot be had.
    """
    shown = object_id.decode("ascii", "replace")
    # Twice: a gc beside us moves an object from the loose ones into a pack
    # between our look into the packs and our look at the loose ones.
    for last in (False, True):
        try:
            found = repo.object_store[object_id]
        except UNREADABLE as e:
            if last or not isinstance(e, KeyError):
                raise Damaged(f"object {shown} cannot be read") from e
        else:
            break
    if not isinstance(found, kind):
        raise Damaged(f"object {shown} is a {found.type_name.decode()}")
    return found


def load_commit(repo: Repo, commit_id: ObjectID) -> CommitText:
    """One commit.

    Raises:
        Damaged: it cannot be had.
    """
    found = load(repo, commit_id, Commit)
    return CommitText(
        id=commit_id,
        tree=found.tree,
        parents=tuple(found.parents),
        at=min(max(found.commit_time or 0, 0), YEAR_10000 - 1),
        author=(found.author or b"").decode("utf-8", "replace"),
        message=(found.message or b"").decode("utf-8", "replace"),
    )


def is_commit(repo: Repo, object_id: ObjectID) -> bool:
    """Whether this is the id of a commit that is held."""
    try:
        load(repo, object_id, Commit)
    except Damaged:
        return False
    return True
