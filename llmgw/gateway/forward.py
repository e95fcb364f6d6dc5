"""One request, from its place in line to its last byte: which replica, how often, and what the client is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext

from llmgw.core.table import TableModel
from llmgw.gateway import answer, openai
from llmgw.gateway.bounds import Bounds
from llmgw.gateway.engine_slots import EngineSlots
from llmgw.gateway.keepalive import KeepAlive
from llmgw.gateway.ledger import Hold, Ledger
from llmgw.gateway.pick import Key
from llmgw.gateway.queue import Lines
from llmgw.gateway.relay import Answer, ClientLeft, Inbound, Late, Lost, Upstream
from llmgw.gateway.request import Ask
from llmgw.gateway.stream import ClientStream
from llmgw.gateway.usage import Record

JSON = {"content-type": "application/json"}
PROFILE = "x-llmgw-profile"
"""The header that names the profile a request is for: `llmgw bench` measures one at a time."""


class _Next(Exception):
    """This replica did not serve it, and the client has seen nothing: another one may."""

    def __init__(self, failure: openai.ApiError) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Forwarder:
    """Carries requests to replicas and answers back."""

    def __init__(
        self,
        *,
        lines: Lines,
        ledger: Ledger,
        upstream: Upstream,
        slots: EngineSlots,
        bounds: Bounds,
        now: Callable[[], float],
    ) -> None:
        self._lines, self._ledger, self._upstream, self._slots = lines, ledger, upstream, slots
        self._bounds, self._now = bounds, now

    async def carry(self, inbound: Inbound, ask: Ask, model: TableModel, record: Record) -> None:
        """Answer the request.

        Raises:
            ApiError: what the client is to be told instead of an answer, or at the end of one that broke.
            ClientLeft: nobody is there to be told.
        """
        body = ask.for_engine(model.name, model.max_output)
        profile = "".join(inbound.header(PROFILE)[:1])
        inbound.head["x-llmgw-served-model"] = model.name
        tried: frozenset[Key] = frozenset()
        failure: openai.ApiError | None = None
        async with KeepAlive(inbound, self._bounds.keepalive_s) if ask.stream else nullcontext():
            while len(tried) <= self._bounds.more_tries:
                try:
                    hold = await self._lines.enter(model.name, tried, profile)
                except openai.ApiError as nobody:
                    # Where another replica has failed already, that is what happened, and not that none is left.
                    raise failure or nobody from None
                with hold:
                    try:
                        return await self._attempt(inbound, ask, body, hold, record)
                    except _Next as error:
                        self._ledger.accuse(hold.key)
                        tried |= {hold.key}
                        failure = error.failure
        assert failure is not None, "every try that does not answer says why"
        raise failure

    async def _attempt(self, inbound: Inbound, ask: Ask, body: bytes, hold: Hold, record: Record) -> None:
        replica = hold.replica
        record.attempts += 1
        record.replica, record.tier = replica.id, replica.tier
        record.granted = record.granted or self._now()
        inbound.head.update({"x-llmgw-replica": replica.id, "x-llmgw-attempts": str(record.attempts)})
        headers = {**JSON, "x-request-id": record.request_id}
        if replica.key:
            headers["authorization"] = f"Bearer {replica.key}"
        got: Answer | None = None
        try:
            got = await self._upstream.ask(
                "POST", replica.url + ask.path, headers=headers, body=body, stream=ask.stream
            )
            if got.status != 200:
                raise _refused(got.status, await got.read())
            if ask.stream:
                await self._stream(inbound, ask, got, hold, record)
            else:
                await self._whole(inbound, ask, got, hold, record)
        except Lost as error:
            # Only where the client has seen nothing: `_stream` keeps what happens later to itself.
            raise _Next(openai.upstream_failed(f"{replica.id} failed: {error}")) from None
        except Late as error:
            self._left_behind(hold, record)
            raise openai.timed_out(f"{replica.id} is too slow: {error}") from None
        except (ClientLeft, asyncio.CancelledError):
            self._left_behind(hold, record)
            raise
        finally:
            if got is not None:
                got.close()

    async def _whole(self, inbound: Inbound, ask: Ask, got: Answer, hold: Hold, record: Record) -> None:
        said = await got.read()
        hold.release()  # the engine is done, however long the client takes
        body, record.tokens = answer.rewrite(said, model=ask.name, as_base64=ask.as_base64)
        record.first, record.status = self._now(), 200
        await inbound.answer(200, JSON, body)

    async def _stream(self, inbound: Inbound, ask: Ask, got: Answer, hold: Hold, record: Record) -> None:
        if got.content_type != "text/event-stream":
            answer.rewrite(await got.read(), model=ask.name)  # raises what it says, if it is an error
            raise openai.upstream_failed("the engine answered a request for a stream with something else")

        def began() -> None:
            record.first = self._now()

        through = ClientStream(model=ask.name, wants_usage=ask.wants_usage, began=began)
        try:
            await got.pour(through, inbound)
            rest = through.end()
        except Lost as error:
            rest = through.end(broken=f"{hold.replica.id} failed: {error}")
        finally:
            # Also for a client that left: what was made for it counts.
            record.tokens, record.deltas = through.tokens, through.deltas
        hold.release()
        if through.cut and not through.events:
            raise Lost("its stream ended before it began")
        if rest:
            await inbound.write(rest)
        if through.failure is not None:
            raise through.failure
        record.status = 200
        await inbound.finish()

    def _left_behind(self, hold: Hold, record: Record) -> None:
        if record.first is None:
            self._slots.abandoned(hold)


def _refused(status: int, body: bytes) -> Exception:
    """What an engine's error means: for the client, or for the next replica."""
    failure = openai.from_engine(status, body)
    # 503 is said while the model loads, and by an engine that takes no more: neither has begun.
    # 401 and 403 are about our key and not the client's: another replica has another one.
    return _Next(failure) if status in {401, 403, 502, 503} else failure
