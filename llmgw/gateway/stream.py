"""An engine's stream as its client gets it: whole events, under the name that was asked for, with one end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct

from llmgw.gateway import fields, openai
from llmgw.gateway.sse import Comment, EventReader, TooLong
from llmgw.gateway.usage import Tokens, read_tokens
from llmgw.net.decoding import decoder


class _Choice(Struct):
    index: int | None = 0
    finish_reason: str | None = None


class _Chunk(Struct):
    """What the gateway has to know of an event; everything else in it goes by unread."""

    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: Raw = Raw(b"")
    error: Raw = Raw(b"")


_CHUNK = decoder(_Chunk)


class ClientStream:
    """Bytes of the engine in, bytes for the client out.

    A stream is complete when it said `[DONE]`, or when each choice that began has
    a finish reason. Any other end is a failure, and stays in `failure` for the
    caller to say: clients take a stream that just ends for a success.
    """

    def __init__(self, *, model: str, wants_usage: bool, began: Callable[[], None] = lambda: None) -> None:
        """`model` is the name the client asked for; `began` is called at the first event."""
        self._reader = EventReader()
        self._model = model
        self._model_member = fields.value_of(model)
        self._wants_usage = wants_usage
        self._began = began
        self._begun: set[int] = set()
        self._finished: set[int] = set()
        self.over = False
        """Nothing that comes after this goes to the client."""
        self.failure: openai.ApiError | None = None
        self.cut = False
        """It ended before its answer was complete, and the engine did not say why."""
        self.events = 0
        """Events that went to the client."""
        self.deltas = 0
        self.tokens: Tokens | None = None

    def feed(self, data: bytes) -> bytes:
        """What goes to the client for these bytes: whole events, or nothing."""
        try:
            return self._through(self._reader.feed(data))
        except TooLong:
            return self._fail(openai.upstream_failed("the engine sent an event that does not end"))

    def end(self, broken: str = "") -> bytes:
        """What goes to the client when the engine's connection ends; `broken` says how, if not by itself."""
        if self.over:
            return b""
        # What came last may be complete but for its line end. After a break it may not be, and is dropped.
        last = b"" if broken else self._through(self._reader.end())
        if self.over:
            return last
        self.over = True
        if self._finished and self._begun == self._finished:
            return last + openai.DONE
        self.cut = True
        self.failure = openai.upstream_failed(broken or "the engine ended its stream before the answer was complete")
        return last

    def _through(self, events: list[bytes]) -> bytes:
        out: list[bytes] = []
        for event in events:
            out.append(event + b"\n\n" if isinstance(event, Comment) else self._event(event))
            if self.over:
                break
        return b"".join(out)

    def _event(self, data: bytes) -> bytes:
        if data.strip() == b"[DONE]":
            self.over = True
            return openai.DONE
        try:
            chunk = _CHUNK(data)
        except msgspec.DecodeError:
            try:
                data = fields.repaired(data)
                chunk = _CHUNK(data)
            except (msgspec.DecodeError, ValueError):
                return self._fail(openai.upstream_failed("the engine sent an event that is not what its API says"))
        if (chunk.error and bytes(chunk.error) != b"null") or chunk.object == "error":
            return self._fail(openai.from_event(data))
        if not self._counted(chunk):
            return b""
        if not self.events:
            self._began()
        self.events += 1
        return b"data: " + self._rewritten(data, chunk) + b"\n\n"

    def _counted(self, chunk: _Chunk) -> bool:
        """Note what the chunk says, and whether it goes on to the client."""
        usage = read_tokens(chunk.usage)
        if usage is not None:
            self.tokens = usage
        if not chunk.choices:
            # Clients read `choices[0]` of whatever comes; without one, only the usage they asked for.
            return usage is not None and self._wants_usage
        for choice in chunk.choices:
            index = choice.index or 0
            self._begun.add(index)
            if choice.finish_reason:
                self._finished.add(index)
            else:
                self.deltas += 1
        return True

    def _rewritten(self, data: bytes, chunk: _Chunk) -> bytes:
        drop_usage = bool(chunk.usage) and not self._wants_usage
        if chunk.model == self._model and chunk.choices is not None and not drop_usage:
            return data
        members = fields.split(data)
        members["model"] = self._model_member
        if not chunk.choices:
            members["choices"] = Raw(b"[]")
        if drop_usage:
            members.pop("usage", None)
        return fields.join(members)

    def _fail(self, failure: openai.ApiError) -> bytes:
        self.failure = failure
        self.over = True
        return b""
