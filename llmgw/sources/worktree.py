"""The fleet's files as a working copy has them now, uncommitted and untracked ones included.

Only ever read, and never through a link: no folder or file outside the working
copy is reached, whatever is put into it.
"""

from __future__ import annotations

import os
from pathlib import Path

from dulwich.objects import Blob as GitBlob

from llmgw.errors import Unreachable
from llmgw.sources.scope import FOLDERS, MAX_FILE_BYTES, SERVER, SUBMODULE, Reading
from llmgw.sources.snapshot import Blob

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: opening a pipe that nobody writes to would wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
        data = file.read(MAX_FILE_BYTES + 1)
    reading.keep(path, Blob(GitBlob.from_string(data).id.decode(), data))
