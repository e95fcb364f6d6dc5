"""The fleet's files as a working copy has them now, uncommitted and untracked ones included.

Only ever read, and never through a link: no folder or file outside the working
copy is reached, whatever is put into it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dulwich.objects import Blob as GitBlob
from dulwich.objects import ObjectID
from dulwich.refs import Ref
from dulwich.repo import Repo

from llmgw.errors import Refused, Unreachable
from llmgw.sources.history import leads, trailers_between
from llmgw.sources.objects import Damaged, target
from llmgw.sources.repository import control_folders, opened
from llmgw.sources.revision import resolve
from llmgw.sources.scope import FOLDERS, SERVER, SUBMODULE, Reading, most_bytes
from llmgw.sources.snapshot import UNBORN, Blob, Snapshot, Trailer, identity_of
from llmgw.sources.tree import snapshot_of

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: opening a pipe that nobody writes to would wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorktreeSource:
    """The files of a working copy as they are, committed or not."""

    trouble = ""

    def __init__(self, root: Path) -> None:
        self.shown = str(root)
        self._root = root
        self._head: Snapshot | None = None
        self._last: Snapshot | None = None
        self._one_at_a_time = threading.Lock()

    def poll(self) -> Snapshot:
        with self._one_at_a_time, self._opened() as repo:
            before = self._head.commit if self._head else UNBORN
            head = self._read_head(repo)
            files, bad = read_worktree(self._root).result()
            identity = identity_of(files, bad)
            was_another = before not in (UNBORN, head.commit)
            self._last = replace(
                head,
                files=files,
                bad=bad,
                identity=identity,
                dirty=identity != head.identity,
            )
            led = not was_another or leads(repo, ObjectID(before.encode()), ObjectID(head.commit.encode()))
            return replace(self._last, rewritten=not led)

    def leads(self, old: str, new: str) -> bool:
        with self._one_at_a_time, self._opened() as repo:
            return leads(repo, ObjectID(old.encode()), ObjectID(new.encode()))

    def held(self) -> Snapshot | None:
        return self._last

    def at(self, rev: str) -> Snapshot:
        with self._one_at_a_time, self._opened() as repo:
            return snapshot_of(repo, resolve(repo, rev, self.shown), {})

    def trailers_since(self, commit: str | None, *, until: str = "") -> tuple[Trailer, ...]:
        with self._one_at_a_time, self._opened() as repo:
            head = until or (self._last.commit if self._last else UNBORN)
            if commit is None or head == UNBORN:
                return ()
            return trailers_between(repo, ObjectID(commit.encode()), ObjectID(head.encode()))[0]

    def watch_paths(self) -> tuple[Path, ...]:
        with self._opened() as repo:
            root = self._root.resolve()
            return (root, *(folder for folder in control_folders(repo) if folder != root / ".git"))

    def close(self) -> None:
        """Holds nothing."""

    def _read_head(self, repo: Repo) -> Snapshot:
        tip = target(repo, Ref(b"HEAD"))
        if tip is None:
            self._head = Snapshot(UNBORN, 0, "", "", identity_of({}, ()), {}, ())
        elif self._head is None or self._head.commit != tip.decode():
            known = {blob.id: blob for blob in self._head.files.values()} if self._head else {}
            self._head = snapshot_of(repo, tip, known)
        return self._head

    @contextmanager
    def _opened(self) -> Iterator[Repo]:
        try:
            with opened(self._root) as repo:
                if repo.bare:
                    raise Refused(
                        f"{self._root} has no working copy",
                        why="it is a bare repository",
                        do="follow it in head mode",
                    )
                yield repo
        except Damaged as e:
            raise Unreachable(f"{self._root} cannot be read", why=str(e), do="run git fsck in it") from None


def read_worktree(root: Path) -> Reading:
    """All that matters of the working copy at `root`.

    Raises:
        Unreachable: the folder cannot be read.
        Refused: there is too much of it to be a fleet's repository.
    """
    reading = Reading()
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as e:
        raise Unreachable(
            f"the working copy {root} cannot be read",
            why=(e.strerror or type(e).__name__).lower(),
            do="check the path and its rights",
        ) from None
    try:
        for name in (SERVER, *FOLDERS):
            _entry(reading, top, name, name)
    finally:
        os.close(top)
    return reading


def _entry(reading: Reading, parent: int, name: str, path: str) -> None:
    try:
        match reading.kind(path, os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            case "folder":
                _folder(reading, parent, name, path)
            case "file":
                _file(reading, parent, name, path)
    except FileNotFoundError:
        return  # Removed while we looked: it is not there.
    except OSError as e:
        reading.note(path, f"cannot be read: {(e.strerror or type(e).__name__).lower()}", "check its rights")


def _folder(reading: Reading, parent: int, name: str, path: str) -> None:
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        entries = os.listdir(folder)  # noqa: PTH208 - of the open folder, whatever its path is by now
        if ".git" in entries:
            reading.note(path, *SUBMODULE)
            return
        for entry in entries:
            child = reading.child(path, os.fsencode(entry))
            if child is not None:
                _entry(reading, folder, entry, child)
    finally:
        os.close(folder)


def _file(reading: Reading, parent: int, name: str, path: str) -> None:
    with os.fdopen(os.open(name, _FILE, dir_fd=parent), "rb") as file:
        if reading.kind(path, os.fstat(file.fileno()).st_mode) != "file":
            return
        data = file.read(most_bytes(path) + 1)
    reading.keep(path, Blob(GitBlob.from_string(data).id.decode(), data))
