"""A client's request for a model: what the gateway has to know of it, and what the engine is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from llmgw.gateway import fields, openai

STREAMING = frozenset({"/v1/chat/completions", "/v1/completions"})
"""The paths whose answer may be a stream."""

PATHS = STREAMING | {"/v1/embeddings"}
"""Every path of an engine that can be reached. Engines have others, some of which must never be."""


@dataclass(frozen=True)
class Ask:
    """What was asked."""

    path: str
    name: str
    """The model or alias, as the client wrote it."""
    stream: bool
    wants_usage: bool
    """Whether the client asked for the chunk that says what a stream used."""
    as_base64: bool
    """Whether embeddings were asked for in base64."""
    members: dict[str, Raw]

    def for_engine(self, served: str) -> bytes:
        """The body an engine is sent that calls the model `served`.

        A stream is always asked for its usage: without it nobody can say what it used.
        """
        members = {**self.members, "model": fields.value_of(served)}
        if self.stream:
            options = _options(self.members)
            members["stream_options"] = Raw(fields.join({**options, "include_usage": Raw(b"true")}))
        return fields.join(members)


def read(path: str, body: bytes) -> Ask:
    """What this body asks.

    Raises:
        ApiError: it cannot be understood as far as the gateway has to.
    """
    try:
        members = fields.split(body)
    except ValueError as error:
        raise openai.bad_request(f"the request's body is not a JSON object: {error}") from None
    name = _typed(members, "model", str)
    if not name:
        raise openai.bad_request("the request names no model", param="model")
    stream = bool(_typed(members, "stream", bool)) and path in STREAMING
    return Ask(
        path=path,
        name=name,
        stream=stream,
        wants_usage=stream and bytes(_options(members).get("include_usage", b"")) == b"true",
        as_base64=members.get("encoding_format") == Raw(b'"base64"'),
        members=members,
    )


def _options(members: dict[str, Raw]) -> dict[str, Raw]:
    return _typed(members, "stream_options", dict[str, Raw]) or {}


def _typed(members: dict[str, Raw], name: str, kind: Any) -> Any:
    """The member, or None where it is absent or null."""
    try:
        return msgspec.json.decode(members.get(name, b"null"), type=kind | None)
    except (msgspec.DecodeError, RecursionError) as error:
        raise openai.bad_request(f"{name}: {error}", param=name) from None
