"""Requests of one client to the gateway, streamed and timed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from llmgw.errors import Exit, OperatorError, Refused, Unreachable
from llmgw.gateway.forward import PROFILE
from llmgw.gateway.sse import Comment, EventReader
from llmgw.net.decoding import decode
from llmgw.net.http import Client

WORDS = "Write about the sea, and do not stop."
_ERROR_BYTES = 1 << 16


class Timed(Struct, frozen=True):
    """One answer. Times are on this machine's steady clock."""

    replica: str
    """Empty: it had to wait, and was begun before that was known."""
    began: float
    first: float
    """When its first token came."""
    ended: float
    tokens: int

    @property
    def first_s(self) -> float:
        """Until the first token."""
        return self.first - self.began

    @property
    def tps(self) -> float | None:
        """Tokens a second, once it writes. None: one token, or all of them at once."""
        took = self.ended - self.first
        return (self.tokens - 1) / took if self.tokens > 1 and took > 0 else None


class NotReady(OperatorError):
    """Nothing serves it now."""

    code = int(Exit.HELD)


class Model(Struct, frozen=True):
    """What the gateway's list says of a model."""

    name: str
    status: str = "ready"
    why: str = ""
    capabilities: tuple[str, ...] = ()


class _Delta(Struct, frozen=True):
    choices: tuple[dict[str, Any], ...] = ()
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Gateway:
    """Asks one model for answers of a length."""

    def __init__(self, client: Client, *, tokens: int) -> None:
        self._client, self._tokens = client, tokens
        self._number = itertools.count(1)

    async def model(self, name: str) -> Model:
        """What it says of a model.

        Raises:
            OperatorError: it has none of that name, or the key may not use it.
        """
        answer = await self._client.call("GET", f"/v1/models/{name}")
        if answer.status != 200:
            raise _refused(answer.status, answer.body, name)
        try:
            return decode(answer.body, Model)
        except msgspec.DecodeError:
            raise _no_gateway(self._client.base) from None

    async def ask(self, model: Model, profile: str = "") -> Timed:
        """One answer, of a profile where one is named.

        Raises:
            OperatorError: there was none.
        """
        chat = "chat" in model.capabilities
        # Each is another text: one that is in the engine's cache would be begun at once.
        text = f"{next(self._number)}. {WORDS}"
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
        asked |= {"model": model.name, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
        # Engines stop where they think it is over; this is about how fast they write.
        asked |= {"max_tokens": self._tokens, "ignore_eos": True}
        path = "/v1/chat/completions" if chat else "/v1/completions"
        headers = {PROFILE: profile} if profile else {}
        began = monotonic()
        async with self._client.streamed(path, body=msgspec.json.encode(asked), headers=headers) as answer:
            if answer.status != 200:
                body = b""
                async for piece in answer.pieces:
                    body = (body + piece)[:_ERROR_BYTES]
                raise _refused(answer.status, body, model.name)
            reader, times, counted = EventReader(), list[float](), 0
            async for piece in answer.pieces:
                now = monotonic()
                for event in reader.feed(piece):
                    if isinstance(event, Comment) or event == b"[DONE]":
                        continue
                    delta = _read(event, self._client.base)
                    if delta.error is not None:
                        raise Unreachable(
                            f"an answer of {model.name} broke off",
                            why=str(delta.error.get("message", ""))[:300],
                            do="see its replica's log",
                        )
                    counted = int((delta.usage or {}).get("completion_tokens") or counted)
                    if any(map(_says, delta.choices)):
                        times.append(now)
            if not times:
                raise OperatorError(
                    f"an answer of {model.name} was empty", why="it has no token", do="ask it by hand, and see its log"
                )
            return Timed(answer.headers.get("x-llmgw-replica", ""), began, times[0], times[-1], counted or len(times))


async def at_once(ask: Callable[[], Any], count: int, rounds: int) -> tuple[list[Timed], list[OperatorError]]:
    """So many streams at a time, each of so many answers one after the other, and what failed."""

    async def stream() -> list[Timed | OperatorError]:
        done: list[Timed | OperatorError] = []
        for _ in range(rounds):
            try:
                done.append(await ask())
            except OperatorError as e:
                done.append(e)
        return done

    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(stream()) for _ in range(count)]
    found = [one for stream_ in streams for one in stream_.result()]
    return [t for t in found if isinstance(t, Timed)], [e for e in found if isinstance(e, OperatorError)]


def _says(choice: dict[str, Any]) -> bool:
    """Whether a piece carries any of the answer, thought or said."""
    delta = choice.get("delta")
    parts = (delta.get("content"), delta.get("reasoning_content")) if isinstance(delta, dict) else (choice.get("text"),)
    return any(parts)


def _read(event: bytes, base: str) -> _Delta:
    try:
        return decode(event, _Delta)
    except msgspec.DecodeError:
        raise _no_gateway(base) from None


def _no_gateway(base: str) -> OperatorError:
    return OperatorError(
        f"{base} does not answer as a gateway",
        why="what it sent is not understood",
        do="give --gateway the gateway's URL",
    )


class _Said(Struct, frozen=True):
    message: str = ""
    code: str | None = None


class _Body(Struct, frozen=True):
    error: _Said = _Said()


def _refused(status: int, body: bytes, model: str) -> OperatorError:
    """What the gateway's error means to whoever measures."""
    try:
        said = decode(body, _Body).error
    except msgspec.DecodeError:
        said = _Said()
    why = said.message or f"it answered {status}"
    if status == 404:
        return OperatorError(f"{model} was not measured", why=why, do="name a model of `llmgw status`")
    if status in (401, 403):
        return Refused(f"{model} was not measured", why=why, do="give --key-file a client's key that may use it")
    if status in (429, 503):
        return NotReady(f"{model} was not measured", why=why, do="see `llmgw status`, and try again once it is ready")
    kind = Unreachable if status >= 500 else OperatorError
    return kind(f"{model} was not measured", why=why, do="see the gateway's log")
