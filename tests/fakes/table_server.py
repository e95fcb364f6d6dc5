"""Control, as far as a gateway sees it: a table to follow and a place to tell demand."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec
from aiohttp import web

from llmgw.core.table import Demand, Serving, Table, TableKey, TableModel, TableReplica


def replica(id: str, url: str, **more: Any) -> TableReplica:  # noqa: A002 - the table's own word
    given = {
        "generation": 1,
        "node": "n1",
        "key": "engine-key",
        "engine": "llamacpp",
        "tier": 100,
        "weight": 1,
        "capacity": 4,
        "state": Serving.READY,
    }
    return TableReplica(id=id, url=url, **{**given, **more})


def model(name: str, *replicas: TableReplica, **more: Any) -> TableModel:
    given = {"kind": "chat", "context_length": 2048, "wanted": len(replicas), "created": 1_790_000_000}
    return TableModel(name=name, replicas=tuple(sorted(replicas)), **{**given, **more})


def table(*models: TableModel, keys: dict[str, TableKey] | None = None) -> Table:
    """With the version that its content has."""
    whole = Table(version="", cluster="lab", models=tuple(sorted(models, key=lambda m: m.name)), keys=keys or {})
    version = hashlib.sha256(msgspec.json.encode(whole)).hexdigest()[:16]
    return msgspec.structs.replace(whole, version=version)


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class TableServer:
    """Serves one table by long poll, and keeps what it was told."""

    def __init__(self, first: Table | None = None, key: str = "gateway-key") -> None:
        self.table = first
        self.key = key
        self.demands: list[Demand] = []
        self.asked: list[str] = []
        """The version each request for the table said it has."""
        self.broken = False
        """Answer 500 to whoever asks for the table."""
        self.port = 0
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, *models: TableModel, keys: dict[str, TableKey] | None = None) -> Table:
        """Serve this table from now on."""
        self.table = table(*models, keys=keys)
        self._changed.set()
        self._changed = asyncio.Event()
        return self.table

    async def up(self) -> None:
        app = web.Application()
        app.router.add_get("/gateway/v1/table", self._table)
        app.router.add_post("/gateway/v1/demand", self._demand)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def down(self) -> None:
        """As killed: open connections end, the port is closed."""
        if self._runner is not None:
            self._changed.set()
            self._changed = asyncio.Event()
            await self._runner.cleanup()
            self._runner = None

    async def _table(self, request: web.Request) -> web.Response:
        self._admit(request)
        has = request.headers.get("If-None-Match", "").strip('"')
        self.asked.append(has)
        if self.broken:
            raise web.HTTPInternalServerError
        if self.table is None or self.table.version == has:
            try:
                async with asyncio.timeout(float(request.query.get("wait", 0))):
                    await self._changed.wait()
            except TimeoutError:
                pass
        if self.table is None:
            return web.Response(status=204)  # as control does while it settles
        if self.table.version == has:
            return web.Response(status=304)
        body = msgspec.json.encode(self.table)
        headers = {"ETag": f'"{self.table.version}"'}
        return web.Response(body=body, headers=headers, content_type="application/json")

    async def _demand(self, request: web.Request) -> web.Response:
        self._admit(request)
        self.demands.append(msgspec.json.decode(await request.read(), type=Demand))
        return web.Response(status=204)

    def _admit(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            raise web.HTTPUnauthorized
