"""Following a fleet's repository: the files of one branch, of any commit, or of a working copy.

No git program and no checkout: trees are read from the object store. A source
blocks, each call within a bound, and may be called from any thread.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from dulwich.objects import ObjectID
from dulwich.repo import Repo

from llmgw.errors import OperatorError, Refused
from llmgw.sources.access import Access
from llmgw.sources.admission import Admission
from llmgw.sources.branch import Branch, LocalBranch, read_tip, readable
from llmgw.sources.clone import Clone
from llmgw.sources.history import leads, trailers_between
from llmgw.sources.objects import is_commit
from llmgw.sources.remote import Remote
from llmgw.sources.repository import control_folders, no_branch, opened
from llmgw.sources.revision import resolve
from llmgw.sources.snapshot import UNBORN, Blob, Snapshot, Trailer
from llmgw.sources.ssh import address
from llmgw.sources.transport import transport
from llmgw.sources.tree import snapshot_of
from llmgw.sources.worktree import WorktreeSource

log = logging.getLogger(__name__)

DEEPER = 200
"""Commits of history fetched when a trailer's commit is not among those held."""


class Source(Protocol):
    """A repository that is followed."""

    shown: str
    """The repository, as errors and logs name it."""
    trouble: str
    """What is wrong although it answers: it is followed from a second place. Empty: nothing."""

    def poll(self) -> Snapshot:
        """What is asked for now.

        Raises:
            Unreachable: it cannot be asked; `held` still answers.
            Refused: somebody has to change something: the branch is missing, the token wrong.
        """

    def leads(self, old: str, new: str) -> bool:
        """Whether one commit is another or comes before it, as far as its history can be had."""

    def held(self) -> Snapshot | None:
        """What was last fetched, without asking anybody. None: nothing yet."""

    def at(self, rev: str) -> Snapshot:
        """What a commit asks for: a branch, a tag, an id or part of one, `HEAD~2`.

        Raises:
            Refused: nothing that is held has that name.
        """

    def trailers_since(self, commit: str | None, *, until: str = "") -> tuple[Trailer, ...]:
        """The trailers of the commits after this one, up to another, or to what was last polled.

        None is that nothing was applied yet, and nothing is new to it. Where the way
        from a commit is not known, and for UNBORN, only those of the last commit count:
        a rewritten history may repeat what was allowed once.
        """

    def watch_paths(self) -> tuple[Path, ...]:
        """What `watch.changes` should watch; empty for a remote one."""

    def close(self) -> None: ...


def open_source(
    url: str,
    *,
    branch: str,
    state: Path,
    mode: str = "head",
    access: Access | None = None,
    admission: Admission | None = None,
) -> Source:
    """Opens a repository to follow it. Nothing is asked of it yet.

    Args:
        url: a path or file:// of a bare repository or a working copy, http(s)://, or ssh.
        branch: what is followed. In `worktree` mode, what is checked out is.
        state: a folder for the private copy of a remote one.
        mode: `head` reads what is committed; `worktree` the files as they are.
        access: who we are at its server, and what an exchange may take.
        admission: which commits are followed; None: each.

    Raises:
        Refused: the address or the mode is none we know.
    """
    if mode not in ("head", "worktree"):
        raise Refused(f"the mode {mode!r} is unknown", why="it is head or worktree", do="give one of them")
    path = local_path(url)
    if path is None:
        if mode == "worktree":
            raise Refused(
                "a remote repository has no working copy here",
                why="only committed files can be fetched",
                do="follow it in head mode, or give the path of a clone",
            )
        return BranchSource(open_branch(url, branch, state, access), admission=admission)
    if mode == "worktree":
        return WorktreeSource(path)
    return BranchSource(LocalBranch(path, branch), watch=path, admission=admission)


def open_branch(url: str, name: str, state: Path, access: Access | None = None) -> Branch:
    """One branch of a local or remote repository, to read and to write."""
    path = local_path(url)
    if path is not None:
        return LocalBranch(path, name)
    access = access or Access()
    remote = Remote(transport(url, access), access.limits)
    home = hashlib.sha256(f"{remote.shown}\n{name}".encode()).hexdigest()[:16]
    return Clone(remote, name, state / "git" / home, access.limits)


