"""One process at a time for a folder of ours: a lock that dies with its holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from llmgw.errors import Refused


class Lock:
    """Held from the moment it is made until `close`, or the end of the process.

    Raises:
        Refused: another process holds it, or it cannot be made.
    """

    def __init__(self, path: Path, *, of: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise Refused(
                f"{of} cannot be locked",
                why=f"{path}: {(e.strerror or type(e).__name__).lower()}",
                do="give --state a folder that llmgw may write to",
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise Refused(
                f"{of} is in use",
                why=f"process {holder or 'unknown'} holds {path}",
                do="stop that one, or give this one a --state of its own",
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
