"""A mirror's byte port on a real socket, and orders for what it has."""

from __future__ import annotations

import asyncio
import hashlib

from aiohttp import web

from llmgw_agent.protocol import VersionOrder, WeightFile

BYTES = b"GGUF" + bytes(range(256)) * 4000


class Mirror:
    """A byte listener on a real socket, that counts what it is asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.redirect = ""
        self.base = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, request.headers.get("Range", "")))
        if self.redirect:
            raise web.HTTPFound(self.redirect)
        body = self.files.get(request.path)
        if body is None:
            return web.Response(status=404)
        start = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        headers = {"Content-Length": str(len(body) - start)}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        half = (len(body) - start) // 2
        await response.write(body[start : start + half])
        await self.gate.wait()
        await response.write(body[start + half :])
        return response


def order(mirror: Mirror, *, name="coder", version="v1", action="hold", **files: bytes) -> VersionOrder:
    """An order for these files, which the mirror then has."""
    listed = []
    for key, body in (files or {"m.gguf": BYTES}).items():
        path = key.replace("__", "/")
        mirror.files[f"/{name}/{version}/{path}"] = body
        listed.append(WeightFile(path, len(body), hashlib.sha256(body).hexdigest()))
    return VersionOrder(name, version, action, tuple(listed), (f"{mirror.base}{name}/{version}/",))