def local_path(url: str) -> Path | None:
    """The path that a URL means on this machine; None is a remote one.

    Raises:
        Refused: it is neither.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise _unknown("it") from None
    if "://" not in url:
        here = Path(url).expanduser().absolute()
        return None if not here.exists() and address(url) is not None else here
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    if (parts.scheme in ("http", "https") and parts.hostname) or address(url) is not None:
        return None
    raise _unknown(parts.scheme)


class BranchSource:
    """The committed files of one branch."""

    trouble = ""

    def __init__(self, branch: Branch, watch: Path | None = None, admission: Admission | None = None) -> None:
        self.shown = branch.shown
        self._branch = branch
        self._admission = admission or Admission()
        self._watch = watch
        self._last: Snapshot | None = None
        self._rewritten = False
        """Seen, and not said yet: the look that saw it could not be read."""
        # Whoever gave up waiting for a poll may ask again while it still runs.
        self._one_at_a_time = threading.Lock()

    def poll(self) -> Snapshot:
        with self._one_at_a_time:
            look = self._branch.look()
            if look is None:
                raise no_branch(self.shown, self._branch.name, self._branch.siblings())
            self._rewritten = self._rewritten or look.rewritten
            self._last = self._read(look.tip)
            rewritten, self._rewritten = self._rewritten, False
            return replace(self._last, rewritten=rewritten)

    def held(self) -> Snapshot | None:
        with self._one_at_a_time:
            try:
                tip = self._branch.held()
                self._last = self._read(tip) if tip is not None else self._last
            except OperatorError as e:
                log.warning(
                    "what is held of a repository cannot be read: %s", e.sentence, extra={"repository": self.shown}
                )
            return self._last

    def leads(self, old: str, new: str) -> bool:
        with self._one_at_a_time:
            if not self._holds(old):
                self._deepen()
            with readable(self._branch) as repo:
                return leads(repo, ObjectID(old.encode()), ObjectID(new.encode()))

    def at(self, rev: str) -> Snapshot:
        with self._one_at_a_time:
            if self._branch.held() is None:
                self._branch.look()
            with readable(self._branch) as repo:
                return snapshot_of(repo, resolve(repo, rev, self.shown), self._known())

    def trailers_since(self, commit: str | None, *, until: str = "") -> tuple[Trailer, ...]:
        with self._one_at_a_time:
            new = until or (self._last.commit if self._last else "")
            if commit is None or not new:
                return ()
            found, way_known = self._trailers(commit, new)
            if commit == UNBORN:
                return found  # of the last one alone, as asked
            if not way_known and not self._holds(commit) and self._deepen():
                found, way_known = self._trailers(commit, new)
            if not way_known:
                log.warning(
                    "the commits between two are not known: only the last one's trailers count",
                    extra={"repository": self.shown, "since": commit, "commit": new},
                )
            return found

    def watch_paths(self) -> tuple[Path, ...]:
        if self._watch is None:
            return ()
        with opened(self._watch) as repo:
            return control_folders(repo)

    def close(self) -> None:
        self._branch.close()

    def _read(self, tip: ObjectID) -> Snapshot:
        if self._last is not None and self._last.commit == tip.decode() and self._admission.has_let(tip):
            return self._last
        since = self._admission.needs()
        if since is not None and not self._holds(since.decode()):
            self._deepen()
        return read_tip(self._branch, tip, self._admitted)

    def _admitted(self, repo: Repo, tip: ObjectID) -> Snapshot:
        self._admission.judge(repo, tip, self.shown)
        return snapshot_of(repo, tip, self._known())

    def _trailers(self, old: str, new: str) -> tuple[tuple[Trailer, ...], bool]:
        with readable(self._branch) as repo:
            return trailers_between(repo, ObjectID(old.encode()), ObjectID(new.encode()))

    def _holds(self, commit: str) -> bool:
        with readable(self._branch) as repo:
            return is_commit(repo, ObjectID(commit.encode()))

    def _deepen(self) -> bool:
        try:
            return self._branch.renew(DEEPER)
        except OperatorError:
            return False

    def _known(self) -> Mapping[str, Blob]:
        """The blobs of the last snapshot, by id: what did not change is not read again."""
        return {blob.id: blob for blob in self._last.files.values()} if self._last else {}


def _unknown(scheme: str) -> Refused:
    return Refused(
        "the repository's address is none that llmgw follows",
        why=f"{scheme} is not a path, file:// on this machine, http://, https:// or ssh://",
        do="give the repository's path or its https address",
    )
