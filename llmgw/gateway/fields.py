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

_MEMBERS = msgspec.json.Decoder(dict[str, Raw])


def split(body: bytes) -> dict[str, Raw]:
    """The members of an object that a client sent.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        return _MEMBERS.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def split_loosely(body: bytes) -> dict[str, Raw]:
    """The members of an object that an engine sent: with NaN, and with half of a surrogate pair.

    Python engines send both, and clients read both.

    Raises:
        ValueError: not even that.
    """
    try:
        return split(body)
    except ValueError:
        pass
    try:
        whole = json.loads(body)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict):
        return {name: value_of(value) for name, value in whole.items()}
    raise ValueError("not a JSON object")


def value_of(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def join(members: dict[str, Raw]) -> bytes:
    return msgspec.json.encode(members)
