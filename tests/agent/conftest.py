"""An agent, and a control it talks to over a real socket."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from aiohttp import web

from fakes.agents import QUICK, Agents
from fakes.byte_port import Mirror
from fakes.control import FakeControl
from llmgw_agent import process
from llmgw_agent.settings import Settings


@pytest.fixture(autouse=True)
def _root_logger_as_it_was():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
async def control():
    async with FakeControl() as control:
        yield control


@pytest.fixture
async def agents(tmp_path, control):
    """Agents of one node, that leave no process behind."""
    (tmp_path / "node.key").write_text("node-key")
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(1000))
    engines = tmp_path / "bin"
    settings = Settings(
        control=control.url,
        node="n1",
        key_file=tmp_path / "node.key",
        state=tmp_path / "state",
        allow=(f"path:{tmp_path}",),
        engine_paths=(engines,),
        path=(Path("/usr/bin"), Path("/bin")),
        reserve_bytes=0,
        pace=QUICK,
    )
    settings.state.mkdir()
    agents = Agents(settings, engines)
    agents.engine()
    yield agents
    await agents.stop()
    for pid, marker in agents.processes().items():
        process.strike(pid, marker)


@pytest.fixture
async def mirror():
    mirror = Mirror()
    app = web.Application()
    app.router.add_get("/{path:.*}", mirror.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    mirror.base = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/"
    yield mirror
    mirror.gate.set()
    await runner.cleanup()
