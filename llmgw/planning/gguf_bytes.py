"""The bytes of a GGUF header, read on as they are needed and never kept."""

from __future__ import annotations

import struct

from llmgw.errors import Refused
from llmgw.planning.source import ByteSource

FIRST_BYTES = 64 << 10
"""What the first read asks for: every key of the shape is in it, in all headers that were measured."""
MOST_READ_BYTES = 4 << 20
"""One read asks for no more: reads double up to it, so a header of 16 MB is eight of them."""
MOST_HEADER_BYTES = 128 << 20
"""No header is longer: the longest real one is under 20 MB, and something has to bound a lie."""


class Damaged(Refused):
    """A file that is no GGUF file, or not the whole of one."""

    def __init__(self, why: str, *, do: str = "fetch the file again, and compare its checksum") -> None:
        super().__init__("the GGUF header cannot be read", why=why, do=do)


class HeaderBytes:
    """A place in a header that only moves forward, with the bytes around it."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._start = 0
        self._window = b""
        self._at = 0
        self._next_read = FIRST_BYTES
        self.order = "<"
        self.requests = 0

    @property
    def position(self) -> int:
        """How far into the file the next byte is."""
        return self._start + self._at

    def holds(self, size: int) -> bool:
        """Whether so many bytes are there without another read."""
        return self._at + size <= len(self._window)

    def take(self, size: int) -> bytes:
        """The next bytes.

        Raises:
            Damaged: the file ends before.
        """
        if not self.holds(size):
            self._fill(size)
        taken = self._window[self._at : self._at + size]
        self._at += size
        return taken

    def number(self, code: str) -> int:
        """The next whole number, in the file's byte order. The code is one of struct's."""
        (value,) = struct.unpack(self.order + code, self.take(struct.calcsize("=" + code)))
        return int(value)

    def skip(self, size: int) -> None:
        """Go past bytes that are not wanted; none are read for it."""
        self._bound(size)
        if self.holds(size):
            self._at += size
        else:
            self._start, self._window, self._at = self.position + size, b"", 0

    def skip_texts(self, count: int) -> None:
        """Go past texts, each with its length before it."""
        length = struct.Struct(self.order + "Q")
        for _ in range(count):
            # Unrolled from `number` and `skip`: a vocabulary is 300,000 of these.
            if self._at + 8 > len(self._window):
                self._fill(8)
            self._at += 8 + length.unpack_from(self._window, self._at)[0]
            if self._at > len(self._window):
                beyond = self._at - len(self._window)
                self._at = len(self._window)
                self.skip(beyond)

    def _bound(self, size: int) -> None:
        if self.position + size > MOST_HEADER_BYTES:
            raise Damaged(f"at byte {self.position} it says {size} bytes more, and no header is so long")

    def _fill(self, size: int) -> None:
        self._bound(size)
        kept = self._window[self._at :]
        wanted = max(self._next_read, size - len(kept))
        got = self._source.read(self.position + len(kept), wanted)
        self.requests += 1
        if self._start or self._window:
            self._next_read = min(self._next_read * 2, MOST_READ_BYTES)
        self._start, self._window, self._at = self.position, kept + got[:wanted], 0
        if len(self._window) < size:
            end = self._start + len(self._window)
            raise Damaged(f"it ends after {end} bytes, inside its own header")
