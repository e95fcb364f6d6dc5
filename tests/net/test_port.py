"""What holds of every port: how many connections, and what is said when there are too many."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource

import pytest
from aiohttp import web

from llmgw.net.port import FEWEST, KEPT_DESCRIPTORS, Port, room, say_seldom


def test_there_is_room_for_as_many_as_there_are_descriptors_left(monkeypatch: pytest.MonkeyPatch):
    limit = [1024]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit[0], limit[0]))

    assert room(10_000, each=2) == (1024 - KEPT_DESCRIPTORS) // 2
    assert room(4, each=2) == 4
    limit[0] = 64
    assert room(100, each=1) == FEWEST, "few, and never none"
    limit[0] = resource.RLIM_INFINITY
    assert room(10_000, each=2) == 10_000


async def test_a_lack_of_descriptors_is_said_once_and_not_at_each_try(caplog: pytest.LogCaptureFixture):
    loop = asyncio.get_running_loop()
    others: list[str] = []
    loop.set_exception_handler(lambda _, context: others.append(context["message"]))
    say_seldom(loop, "control")
    lack = OSError(errno.EMFILE, "Too many open files")

    for _ in range(100):
        loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": lack})
    loop.call_exception_handler({"message": "a task failed", "exception": ValueError()})

    said = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert said == ["control takes no more connections: [Errno 24] Too many open files; raise its limit of open files"]
    assert others == ["a task failed"]


async def test_a_bug_is_answered_and_logged_and_the_next_request_is_served(caplog: pytest.LogCaptureFixture):
    async def broken(_: web.Request) -> web.Response:
        raise KeyError("a bug")

    async def good(_: web.Request) -> web.Response:
        return web.Response(text="good")

    app = web.Application()
    app.router.add_get("/broken", broken)
    app.router.add_get("/good", good)
    port = Port(app, who="control", most=4)
    host, number = await port.open("control", ("127.0.0.1", 0), flag="--listen")

    async def get(path: str) -> bytes:
        reader, writer = await asyncio.open_connection(host, number)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        said = await reader.read()
        writer.close()
        return said

    first, second, third = await get("/broken"), await get("/good"), await get("/nowhere")
    await port.close()

    assert b"500" in first.splitlines()[0]
    assert b"control has a bug here" in first
    assert second.endswith(b"good")
    assert b"404" in third.splitlines()[0]
    assert len([r for r in caplog.records if r.exc_info]) == 1
