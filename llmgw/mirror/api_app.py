"""The management API: what is held, what is to be fetched, what is removed. Control's, and no browser's."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from llmgw import __version__
from llmgw.core.holdings import FetchRequest, HoldingState, MirrorHealth
from llmgw.core.resolved import Ask
from llmgw.errors import OperatorError, Unreachable
from llmgw.mirror.fetches import FULL, Conflict, Fetches, NoRoom
from llmgw.mirror.requests import Invalid
from llmgw.mirror.resolving import Resolver
from llmgw.mirror.store import Store
from llmgw.net.answers import refusal
from llmgw.net.decoding import decode
from llmgw.net.port import Handler, body_of

T = TypeVar("T")

MAX_BODY_BYTES = 1 << 20
MAX_CONNECTIONS = 64
BODY_S = 10.0
"""A body that is not here by then is not waited for."""


def api_app(
    store: Store, fetches: Fetches, resolver: Resolver, *, boot: str, key_sha256: str | None
) -> web.Application:
    """`/v1/models`, `/v1/models/{name}/{version}`, `/v1/resolve` and `/v1/health`."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_callers(key_sha256), _disk_away])
    api = _Api(store, fetches, resolver, boot)
    app.router.add_get("/v1/health", api.health)
    app.router.add_get("/v1/models", api.list)
    app.router.add_post("/v1/models", api.ask)
    app.router.add_post("/v1/resolve", api.resolve)
    app.router.add_get("/v1/models/{name}/{version}", api.show)
    app.router.add_delete("/v1/models/{name}/{version}", api.remove)
    return app


class _Api:
    """Its answers. Everything that may wait for the disk runs in a thread."""

    def __init__(self, store: Store, fetches: Fetches, resolver: Resolver, boot: str) -> None:
        self._store, self._fetches, self._resolver, self._boot = store, fetches, resolver, boot

    def _on_disk(self, answer: Callable[[], T]) -> T:
        """What is known, while the disk it was seen on is there.

        Raises:
            OSError: it is not.
        """
        self._store.expect_disk()
        return answer()

    async def health(self, _: web.Request) -> web.Response:
        holdings = await asyncio.to_thread(self._fetches.holdings)
        under_way = {HoldingState.QUEUED, HoldingState.FETCHING}
        return _json(
            200,
            MirrorHealth(
                ok=not self._store.problem,
                boot=self._boot,
                disk_free_bytes=await asyncio.to_thread(self._store.free_bytes),
                holdings=len(holdings),
                fetching=sum(h.state in under_way for h in holdings),
                version=__version__,
                removed_bytes=await asyncio.to_thread(self._store.removed_bytes),
            ),
        )

    async def list(self, _: web.Request) -> web.Response:
        return _json(200, await asyncio.to_thread(self._on_disk, self._fetches.holdings))

    async def show(self, request: web.Request) -> web.Response:
        key = _key(request)
        holding = await asyncio.to_thread(self._on_disk, lambda: self._fetches.holding(key))
        return _absent(request) if holding is None else _json(200, holding)

    async def ask(self, request: web.Request) -> web.Response:
        asked = await _body(request, FetchRequest)
        if isinstance(asked, web.Response):
            return asked
        try:
            holding = await asyncio.to_thread(self._fetches.ask, asked)
        except Invalid as e:
            return refusal(422, e.what, e.why, e.do, "invalid")
        except Conflict as e:
            return refusal(409, e.what, e.why, e.do, "conflict")
        except NoRoom as e:
            return refusal(507, e.what, e.why, e.do, FULL)
        return _json(200 if holding.state is HoldingState.PRESENT else 202, holding)

    async def resolve(self, request: web.Request) -> web.Response:
        """What a source holds now. Nothing is fetched."""
        asked = await _body(request, Ask)
        if isinstance(asked, web.Response):
            return asked
        try:
            return _json(200, await asyncio.to_thread(self._resolver.resolve, asked))
        except Unreachable as e:
            return refusal(503, e.what, e.why, e.do, "unreachable")
        except OperatorError as e:
            return refusal(422, e.what, e.why, e.do, "refused")

    async def remove(self, request: web.Request) -> web.Response:
        cancel = request.query.get("cancel") == "1"
        try:
            removed = await asyncio.to_thread(self._fetches.remove, _key(request), cancel=cancel)
        except Conflict as e:
            return refusal(409, e.what, e.why, e.do, "conflict")
        return web.Response(status=204) if removed else _absent(request)


async def _body(request: web.Request, kind: type[T]) -> T | web.Response:
    """What was sent, or what is answered where that is nothing of the kind."""
    if request.content_type != "application/json":
        return refusal(415, "the body is not JSON", "its Content-Type is another", "send application/json")
    try:
        return decode(await body_of(request, within_s=BODY_S), kind)
    except msgspec.DecodeError as e:
        return refusal(422, "the request is not understood", str(e), "see docs/mirror.md for its fields", "invalid")


@web.middleware
async def _disk_away(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A disk that is not there says nothing of what it holds: whoever asks has to ask again."""
    try:
        return await handler(request)
    except ConnectionError:
        raise
    except OSError as e:
        why = f"{e.filename}: {e.strerror}" if e.filename else e.strerror or type(e).__name__
        return refusal(503, "the mirror's disk cannot be used", why, "mount it, and look at its rights", "disk")


def _callers(key_sha256: str | None) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if hdrs.ORIGIN in request.headers:
            # A page in somebody's browser, which can reach a loopback port too.
            return refusal(403, "this API is not for browsers", "the request has an Origin", "call it from a program")
        if key_sha256 is not None:
            scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
            given = hashlib.sha256(key.strip().encode()).hexdigest()
            if not (hmac.compare_digest(given, key_sha256) and scheme.lower() == "bearer"):
                answer = refusal(
                    401, "the key is missing or wrong", "the mirror has one", "send Authorization: Bearer KEY"
                )
                answer.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
                return answer
        return await handler(request)

    return check


def _json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


def _key(request: web.Request) -> str:
    return f"{request.match_info['name']}/{request.match_info['version']}"


def _absent(request: web.Request) -> web.Response:
    return refusal(
        404, f"the mirror holds no {_key(request)[:160]!a}", "nobody asked for it", "ask for it", "not_found"
    )
