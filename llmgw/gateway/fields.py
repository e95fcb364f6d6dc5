"""The members of a JSON object, each as the bytes it came in.

Requests and answers are changed member by member: what the gateway does not
change goes on byte for byte, whatever it is, and costs nothing to carry. A name
given twice counts once, the last time, so that the gateway and an engine can
never read two different models in one request.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw

from llmgw.net.decoding import decoder

_MEMBERS = decoder(dict[str, Raw])


def split(body: bytes) -> dict[str, Raw]:
    """The members of an object that a client sent.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        return _MEMBERS(body)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def repaired(body: bytes) -> bytes:
    """What an engine sent, as JSON that every client can read.

    Python engines send NaN for a probability and half of a surrogate pair for
    half of a character: `null` and `?` stand for these.

    Raises:
        ValueError: it is not even that, or no object.
    """
    try:
        whole = json.loads(body, parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if isinstance(whole, dict):
        return json.dumps(whole, ensure_ascii=False).encode(errors="replace")
    raise ValueError("not a JSON object")


def value_of(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def join(members: dict[str, Raw]) -> bytes:
    return msgspec.json.encode(members)
