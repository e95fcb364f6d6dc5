"""The byte port: published files and manifests for whoever asks, and nothing else."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from typing import IO

import msgspec
from aiohttp import hdrs, web

from llmgw.core.holdings import HoldingState
from llmgw.mirror.records import KeptFile, digest
from llmgw.mirror.store import Store
from llmgw.mirror.version import Version
from llmgw.net.answers import refusal
from llmgw.net.port import Handler

MAX_CONNECTIONS = 400
"""Two descriptors each, under the usual limit of 1,024."""
WINDOW_BYTES = 4 << 20
WINDOW_S = 60.0
"""Who takes less than a window in this time is cut off, and may ask for the rest with a Range."""

_RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))")


def bytes_app(store: Store, *, window_s: float = WINDOW_S) -> web.Application:
    """GET and HEAD of `/name/version/` and `/name/version/path`."""
    app = web.Application(middlewares=[_no_body])
    port = _BytePort(store, window_s)
    app.router.add_get("/{name}/{version}/", port.manifest)
    app.router.add_get("/{name}/{version}/{path:.+}", port.file)
    return app


class _BytePort:
    def __init__(self, store: Store, window_s: float) -> None:
        self._store, self._window_s = store, window_s

    async def manifest(self, request: web.Request) -> web.StreamResponse:
        version = self._version(request)
        if version is None:
            return _not_here()
        if version.state is not HoldingState.PRESENT:
            return _not_yet(version)
        files = version.holding.files
        tag = f'"{digest(files)}"'
        if tag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
            return web.Response(status=304, headers={hdrs.ETAG: tag})
        body = {
            "schema": 1,
            "name": version.record.name,
            "version": version.record.version,
            "complete": True,
            "bytes": sum(f.bytes for f in files),
            "digest": digest(files),
            "files": [{"path": f.path, "size": f.bytes, "sha256": f.sha256} for f in files],
        }
        return web.Response(
            body=msgspec.json.encode(body),
            content_type="application/json",
            headers={hdrs.ETAG: tag, hdrs.CACHE_CONTROL: "no-cache"},
        )

    async def file(self, request: web.Request) -> web.StreamResponse:
        """Sent here and not by aiohttp's FileResponse.

        That one (3.14) answers If-Range with the new file's rest, takes size and
        time for a tag, and gives a neighbouring `x.gz` in the place of `x`.
        """
        version = self._version(request)
        if version is None:
            return _not_here()
        if version.state is not HoldingState.PRESENT:
            return _not_yet(version)
        file = version.served.get(request.match_info["path"])
        if file is None:
            return _not_here()
        try:
            descriptor = await asyncio.to_thread(self._open, version, file)
        except OSError:
            return _not_now()
        if descriptor is None:
            changed = self._version(request)
            return _not_here() if changed is None else _not_yet(changed)
        with os.fdopen(descriptor, "rb") as opened:
            return await self._send(request, file, opened)

    async def _send(self, request: web.Request, file: KeptFile, opened: IO[bytes]) -> web.StreamResponse:
        tag = f'"{file.sha256}"'
        headers = {
            hdrs.ETAG: tag,
            hdrs.CACHE_CONTROL: "public, max-age=31536000, immutable",
            hdrs.CONTENT_TYPE: "application/octet-stream",
            hdrs.ACCEPT_RANGES: "bytes",
        }
        if _names(request.headers.get(hdrs.IF_NONE_MATCH), tag, weak=True):
            return web.Response(status=304, headers={hdrs.ETAG: tag})
        if hdrs.IF_MATCH in request.headers and not _names(request.headers[hdrs.IF_MATCH], tag, weak=False):
            return refusal(412, "this is another file now", "If-Match names another ETag", "ask for the manifest again")
        wanted = request.headers.get(hdrs.RANGE)
        if request.headers.get(hdrs.IF_RANGE, tag) != tag:
            wanted = None
        start, end = 0, file.bytes
        status = 200
        if wanted is not None:
            span = _span(wanted, file.bytes)
            if span is None:
                answer = refusal(416, "there is no such range", f"the file has {file.bytes} bytes", "ask for one range")
                answer.headers[hdrs.CONTENT_RANGE] = f"bytes */{file.bytes}"
                return answer
            (start, end), status = span, 206
            headers[hdrs.CONTENT_RANGE] = f"bytes {start}-{end - 1}/{file.bytes}"
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = end - start
        with suppress(ConnectionError):  # whoever hangs up asks again
            await response.prepare(request)
            if request.method != hdrs.METH_HEAD:
                await self._send_bytes(request, opened, start, end)
            await response.write_eof()
        return response

    async def _send_bytes(self, request: web.Request, opened: IO[bytes], start: int, end: int) -> None:
        loop = asyncio.get_running_loop()
        for at in range(start, end, WINDOW_BYTES):
            transport = request.transport
            if transport is None:
                raise ConnectionResetError
            try:
                async with asyncio.timeout(self._window_s):
                    await loop.sendfile(transport, opened, at, min(WINDOW_BYTES, end - at))
            except TimeoutError:
                transport.abort()
                raise ConnectionResetError from None

    def _open(self, version: Version, file: KeptFile) -> int | None:
        descriptor = self._store.open_file(version, file)
        if descriptor is None:
            self._store.look_at(version.record.name, version.record.version)
        return descriptor

    def _version(self, request: web.Request) -> Version | None:
        return self._store.version(f"{request.match_info['name']}/{request.match_info['version']}")


@web.middleware
async def _no_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.body_exists:
        return refusal(400, "a request for bytes has no body", "this one has", "send GET or HEAD alone")
    return await handler(request)


def _names(header: str | None, tag: str, *, weak: bool) -> bool:
    """Whether a list of ETags has this one, or is `*`. Weakly compared, `W/` does not count."""
    tags = {part.strip() for part in (header or "").split(",")}
    return "*" in tags or tag in tags or (weak and f"W/{tag}" in tags)


def _span(text: str, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last of a Range. None where it is not one range within the file."""
    found = _RANGE.fullmatch(text.strip())
    if not found:
        return None
    if found[3]:
        first, after = max(size - int(found[3]), 0), size
    else:
        first, after = int(found[1]), min(int(found[2]) + 1 if found[2] else size, size)
    return (first, after) if first < after else None


def _not_here() -> web.Response:
    return refusal(404, "there is no such file here", "it is not published", "ask for the manifest at /NAME/VERSION/")


def _not_now() -> web.Response:
    answer = refusal(503, "the mirror's disk is away", "it is not mounted, most likely", "ask again later")
    answer.headers[hdrs.RETRY_AFTER] = "5"
    return answer


def _not_yet(version: Version) -> web.Response:
    failure = version.failure
    if failure is not None:
        return refusal(404, f"{version.record.key} is not served", failure.message, failure.do)
    body = {"schema": 1, "name": version.record.name, "version": version.record.version, "complete": False}
    answer = web.Response(status=503, body=msgspec.json.encode(body), content_type="application/json")
    answer.headers[hdrs.RETRY_AFTER] = "5"
    return answer
