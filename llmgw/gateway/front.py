"""What each path answers, and to whom: keys, models, health, and the requests that go on to replicas."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable

import msgspec

from llmgw.core.table import Serving, TableKey, TableModel
from llmgw.gateway import keys, openai, request
from llmgw.gateway.demand import Activity
from llmgw.gateway.forward import JSON, Forwarder
from llmgw.gateway.ledger import Ledger
from llmgw.gateway.queue import Lines
from llmgw.gateway.relay import BadBody, ClientLeft, Inbound
from llmgw.gateway.table import Snapshot, TableFollower
from llmgw.gateway.usage import CLIENT_CLOSED, Outcome, Record, Usage

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Front:
    """Answers every request of a client."""

    def __init__(
        self,
        *,
        follower: TableFollower,
        lines: Lines,
        ledger: Ledger,
        forwarder: Forwarder,
        usage: Usage,
        activity: Activity,
        now: Callable[[], float],
        open_to_all: bool,
    ) -> None:
        self._follower, self._lines, self._ledger = follower, lines, ledger
        self._forwarder, self._usage, self._activity = forwarder, usage, activity
        self._now, self._open_to_all = now, open_to_all

    async def handle(self, inbound: Inbound) -> None:
        """Answer one request, whatever it is."""
        given = inbound.header("x-request-id")
        request_id = given[0] if given and _REQUEST_ID.fullmatch(given[0]) else f"req_{uuid.uuid4().hex}"
        inbound.head["x-request-id"] = request_id
        record = Record(request_id=request_id, path=inbound.path, started=self._now())
        counted = inbound.method == "POST" and inbound.path in request.PATHS
        try:
            await self._answer(inbound, record if counted else None)
        except openai.ApiError as error:
            _note(record, error)
            await _tell(inbound, error, record)
        except ClientLeft:
            record.status, record.outcome = CLIENT_CLOSED, Outcome.CLIENT_CLOSED
        except asyncio.CancelledError:
            record.status, record.outcome = CLIENT_CLOSED, Outcome.CLIENT_CLOSED
            raise
        except Exception:
            log.exception("a request was not answered as it should be", extra={"request_id": request_id})
            record.status, record.outcome = 500, Outcome.FAILED
            await _tell(inbound, openai.internal(), record)
        finally:
            if counted:
                self._usage.close(record, self._now())
                if record.model:
                    self._activity.ended(record.model)

    async def _answer(self, inbound: Inbound, record: Record | None) -> None:
        """`record` is None for what asks no model to do anything."""
        if record is not None:
            await self._forward(inbound, record)
            return
        if inbound.method not in {"GET", "HEAD"}:
            raise openai.unknown_path(inbound.method, inbound.path)
        match inbound.path.rstrip("/"):
            case "" if inbound.method == "HEAD":
                await inbound.answer(200, {}, b"")
            case "/health":
                await inbound.answer(200, JSON, self._health())
            case "/v1/models" | "/models":
                snapshot, key = self._admit(inbound)
                await inbound.answer(
                    200, JSON, openai.model_list(m for m in snapshot.table.models if keys.allowed(key, m))
                )
            case path if path.startswith("/v1/models/"):
                snapshot, key = self._admit(inbound)
                name = path.removeprefix("/v1/models/")
                model = snapshot.find(name)
                if model is None or not keys.allowed(key, model):
                    raise openai.unknown_model(name)
                await inbound.answer(200, JSON, openai.model_entry(model, name))
            case _:
                raise openai.unknown_path(inbound.method, inbound.path)

    async def _forward(self, inbound: Inbound, record: Record) -> None:
        snapshot, key = self._admit(inbound)
        record.key = key.name
        try:
            body = await inbound.body()
        except BadBody as error:
            code = "request_too_large" if error.status == 413 else "unreadable_body"
            raise openai.ApiError(error.status, str(error), code=code, retry=False) from None
        ask = request.read(inbound.path, body)
        record.asked, record.stream = ask.name, ask.stream
        model = self._model(snapshot, key, ask.name)
        record.model = model.name
        request.check_kind(ask.path, ask.name, model.kind)
        await self._forwarder.carry(inbound, ask, model, record)

    def _admit(self, inbound: Inbound) -> tuple[Snapshot, TableKey]:
        snapshot = self._follower.current
        if snapshot is None:
            raise openai.unavailable("the gateway has not heard from control yet, and knows no model and no key")
        return snapshot, keys.caller(snapshot.table, inbound.header, peer=inbound.peer, open_to_all=self._open_to_all)

    def _model(self, snapshot: Snapshot, key: TableKey, name: str) -> TableModel:
        model = snapshot.find(name)
        if model is None:
            raise openai.unknown_model(name)
        if not keys.allowed(key, model):
            raise openai.not_allowed(name)
        return model

    def _health(self) -> bytes:
        """200 as long as the process serves: a gateway without control still does."""
        snapshot = self._follower.current
        models = () if snapshot is None else snapshot.table.models
        return msgspec.json.encode(
            {
                "status": "ok",
                "table": None if snapshot is None else snapshot.table.version,
                "control": "away" if self._follower.away else "ok",
                "models": len(models),
                "ready_replicas": sum(r.state is Serving.READY for m in models for r in m.replicas),
                "in_flight": sum(self._ledger.in_flight().values()),
                "left_behind": self._ledger.left_behind(),
                "waiting": sum(self._lines.waiting().values()),
                "requests": {outcome.value: self._usage.outcomes[outcome] for outcome in Outcome},
            },
        )


def _note(record: Record, error: openai.ApiError) -> None:
    record.status = error.status
    # Whoever was refused before a replica was asked, or for what was asked, is no failure of the fleet.
    rejected = error.status < 500 or not record.attempts
    record.outcome = Outcome.REJECTED if rejected else Outcome.FAILED


async def _tell(inbound: Inbound, error: openai.ApiError, record: Record) -> None:
    """Say it in the way that is still open: as a status, or as the end of a stream that has begun."""
    try:
        if inbound.started:
            await inbound.write(error.events())
            await inbound.finish()
        else:
            await inbound.answer(error.status, {**JSON, **error.headers()}, error.body())
    except ClientLeft:
        record.status, record.outcome = CLIENT_CLOSED, Outcome.CLIENT_CLOSED
