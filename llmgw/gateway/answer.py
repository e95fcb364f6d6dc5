"""An engine's whole answer as its client gets it: under the name that was asked for, and never a hidden error."""

from __future__ import annotations

import base64
import struct

import msgspec
from msgspec import Raw

from llmgw.gateway import fields, openai
from llmgw.gateway.usage import Tokens, read_tokens
from llmgw.net.decoding import decode


def rewrite(body: bytes, *, model: str, as_base64: bool = False) -> tuple[bytes, Tokens | None]:
    """The answer to a client that asked for `model`, and what it used.

    Args:
        body: what the engine answered with status 200.
        model: the name the client asked for.
        as_base64: whether embeddings were asked for in base64: the Node client
            makes an empty vector of a list of numbers.

    Raises:
        ApiError: it is an error in spite of its status, or not an answer at all.
    """
    try:
        members = _members(body)
    except ValueError:
        raise openai.upstream_failed("the engine's answer is not a JSON object") from None
    error = members.get("error")
    if (error is not None and bytes(error) != b"null") or members.get("object") == Raw(b'"error"'):
        raise openai.from_engine(502, body)
    members["model"] = fields.value_of(model)
    if as_base64 and "data" in members:
        try:
            members["data"] = _in_base64(members["data"])
        except (msgspec.DecodeError, struct.error):
            raise openai.upstream_failed("the engine's embeddings are not lists of numbers") from None
    return fields.join(members), read_tokens(members.get("usage"))


def _members(body: bytes) -> dict[str, Raw]:
    try:
        return fields.split(body)
    except ValueError:
        return fields.split(fields.repaired(body))


def _in_base64(data: Raw) -> Raw:
    items = decode(data, list[dict[str, Raw]])
    for item in items:
        vector = item.get("embedding", Raw(b""))
        if bytes(vector).startswith(b"["):
            numbers = decode(vector, list[float])
            packed = base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers))
            item["embedding"] = Raw(b'"' + packed + b'"')
    return Raw(msgspec.json.encode(items))
