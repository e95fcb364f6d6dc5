"""What each request used: one record, however it ended, in the log and in the counters."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from llmgw.net.decoding import decoder

log = logging.getLogger(__name__)

CLIENT_CLOSED = 499
"""What is written down as the status of a request whose client has left."""


class Outcome(StrEnum):
    OK = "ok"
    REJECTED = "rejected"
    """Answered by the gateway, or by an engine that found the request wrong."""
    FAILED = "failed"
    """An engine, or the way to it, did not do what it should."""
    CLIENT_CLOSED = "client_closed"


class _Details(Struct):
    cached_tokens: int | None = None


class Tokens(Struct):
    """What an engine says that a request used. None is not said."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


_TOKENS = decoder(Tokens)


def read_tokens(usage: bytes | msgspec.Raw | None) -> Tokens | None:
    """Of an engine's `usage`. None where it says none, or nothing that can be read."""
    if not usage or bytes(usage) == b"null":
        return None
    try:
        return _TOKENS(usage)
    except msgspec.DecodeError:
        return None


@dataclass(slots=True)
class Record:
    """One request, filled in as it goes on."""

    request_id: str
    path: str
    started: float
    """Monotonic seconds, as all times here."""
    key: str = ""
    """The name of the client's key, never the key."""
    asked: str = ""
    """The name it asked for."""
    model: str = ""
    """The model that name means. Empty: none."""
    stream: bool = False
    replica: str = ""
    tier: int | None = None
    attempts: int = 0
    granted: float | None = None
    """When the first slot was given."""
    first: float | None = None
    """When the first event of a stream was there, or the whole of an answer."""
    tokens: Tokens | None = None
    deltas: int = 0
    """Pieces of a stream, which stand for its tokens where the engine did not come to count them."""
    status: int = 0
    outcome: Outcome = Outcome.OK


class Usage:
    """Closes records: each once."""

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        """By key and model, prompt and completion together."""

    def close(self, record: Record, now: float) -> None:
        """Count it and say it."""
        said = record.tokens or Tokens(completion_tokens=record.deltas or None)
        self.outcomes[record.outcome] += 1
        if record.model:
            self.tokens[record.key, record.model] += (said.prompt_tokens or 0) + (said.completion_tokens or 0)
        fields: dict[str, Any] = {
            "request_id": record.request_id,
            "path": record.path,
            "key": record.key,
            "asked": record.asked,
            "model": record.model,
            "stream": record.stream,
            "replica": record.replica,
            "tier": record.tier,
            "attempts": record.attempts,
            "status": record.status,
            "outcome": record.outcome.value,
            "prompt_tokens": said.prompt_tokens,
            "completion_tokens": said.completion_tokens,
            "cached_tokens": said.prompt_tokens_details.cached_tokens if said.prompt_tokens_details else None,
            "estimated": record.tokens is None and record.deltas > 0,
            "queue_s": _since(record.started, record.granted),
            "first_s": _since(record.started, record.first),
            "total_s": _since(record.started, now),
        }
        log.info("a request ended", extra=fields)


def _since(start: float, end: float | None) -> float | None:
    return None if end is None else round(end - start, 4)
