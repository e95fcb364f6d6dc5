"""A client's request for a model: what the gateway has to know of it, and what the engine is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from llmgw.gateway import fields, openai
from llmgw.net.decoding import decode

STREAMING = frozenset({"/v1/chat/completions", "/v1/completions"})
"""The paths whose answer may be a stream."""

_GENERATES = ("chat", "completion")
KINDS = {**dict.fromkeys(STREAMING, _GENERATES), "/v1/embeddings": ("embedding",)}
"""The kinds of model that answer each path."""

PATHS = frozenset(KINDS)
"""Every path of an engine that can be reached. Engines have others, some of which must never be."""


LIMITS = ("max_tokens", "max_completion_tokens", "n_predict")
"""The names by which engines are told how long an answer may be. llama-server takes the last one over the others."""


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

    def for_engine(self, served: str, max_output: int | None = None) -> bytes:
        """The body an engine is sent that calls the model `served`.

        A stream is always asked for its usage: without it nobody can say what it used.

        Args:
            served: the name the engine knows.
            max_output: tokens an answer may have. None: as many as there is room for.

        Raises:
            ApiError: what the client asks for as a limit is none.
        """
        members = {**self.members, "model": fields.value_of(served)}
        if max_output is not None and self.path in STREAMING:
            members.update(_limited(self.members, max_output))
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


def check_kind(path: str, name: str, kind: str) -> None:
    """Whether a model of this kind answers this path.

    Raises:
        ApiError: it does not, and no engine has to be asked to know.
    """
    if kind not in KINDS[path]:
        does = " or ".join(f"`kind: {k}`" for k in KINDS[path])
        raise openai.bad_request(
            f"{name!r} is a model of `kind: {kind}`, and {path} is answered by models of {does}",
            param="model",
            code="wrong_kind",
        )


def _limited(members: dict[str, Raw], most: int) -> dict[str, Raw]:
    """The limits an engine is sent, none of them over `most`.

    An engine that does not know one of the names, or takes -1 for endless, must not go past it:
    so each that is there is cut down, and the one that every engine knows is always there.
    """
    asked = {name: _typed(members, name, int | float) for name in LIMITS}
    given = {name: value if 0 <= value <= most else most for name, value in asked.items() if value is not None}
    given.setdefault(LIMITS[0], min(given.values(), default=most))
    return {name: fields.value_of(value) for name, value in given.items() if value != asked[name]}


def _options(members: dict[str, Raw]) -> dict[str, Raw]:
    return _typed(members, "stream_options", dict[str, Raw]) or {}


def _typed(members: dict[str, Raw], name: str, kind: Any) -> Any:
    """The member, or None where it is absent or null."""
    try:
        return decode(members.get(name, b"null"), kind | None)
    except msgspec.DecodeError as error:
        raise openai.bad_request(f"{name}: {error}", param=name) from None
