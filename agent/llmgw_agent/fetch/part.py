"""A file on its way: what is here of it, and the sum of exactly that."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

HEAD_BYTES = 64
"""How much of the beginning is kept at hand: every format we know names itself in it."""

_BLOCK = 1 << 20


class Part:
    """One file that is being written, by one writer.

    It is hashed as it is written, so the sum needs no second reading. The
    length of the file says how far it came: nothing is allocated ahead. What
    goes wrong on the disk comes out as OSError.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._fd).st_size
        self.head = b""
        self._sum = hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    @property
    def sha256(self) -> str:
        """Of what is here."""
        return self._sum.hexdigest()

    def take_up(self, between: Callable[[], None]) -> None:
        """Hash what an earlier writer left; `between` is called after each block and may raise."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._sum, self.head, self.size = hashlib.sha256(), b"", 0
        while block := os.read(self._fd, _BLOCK):
            self._count(block)
            between()

    def restart(self) -> None:
        """Begin again at byte 0."""
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._sum, self.head, self.size = hashlib.sha256(), b"", 0

    def write(self, chunk: bytes) -> None:
        """Append. After an OSError the part is of no more use: whoever opens it next takes up what the disk took."""
        rest = memoryview(chunk)
        while rest:  # a disk that is nearly full takes the first half of a chunk
            rest = rest[os.write(self._fd, rest) :]
        self._count(chunk)

    def sync(self) -> None:
        os.fsync(self._fd)

    def _count(self, block: bytes) -> None:
        self._sum.update(block)
        self.size += len(block)
        if len(self.head) < HEAD_BYTES:
            self.head += block[: HEAD_BYTES - len(self.head)]
