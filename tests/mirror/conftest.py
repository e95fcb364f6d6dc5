from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.upstream import Upstream
from llmgw.mirror import app
from llmgw.mirror.app import MirrorConfig


@dataclass
class Answered:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    json: Any


@dataclass
class Mirror:
    """A mirror that serves, and a client of both its ports."""

    root: Path
    base: str
    api: str
    session: aiohttp.ClientSession

    async def call(self, method: str, url: str, **more: Any) -> Answered:
        async with self.session.request(method, url, **more) as answer:
            body = await answer.read()
            is_json = answer.content_type == "application/json" and body
            return Answered(answer.status, dict(answer.headers), body, await answer.json() if is_json else None)

    async def get(self, path: str, **headers: str) -> Answered:
        """From the byte port."""
        return await self.call("GET", self.base + path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    async def ask(self, name: str = "m", version: str = "1", **request: Any) -> Answered:
        return await self.call("POST", f"{self.api}/v1/models", json={"name": name, "version": version, **request})

    async def models(self) -> list[Any]:
        return (await self.call("GET", f"{self.api}/v1/models")).json

    async def show(self, key: str = "m/1") -> Any:
        """The holding, or None."""
        answered = await self.call("GET", f"{self.api}/v1/models/{key}")
        return answered.json if answered.status == 200 else None

    async def remove(self, key: str = "m/1", **query: str) -> int:
        return (await self.call("DELETE", f"{self.api}/v1/models/{key}", params=query)).status

    async def until(self, *states: str, key: str = "m/1", within_s: float = 10.0) -> Any:
        """The holding once it is in one of these states."""
        return await self.becomes(lambda h: h is not None and h["state"] in states, key=key, within_s=within_s)

    async def becomes(self, what: Callable[[Any], bool], *, key: str = "m/1", within_s: float = 10.0) -> Any:
        """The holding once this is true of it."""
        async with asyncio.timeout(within_s):
            while not what(held := await self.show(key)):  # noqa: ASYNC110 - it happens behind a socket
                await asyncio.sleep(0.02)
        return held


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


@asynccontextmanager
async def serving(root: Path, **config: Any) -> AsyncIterator[Mirror]:
    loopback = ("127.0.0.1", 0)
    bound: asyncio.Future[dict[str, tuple[str, int]]] = asyncio.get_running_loop().create_future()
    settings = {"listen": loopback, "api": loopback, "settle_s": 0.1, "spare_bytes": 0, **config}
    task = asyncio.create_task(app.serve(MirrorConfig(root=root, **settings), ready=bound.set_result))
    done, _ = await asyncio.wait({task, bound}, return_when=asyncio.FIRST_COMPLETED)
    if task in done:
        await task
    at = {name: f"http://{host}:{port}" for name, (host, port) in bound.result().items()}
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield Mirror(root, at["listen"], at["api"], session)
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Starts mirrors on `tmp_path/models`, or elsewhere, and ends them."""
    async with AsyncExitStack() as stack:

        async def begin(root: Path | None = None, **config: Any) -> Mirror:
            return await stack.enter_async_context(serving(root or tmp_path / "models", **config))

        yield begin


@pytest.fixture
async def mirror(start: Callable[..., Any], upstream: Upstream, tmp_path: Path) -> Mirror:
    """One that may read from `upstream` and below `tmp_path/src`."""
    (tmp_path / "src").mkdir()
    return await start(allow_files=(tmp_path / "src",), allow_hosts=(upstream.netloc,))
