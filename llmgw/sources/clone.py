"""A private copy of one branch of a remote repository, as shallow as it can be, and never the only one.

It is a cache: whatever is wrong with it, a new one is made beside it and takes
its place. That is also how it is kept small, in place of a gc: the library
keeps a pack for each fetch, at four descriptors each while it is open.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from dulwich.errors import NotGitRepository
from dulwich.objects import ObjectID, ShaFile
from dulwich.refs import Ref
from dulwich.repo import Repo

from llmgw.errors import Refused, Unreachable
from llmgw.sources.access import Limits
from llmgw.sources.branch import Look, checked
from llmgw.sources.history import leads
from llmgw.sources.lock import Lock
from llmgw.sources.objects import UNREADABLE, Damaged, load_commit, target
from llmgw.sources.remote import Fetched, OverBudget, Remote
from llmgw.sources.repository import HEADS, branch_ref
from llmgw.units import show_bytes

log = logging.getLogger(__name__)

MAX_PACKS = 32
"""A new copy after so many. Each one costs four descriptors and 0.7 ms of CPU at
every look that reads; a new copy of 5,000 files half a second."""


class Clone:
    """A `Branch` of a remote repository.

    Args:
        remote: where it is.
        name: the branch.
        home: a folder for this branch alone. Nothing in it is missed.
        limits: of the pack.

    Raises:
        Refused: another process uses the folder.
    """

    def __init__(self, remote: Remote, name: str, home: Path, limits: Limits) -> None:
        self.shown = remote.shown
        self.name = checked(name)
        self._remote = remote
        self._ref = branch_ref(name)
        self._home = home
        self._limits = limits
        self._lock = Lock(home / "lock", of=f"the copy of {remote.shown}")
        self._at = self._newest()
        self._made = _number(self._at) if self._at is not None else 0
        self._tip: ObjectID | None = None

    def look(self) -> Look | None:
        held = self.held()
        if held is None:
            tip = self._fresh(1)
            return Look(tip, rewritten=False) if tip is not None else None
        try:
            found = self._more(held)
        except (Damaged, OverBudget) as e:
            log.info("the copy of a repository is made anew", extra={"repository": self.shown, "why": str(e)})
            tip = self._fresh(1)
            found = Look(tip, rewritten=self._misses(held)) if tip is not None else None
        if found is not None:
            self._tidy(found.tip)
        return found

    def held(self) -> ObjectID | None:
        if self._tip is None and self._at is not None:
            try:
                with Repo(str(self._at)) as repo:
                    tip = target(repo, self._ref)
                    self._tip = load_commit(repo, tip).id if tip is not None else None
            except (Damaged, NotGitRepository, *UNREADABLE):
                return None
        return self._tip

    @contextmanager
    def opened(self) -> Iterator[Repo]:
        if self._at is None:
            raise Unreachable(
                f"nothing of {self.shown} is held yet", why="it has not been fetched", do="wait for the first poll"
            )
        try:
            repo = Repo(str(self._at))
        except (NotGitRepository, *UNREADABLE) as e:
            raise Damaged("the copy cannot be opened") from e
        with repo:
            yield repo

    def siblings(self) -> list[str]:
        names = self._remote.refs(HEADS)
        return sorted(name.removeprefix(HEADS).decode("utf-8", "backslashreplace") for name in names)

    def swap(self, old: ObjectID | None, new: ObjectID, objects: Sequence[ShaFile]) -> bool:
        if not self._remote.push(self._ref, old, new, objects):
            return False
        if old is None:
            self._drop()  # What it holds is of a branch that was deleted.
        else:
            self._keep(new, objects)
        return True

    def renew(self, depth: int) -> bool:
        try:
            return self._fresh(depth) is not None
        except Refused:
            return False  # So much history is over the budget: what is held stays.

    def keep(self, name: Ref, tip: ObjectID) -> None:
        self._remote.push(name, None, tip, [])

    def may_write(self) -> None:
        self._remote.may_push(self._ref)

    def close(self) -> None:
        self._remote.close()
        self._lock.close()

    def _more(self, held: ObjectID) -> Look | None:
        try:
            with self.opened() as repo, TemporaryFile(dir=self._at) as pack:
                fetched = self._remote.fetch(self._ref, pack, have=held, shallow=frozenset(repo.get_shallow()))
                tip = fetched.tip
                if tip is None or tip == held:
                    return Look(held, rewritten=False) if tip else None
                self._take(repo, pack, fetched)
                self._tip = tip
                return Look(tip, rewritten=not leads(repo, held, tip))
        except OSError as e:
            raise Damaged(f"the copy cannot be used ({type(e).__name__})") from e

    def _fresh(self, depth: int, only: ObjectID | None = None) -> ObjectID | None:
        making = self._home / "making"
        try:
            shutil.rmtree(making, ignore_errors=True)
            with (
                Repo.init_bare(making, mkdir=True, default_branch=self.name.encode()) as repo,
                TemporaryFile(dir=making) as pack,
            ):
                fetched = self._remote.fetch(self._ref, pack, depth=depth, only=only)
                if fetched.tip is None or only not in (None, fetched.tip):
                    return None
                self._take(repo, pack, fetched)
            self._made += 1
            before, self._at = self._at, making.rename(self._home / f"copy-{self._made}")
            self._tip = fetched.tip
        except OverBudget:
            raise Refused(
                f"{self.shown} was not fetched",
                why=f"its branch {self.name} is over {show_bytes(self._limits.pack_bytes)} without its history",
                do="keep weights and other large files out of the repository",
            ) from None
        except Damaged as e:
            raise Unreachable(
                f"{self.shown} cannot be fetched", why=f"what it sends makes no sense: {e}", do="run git fsck there"
            ) from e
        except OSError as e:
            raise Unreachable(
                f"the copy of {self.shown} cannot be written",
                why=(e.strerror or type(e).__name__).lower(),
                do="check the disk that --state is on",
            ) from e
        finally:
            shutil.rmtree(making, ignore_errors=True)
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)
        return fetched.tip

    def _take(self, repo: Repo, pack: IO[bytes], fetched: Fetched) -> None:
        """Objects first, then where they end, then the branch: cut anywhere, the branch is whole."""
        tip = fetched.tip
        assert tip is not None
        try:
            pack.seek(0)
            repo.object_store.add_thin_pack(pack.read, None)
            repo.update_shallow(set(fetched.shallow), set())
            load_commit(repo, tip)
            repo.refs[self._ref] = tip
        except UNREADABLE as e:
            raise Damaged(f"its pack cannot be taken ({type(e).__name__})") from e

    def _keep(self, new: ObjectID, objects: Sequence[ShaFile]) -> None:
        """Adds what was pushed. The push is what counts: a copy that cannot take it is dropped."""
        try:
            with self.opened() as repo:
                repo.object_store.add_objects([(entry, None) for entry in objects])
                repo.refs[self._ref] = self._tip = new
        except (Damaged, Unreachable, *UNREADABLE):
            self._drop()
        else:
            self._tidy(new)

    def _misses(self, old: ObjectID) -> bool:
        try:
            with self.opened() as repo:
                return not leads(repo, old, self._tip or old)
        except Damaged:
            return True

    def _tidy(self, tip: ObjectID) -> None:
        if self._at is not None and len(list(self._at.glob("objects/pack/*.pack"))) >= MAX_PACKS:
            try:
                self._fresh(1, only=tip)
            except (Refused, Unreachable) as e:
                log.warning(
                    "the copy of a repository was not made anew: %s", e.sentence, extra={"repository": self.shown}
                )

    def _drop(self) -> None:
        if self._at is not None:
            shutil.rmtree(self._at, ignore_errors=True)
            self._at = self._tip = None

    def _newest(self) -> Path | None:
        """What the last process left. All but the youngest whole copy is swept."""
        copies = sorted((p for p in self._home.iterdir() if re.fullmatch(r"copy-\d+", p.name)), key=_number)
        for stale in (*copies[:-1], self._home / "making"):
            shutil.rmtree(stale, ignore_errors=True)
        if not copies:
            return None
        for left in copies[-1].glob("objects/tmp_pack_*"):
            left.unlink(missing_ok=True)
        return copies[-1]


def _number(copy: Path) -> int:
    return int(copy.name.removeprefix("copy-"))
