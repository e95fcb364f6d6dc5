"""What tests of control share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from llmgw.control.hooks import Hooks


@pytest.fixture
def hooked() -> Callable[[Path | None], AbstractAsyncContextManager[tuple[int, list[int]]]]:
    """A port that takes the calls of git servers, and the looks that they led to."""

    @asynccontextmanager
    async def serve(secret: Path | None) -> AsyncIterator[tuple[int, list[int]]]:
        looks: list[int] = []
        app = web.Application()
        app.router.add_post("/hooks/git", Hooks(secret, lambda: looks.append(1), lambda: 100.0).pushed)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1], looks
        await runner.cleanup()

    return serve
