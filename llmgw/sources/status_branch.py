"""The branch that control writes what it sees to: its own history in the fleet's repository."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from dulwich.diff_tree import tree_changes
from dulwich.objects import Blob, Commit, ObjectID, ShaFile
from dulwich.repo import Repo

from llmgw.errors import Refused
from llmgw.sources import rotation
from llmgw.sources.access import Access
from llmgw.sources.branch import read_tip, readable
from llmgw.sources.commits import Edit, commit_of
from llmgw.sources.git import open_branch
from llmgw.sources.history import trailers_of
from llmgw.sources.history_files import appended, month_of
from llmgw.sources.history_proof import Proof, prove
from llmgw.sources.lock import Lock
from llmgw.sources.objects import is_commit, load, load_commit
from llmgw.sources.races import until_won
from llmgw.sources.revision import resolve
from llmgw.sources.scope import MAX_TOTAL_BYTES
from llmgw.sources.signatures import Signers
from llmgw.sources.signing import sign
from llmgw.sources.status_commits import OWNED, LogEntry, StatusTree, Tip, history_of, log_of, read_status, tip_of

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
"""How old what is known of a remote branch may be when nothing is to be written:
after that, a branch that was deleted or edited by hand is found and made good."""

DEPTH_OF_LOG = 50


class StatusBranch:
    """`llmgw/status/<cluster>`: read by anybody, written by one control.

    Args:
        url: of the repository, as for `open_source`.
        cluster: the fleet's name.
        state: a folder for the lock, and for the copy of a remote one.
        access: who we are at its server, and what an exchange may take.
        sign_key: holds the private SSH key that commits are signed with. None: they are not.
    """

    def __init__(
        self, url: str, cluster: str, state: Path, access: Access | None = None, *, sign_key: Path | None = None
    ) -> None:
        self.name = f"llmgw/status/{cluster}"
        self._cluster = cluster
        self._branch = open_branch(url, self.name, state, access)
        self._state = state
        self._sign_key = sign_key
        self._rotates = True
        """Whether the server lets the branch begin anew, as far as is known."""
        self._lock: Lock | None = None
        self._looked_at: float | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def shown(self) -> str:
        """The repository, as errors and logs name it."""
        return self._branch.shown

    def read(self) -> StatusTree | None:
        """What the branch says now. None: there is no such branch.

        Raises:
            Unreachable, Refused: it cannot be said, which is not the same.
        """
        with self._one_at_a_time:
            look = self._branch.look()
            return read_tip(self._branch, look.tip, read_status) if look is not None else None

    def tip(self) -> Tip | None:
        """Its last commit, asked anew. None: there is no such branch.

        Raises:
            Unreachable, Refused: it cannot be said.
        """
        with self._one_at_a_time:
            look = self._branch.look()
            return read_tip(self._branch, look.tip, tip_of) if look is not None else None

    def at(self, rev: str) -> StatusTree:
        """What a commit of the branch said: its id or part of it, or `HEAD~2` from its tip.

        Raises:
            Refused: nothing that is held has that name.
        """
        with self._one_at_a_time:
            rev = f"refs/heads/{self.name}{rev[4:]}" if rev == "HEAD" or rev.startswith(("HEAD~", "HEAD^")) else rev
            with readable(self._branch) as repo:
                return read_status(repo, resolve(repo, rev, self.shown))

    def log(self, n: int, *, at: str = "") -> list[LogEntry]:
        """The last `n` commits, youngest first; fewer where there are no more.

        Args:
            n: how many.
            at: the commit to begin with; empty: the branch's last. Of one that is named only what is held is listed.
        """
        with self._one_at_a_time:
            if at:
                with readable(self._branch) as repo:
                    return log_of(repo, resolve(repo, at, self.shown), n)[0]
            look = self._branch.look()
            if look is None:
                return []
            with readable(self._branch) as repo:
                found, whole = log_of(repo, look.tip, n)
            if not whole and self._branch.renew(max(n, DEPTH_OF_LOG)):
                with readable(self._branch) as repo:
                    found, _ = log_of(repo, look.tip, n)
            return found

    def history(self, commit: str, *, since: str = "", last: int | None = None) -> dict[str, bytes]:
        """Files of history in a commit that was read, by name, oldest first.

        Args:
            commit: its id.
            since: a month, `2026-11`: only that one and later ones.
            last: only so many, the youngest.

        Raises:
            Refused: they are larger than anything that was written here.
        """
        with self._one_at_a_time, readable(self._branch) as repo:
            parts = history_of(repo, load_commit(repo, ObjectID(commit.encode())).tree)
            names = [name for name in parts if month_of(name) >= since]
            found: dict[str, bytes] = {}
            room = MAX_TOTAL_BYTES
            for name in names[-last:] if last is not None else names:
                found[name] = load(repo, parts[name], Blob).data
                room -= len(found[name])
                if room < 0:
                    raise Refused(
                        f"the history of {commit[:10]} was not read",
                        why="it is over 64 MiB",
                        do="say from when on with --since",
                    )
            return found

    def prove(self, commit: str, signers: Signers | None) -> Proof:
        """Whether the history up to a commit that was read is whole, as far as its commits are held."""
        with self._one_at_a_time, readable(self._branch) as repo:
            return prove(
                repo, ObjectID(commit.encode()), signers, history_of, lambda of, blob: load(of, blob, Blob).data
            )

    def changed(self, commit: str) -> list[str]:
        """The files that a commit which is held changed, sorted. Of one whose parent is not held: none is known."""
        with self._one_at_a_time, readable(self._branch) as repo:
            found = load_commit(repo, ObjectID(commit.encode()))
            if not found.parents or not is_commit(repo, found.parents[0]):
                return []
            before = load_commit(repo, found.parents[0]).tree
            entries = (e for c in tree_changes(repo.object_store, before, found.tree) for e in (c.old, c.new))
            return sorted({e.path.decode("utf-8", "replace") for e in entries if e is not None and e.path})

    def preflight(self) -> None:
        """Asks at the start whether the branch can be written at all.

        Raises:
            Refused: the name is taken, or we have not the right.
            Unreachable: it cannot be asked.
        """
        with self._one_at_a_time:
            self._branch.may_write()

    def write(
        self,
        files: Mapping[str, bytes],
        *,
        subject: str,
        body: str = "",
        trailers: Mapping[str, str] | None = None,
        author: str,
        now: float,
        lines: Sequence[bytes] = (),
    ) -> str | None:
        """Makes our part of the branch what `files` says, adds to its history, and says the commit's id.

        Args:
            files: the whole of it, by path: what is not here is removed.
            subject: what happened, in a line.
            body: the rest of it.
            trailers: `Key: value` lines for programs.
            author: `Name <address>`.
            now: UTC seconds.
            lines: of history, as `history_files.written`. They are added to what is there.

        Returns:
            None where the branch says that already: no commit is made.

        Raises:
            Refused: another control writes this fleet's status, or the server will not have it.
            Unreachable: it cannot be written now.
        """
        strangers = sorted(path for path in files if path.partition("/")[0] not in OWNED)
        if strangers:
            raise ValueError(f"{strangers[0]} is not a path of the status branch's own")

        def commit(tree: ObjectID, parent: ObjectID | None, more: Mapping[str, str]) -> Commit:
            message = _message(subject, body, {**(trailers or {}), **more})
            made = commit_of(tree, parent, message=message, author=author, now=now)
            if self._sign_key is not None:
                sign(made, self._sign_key)
            return made

        with self._one_at_a_time:
            if self._lock is None:
                path = self._state / f"status-{self._cluster}.lock"
                self._lock = Lock(path, of=f"the status of {self._cluster}")

            def attempt(tries: int) -> tuple[bool, ObjectID | None]:
                parent = self._tip(now, anew=tries > 0)
                if parent is None:
                    tree, objects = _place(None, None, files, lines, now)
                    made = commit(tree, None, rotation.first(now).trailers)
                    return self._branch.swap(None, made.id, [*objects, made]), made.id
                # Its tip may be a younger one than was asked for, in a copy
                # that had to be made anew: then the swap is lost, and this runs again.
                tree, objects = read_tip(self._branch, parent, lambda repo, tip: _place(repo, tip, files, lines, now))
                if not objects:
                    return True, None
                stands = read_tip(self._branch, parent, lambda repo, tip: _stands(repo, tip, now))
                if stands.is_due(now) and self._rotates:
                    made = commit(tree, None, {**rotation.first(now).trailers, rotation.BEFORE: parent.decode()})
                    try:
                        self._branch.keep(rotation.archive(self._cluster, parent, now), parent)
                        return self._branch.swap(parent, made.id, [*objects, made]), made.id
                    except Refused as e:
                        # It goes on as it is: a longer branch is better than none.
                        self._rotates = False
                        log.warning("the status branch is not begun anew: %s", e.sentence)
                made = commit(tree, parent, stands.after(now).trailers)
                return self._branch.swap(parent, made.id, [*objects, made]), made.id

            won = until_won(attempt, shown=self.shown, branch=self.name)
            return won.decode() if won is not None else None

    def close(self) -> None:
        """Lets another process write."""
        with self._one_at_a_time:
            self._branch.close()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def _tip(self, now: float, *, anew: bool) -> ObjectID | None:
        """Where the branch is. A push finds out by itself when that is old, so it is not always asked."""
        fresh = self._looked_at is not None and 0 <= now - self._looked_at < LOOK_AGAIN_S
        if fresh and not anew and (held := self._branch.held()) is not None:
            return held
        look = self._branch.look()
        self._looked_at = now
        return look.tip if look is not None else None


def _place(
    repo: Repo | None, tip: ObjectID | None, files: Mapping[str, bytes], lines: Sequence[bytes], now: float
) -> tuple[ObjectID, list[ShaFile]]:
    """The tree with our part replaced and lines added, and its objects that are new: none where it is the same."""
    before = load_commit(repo, tip).tree if repo is not None and tip is not None else None
    parts = history_of(repo, before) if repo is not None and before is not None else {}

    def part(name: str) -> bytes:
        assert repo is not None
        return load(repo, parts[name], Blob).data

    more = appended(lines, parts, part, now) if lines else {}
    edit = Edit(repo, before, {**files, **more}, clear=OWNED)
    return edit.tree, edit.new_objects(before)


def _message(subject: str, body: str, trailers: Mapping[str, str]) -> str:
    lines = [f"{key}: {' '.join(value.split())}" for key, value in trailers.items()]
    return "\n\n".join(part for part in (" ".join(subject.split()), body.strip(), "\n".join(lines)) if part)


def _stands(repo: Repo, tip: ObjectID, now: float) -> rotation.Place:
    return rotation.place_of(trailers_of(load_commit(repo, tip)), now)
