from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from fakes.quirks import QuirkEngine
from fakes.table_server import TableServer
from fakes.waiting import until
from llmgw.gateway import app
from llmgw.gateway.app import GatewayConfig


@dataclass
class Fleet:
    """Control, engines and one gateway between them and the client, each on real sockets."""

    state: Path
    control: TableServer
    stack: AsyncExitStack
    logged: pytest.LogCaptureFixture
    port: int = 0
    engines: list[QuirkEngine] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def engine(self, *args: Any, **more: Any) -> QuirkEngine:
        engine = await self.stack.enter_async_context(QuirkEngine(*args, **more))
        self.engines.append(engine)
        return engine

    async def start(self, **more: Any) -> None:
        """Start the gateway, and wait until it has a table if control has one."""
        bound: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        given = {
            "control": self.control.url,
            "name": "g1",
            "key_file": self.state / "key",
            "state": self.state / "state",
            "listen": ("127.0.0.1", self.port),
        }
        config = GatewayConfig(**{**given, **more})
        self.task = asyncio.create_task(app.serve(config, ready=bound.set_result))
        done, _ = await asyncio.wait({self.task, bound}, return_when=asyncio.FIRST_COMPLETED)
        if self.task in done:
            await self.task
        self.port = bound.result()[1]
        if self.control.table is not None:
            await self.has(self.control.table.version)

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=15)
            assert self.task.cancelled() or self.task.exception() is None
            self.task = None

    async def put(self, *models: Any, **more: Any) -> None:
        """A new table, in use when this is back."""
        await self.has(self.control.put(*models, **more).version)

    async def put_nothing(self, **more: Any) -> None:
        """Start with a table in which nothing is, and a model that nothing serves."""
        self.control.put()
        await self.start(**more)

    async def has(self, version: str) -> None:
        await self.until_health(lambda h: h["table"] == version)

    async def health(self) -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/health") as answer:
            assert answer.status == 200
            return await answer.json()

    async def idle(self) -> None:
        """Wait until nothing is in flight, nobody waits, and every slot is free."""
        await self.until_health(lambda h: not h["in_flight"] and not h["waiting"] and not h["left_behind"])

    async def until_health(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds(await self.health()):  # noqa: ASYNC110 - what is asked over HTTP sets no event
                await asyncio.sleep(0.01)

    async def records(self, count: int) -> list[dict[str, Any]]:
        """The usage records, once there are so many; a moment later there are no more of them."""
        await until(lambda: len(self._records()) >= count, said=f"{count} usage records")
        found = self._records()
        assert len(found) == count
        return found

    def _records(self) -> list[dict[str, Any]]:
        return [vars(r) for r in self.logged.records if r.name == "llmgw.gateway.usage"]

    def client(self, **more: Any) -> openai.AsyncOpenAI:
        # Without certificates, which take longer to load than most tests take.
        plain = openai.DefaultAsyncHttpxClient(verify=False)
        given = {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0, "timeout": 20, "http_client": plain}
        client = openai.AsyncOpenAI(**{**given, **more})
        self.stack.push_async_callback(client.close)
        return client

    @asynccontextmanager
    async def post(self, path: str, body: Any, **more: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session,
            session.post(self.url + path, json=body, **more) as answer,
        ):
            yield answer


@pytest.fixture
async def fleet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Fleet]:
    caplog.set_level("INFO", "llmgw")
    async with AsyncExitStack() as stack:
        control = TableServer()
        await control.up()
        stack.push_async_callback(control.down)
        (tmp_path / "key").write_text("gateway-key\n")
        fleet = Fleet(tmp_path, control, stack, caplog)
        stack.push_async_callback(fleet.stop)
        yield fleet


@pytest.fixture
def chat() -> Callable[..., dict[str, Any]]:
    """The body of a chat request."""

    def body(model: str = "m", **more: Any) -> dict[str, Any]:
        return {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}

    return body
