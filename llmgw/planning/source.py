"""Where a reader's bytes come from: a file, an HTTP range, or bytes at hand."""

from __future__ import annotations

from typing import Protocol


class ByteSource(Protocol):
    """Bytes at an offset. What it raises passes through the readers unchanged."""

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only where the source ends."""


class Bytes:
    """Bytes that are at hand."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]
