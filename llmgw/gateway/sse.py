"""Server-sent events, read from bytes as they come, wherever the network cut them.

Nothing is decoded here: a character cut in two is whole again once its line is.
"""

from __future__ import annotations

MAX_EVENT_BYTES = 64 << 20
"""One event may be this long: images and long tool calls come as one line of many MB."""


class TooLong(Exception):
    """An event that does not end: nothing that follows can be understood."""


class Comment(bytes):
    """A line that says nothing but that the sender lives."""

    __slots__ = ()


class EventReader:
    """Takes bytes, gives the data of each event, and comments, in the order they came.

    A line ends in CR, LF or CRLF. `id`, `retry`, `event` and fields nobody
    knows are dropped, and so is an event without data: each of them makes one
    client or another fail. Two data lines of one event come as one, since JSON
    allows a space wherever it allows a line end.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._held = 0
        self._line: list[bytes] = []
        self._after_cr = False
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes.

        Raises:
            TooLong: the limit was passed.
        """
        if not data:
            return []
        half = 1 if self._after_cr and data.startswith(b"\n") else 0
        self._after_cr = data.endswith(b"\r")
        data = data[half:]
        if not data:
            return []
        lines = data.splitlines()
        if not data.endswith((b"\n", b"\r")):
            self._line.append(lines.pop())
            if not lines:
                return self._keep([])
            # What was held back belongs to the first of these lines, not to the one that has just begun.
            *begun, rest = self._line
            lines[0] = b"".join([*begun, lines[0]])
            self._line = [rest]
        elif self._line:
            lines[0] = b"".join([*self._line, lines[0]])
            self._line = []
        return self._keep(self._events(lines))

    def end(self) -> list[bytes]:
        """The event that the end of the stream completes, if one was begun."""
        lines = [b"".join(self._line), b""]
        self._line = []
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for line in lines:
            if not line:
                if any(self._data):
                    events.append(b" ".join(self._data))
                self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b":"):
                events.append(Comment(line))
        return events

    def _keep(self, events: list[bytes]) -> list[bytes]:
        self._held = sum(map(len, self._line)) + sum(map(len, self._data))
        if self._held > self._limit:
            raise TooLong
        return events
