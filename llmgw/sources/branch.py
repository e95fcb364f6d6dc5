"""One branch of one repository: where it points, the objects behind it, and a compare-and-swap."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from dulwich.file import FileLocked
from dulwich.objects import ObjectID, ShaFile
from dulwich.refs import Ref, check_ref_format
from dulwich.repo import Repo

from llmgw.errors import Refused, Unreachable
from llmgw.sources.history import leads
from llmgw.sources.objects import Damaged, target
from llmgw.sources.repository import branch_ref, branches, opened, refuse_clash

T = TypeVar("T")

LOOSE_UP_TO = 32
"""Objects that are written one by one; more go into one pack."""


class Busy(Exception):
    """Somebody else is at the branch just now: tried again in a moment."""


class Look(NamedTuple):
    """Where a branch points now."""

    tip: ObjectID
    rewritten: bool
    """The tip of the look before is not among its ancestors, as far as is held."""


class Branch(Protocol):
    """A branch that is followed, and may be written to."""

    shown: str
    """The repository, as errors and logs name it: never with a password in it."""
    name: str

    def look(self) -> Look | None:
        """Where it points now, with the objects behind that at hand. None: there is no such branch.

        Raises:
            Unreachable: it cannot be asked, or not in time.
            Refused: it will not answer until somebody changes something.
        """

    def held(self) -> ObjectID | None:
        """The last tip that is at hand, without asking anybody."""

    def opened(self) -> AbstractContextManager[Repo]:
        """The repository that has the objects."""

    def siblings(self) -> list[str]:
        """The names of the branches that exist, sorted."""

    def swap(self, old: ObjectID | None, new: ObjectID, objects: Sequence[ShaFile]) -> bool:
        """Points the branch at `new` if it points at `old` now; None is that it does not exist.

        False is a lost race: nothing happened.

        Args:
            old: where it has to point.
            new: a commit among `objects`, whose parent is `old`.
            objects: all that `new` has and `old` has not.

        Raises:
            Busy: neither won nor lost; the same call may win in a moment.
            Unreachable, Refused: as for `look`.
        """

    def keep(self, name: Ref, tip: ObjectID) -> None:
        """Points another name at a commit of the branch, so that it outlives it.

        Raises:
            Unreachable, Refused: as for `look`.
        """

    def may_write(self) -> None:
        """Whether `swap` could succeed, as far as that can be asked beforehand.

        Raises:
            Unreachable, Refused: as for `look`.
        """

    def renew(self, depth: int) -> bool:
        """Makes the copy anew, with so many commits. False where there is none to make."""

    def close(self) -> None: ...


@contextmanager
def readable(branch: Branch) -> Iterator[Repo]:
    """The repository that has the objects, where one that is missing is an error for people."""
    try:
        with branch.opened() as repo:
            yield repo
    except Damaged as e:
        raise _damaged(branch, e) from e


def read_tip(branch: Branch, tip: ObjectID, use: Callable[[Repo, ObjectID], T]) -> T:
    """What `use` makes of the branch's last commit.

    A private copy that turns out to be damaged is made anew and read once more;
    its tip may then be a younger one.
    """
    try:
        with branch.opened() as repo:
            return use(repo, tip)
    except Damaged as e:
        renewed = branch.held() if branch.renew(1) else None
        if renewed is None:
            raise _damaged(branch, e) from e
    with readable(branch) as repo:
        return use(repo, renewed)


def _damaged(branch: Branch, error: Damaged) -> Unreachable:
    return Unreachable(
        f"{branch.name} of {branch.shown} cannot be read",
        why=str(error),
        do="run git fsck there, and push what it lacks from a clone",
    )


class LocalBranch:
    """A branch of a repository on this machine, read and written in place."""

    def __init__(self, path: Path, name: str) -> None:
        self.shown = str(path)
        self.name = checked(name)
        self._path = path
        self._ref = branch_ref(name)
        self._last: ObjectID | None = None

    def look(self) -> Look | None:
        with self.opened() as repo:
            tip = self._target(repo)
            if tip is None:
                return None
            last, self._last = self._last, tip
            return Look(tip, rewritten=last is not None and not leads(repo, last, tip))

    def held(self) -> ObjectID | None:
        with self.opened() as repo:
            return self._target(repo)

    def opened(self) -> AbstractContextManager[Repo]:
        return opened(self._path)

    def siblings(self) -> list[str]:
        with self.opened() as repo:
            return branches(repo)

    def swap(self, old: ObjectID | None, new: ObjectID, objects: Sequence[ShaFile]) -> bool:
        with self.opened() as repo:
            # The branch must not outlive its objects when the power goes.
            repo.object_store.fsync_object_files = True
            if len(objects) > LOOSE_UP_TO:
                repo.object_store.add_objects([(entry, None) for entry in objects])
            else:
                for entry in objects:
                    repo.object_store.add_object(entry)
            try:
                if old is not None:
                    return repo.refs.set_if_equals(self._ref, old, new)
                refuse_clash(self._ref, repo.refs.keys(), self.shown)
                return repo.refs.add_if_new(self._ref, new)
            except (FileLocked, FileNotFoundError):
                # The second: a git that packs the refs removed the folder
                # between its making and the use of it.
                raise Busy from None

    def keep(self, name: Ref, tip: ObjectID) -> None:
        with self.opened() as repo:
            try:
                repo.refs.add_if_new(name, tip)
            except (FileLocked, FileNotFoundError):
                raise Unreachable(
                    f"{name.decode()} of {self.shown} was not written",
                    why="it was locked",
                    do="nothing: it is tried again",
                ) from None

    def may_write(self) -> None:
        with self.opened() as repo:
            refuse_clash(self._ref, repo.refs.keys(), self.shown)
            if not os.access(repo.object_store.path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def renew(self, depth: int) -> bool:
        del depth
        return False

    def close(self) -> None:
        """Holds nothing."""

    def _target(self, repo: Repo) -> ObjectID | None:
        try:
            return target(repo, self._ref)
        except Damaged as e:
            raise _damaged(self, e) from e


def checked(name: str) -> str:
    """The name of a branch, if git takes it for one."""
    if not check_ref_format(Ref(branch_ref(name))) or name.startswith("-"):
        raise Refused(f"{name!r} cannot be a branch", why="git has no such names", do="give another name")
    return name
