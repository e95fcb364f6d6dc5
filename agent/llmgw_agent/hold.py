"""A state folder held by one process: as long as it has the lock, no other agent runs on it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from llmgw_agent import durable
from llmgw_agent.errors import Refused


class Hold:
    """The lock on `agent.pid` of a state folder, which is made if it was not there."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._file = -1

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file >= 0:
            os.close(self._file)

    @property
    def lost(self) -> bool:
        """Whether the folder is another than the one held, or empty: removed, or mounted over."""
        try:
            there = (self.state / "agent.pid").stat()
        except OSError as e:
            # A disk that does not answer is no other disk.
            return e.errno in {errno.ENOENT, errno.ENOTDIR}
        held = os.fstat(self._file)
        return (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino)

    def take(self) -> None:
        """Hold the folder that is there now, in place of one held before.

        Raises:
            Refused: another agent has it, or it cannot be used.
        """
        try:
            durable.private_folder(self.state)
            file = _open(self.state / "agent.pid")
        except OSError as e:
            do = "name a folder this user may write to"
            raise Refused(f"--state {self.state} cannot be used", why=e.strerror or str(e), do=do) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(file, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(file)
            why, do = f"another agent runs on it, process {pid}", "stop that one, or name another folder"
            raise Refused(f"--state {self.state} is in use", why=why, do=do) from None
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a disk that takes nothing: the lock is what counts
        before, self._file = self._file, file
        if before >= 0:
            os.close(before)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as e:
        if e.errno != errno.EROFS:
            raise
        # Engines are taken up also where nothing can be written any more.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
