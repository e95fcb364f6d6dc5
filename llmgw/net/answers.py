"""What every server of ours answers where it does not do what it was asked."""

from __future__ import annotations

import msgspec
from aiohttp import web


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What, why and what to do, as `errors.OperatorError` has them."""

    what: str
    why: str
    do: str
    cause: str = ""
    """A word for programs, where there is one."""


class Errored(msgspec.Struct, frozen=True):
    """Its envelope."""

    error: ErrorBody


def refusal(status: int, what: str, why: str, do: str, cause: str = "") -> web.Response:
    """An answer of 400 and above."""
    body = msgspec.json.encode(Errored(ErrorBody(what, why, do, cause)))
    return web.Response(status=status, body=body, content_type="application/json")
