"""Messages that leave: to a real web server, and to a real program."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from control.fleet import a_control, a_model, a_server, until
from llmgw.catalog.notifications import Notification
from llmgw.cli.main import run
from llmgw.control.notify import send
from llmgw.core.notices import trial
from llmgw.errors import OperatorError, Refused, Unreachable

NOTICE = trial("ops", "lab", 5.0)


class Hook:
    """A webhook: what came, and what it answers."""

    def __init__(self) -> None:
        self.came: list[dict[str, object]] = []
        self.status = 200
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.came.append({**await request.json(), "path": request.path_qs})
        return web.Response(status=self.status)


@asynccontextmanager
async def a_hook(folder: Path) -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application()
    app.router.add_post("/{rest:.*}", hook.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/services/SECRET?x=1"
    (folder / "slack").write_text(hook.url + "\n")
    yield hook
    await runner.cleanup()


def receiver(**more: str) -> Notification:
    return Notification.model_validate({"name": "ops", **more})


async def fails(folder: Path, **more: str) -> OperatorError:
    with pytest.raises(OperatorError) as e:
        await send(folder, receiver(**more), NOTICE)
    assert "SECRET" not in str(e.value)
    return e.value


async def test_a_webhook_gets_json_with_a_text(tmp_path: Path) -> None:
    async with a_hook(tmp_path) as hook:
        await send(tmp_path, receiver(url_ref="slack"), NOTICE)

    (came,) = hook.came
    assert came["path"] == "/services/SECRET?x=1"
    assert (came["text"], came["state"], came["cluster"]) == (NOTICE.text, "test", "lab")


@pytest.mark.parametrize(("status", "kind"), [(500, Unreachable), (429, Unreachable), (404, Refused), (403, Refused)])
async def test_what_a_webhook_answers_says_whether_to_try_again(tmp_path: Path, status: int, kind: type) -> None:
    async with a_hook(tmp_path) as hook:
        hook.status = status
        error = await fails(tmp_path, url_ref="slack")

    assert type(error) is kind
    assert f"answers {status}" in error.why


async def test_what_is_behind_a_name_and_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("file:///etc/SECRET")
    (tmp_path / "dark").write_text("http://127.0.0.1:1/SECRET")

    assert "cannot be read" in (await fails(tmp_path, url_ref="gone")).what
    assert "holds no http(s) URL" in (await fails(tmp_path, url_ref="odd")).why
    assert "nothing answers at its URL" in (await fails(tmp_path, url_ref="dark")).why
    assert "cannot be run" in (await fails(tmp_path, command="odd")).why


def program(folder: Path, text: str) -> None:
    (folder / "mail").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "mail").chmod(0o755)


async def test_a_program_gets_the_message_on_its_standard_input(tmp_path: Path) -> None:
    program(tmp_path, f"cat > {tmp_path}/got")

    await send(tmp_path, receiver(command="mail"), NOTICE)

    assert json.loads((tmp_path / "got").read_text())["text"] == NOTICE.text


async def test_a_program_that_fails_is_said_with_its_own_words(tmp_path: Path) -> None:
    program(tmp_path, "cat > /dev/null; echo 'no relay' >&2; exit 3")

    assert "mail ended with 3: no relay" in (await fails(tmp_path, command="mail")).why


async def test_control_tells_of_what_lasts_and_of_its_end(tmp_path: Path) -> None:
    asked = {"notifications": [{"name": "ops", "url_ref": "slack", "on": ["model_not_ready"], "for": 0}]}
    async with a_hook(tmp_path) as hook:
        files = {"server": a_server("n1", **asked), "m": a_model(replicas=1)}
        async with a_control(tmp_path, files=files, notify_dir=tmp_path) as site:
            n1 = site.node(cpu_cores=0)
            task = asyncio.create_task(n1.serve())
            await until(lambda: hook.came)
            assert (hook.came[0]["state"], hook.came[0]["kind"]) == ("begins", "model_not_ready")
            n1.inventory["cpu_cores"] = 8
            await n1.call()
            about = hook.came[0]["subject"]
            await until(lambda: [c["state"] for c in hook.came if c["subject"] == about][-1] == "over")
            task.cancel()


def test_a_person_can_try_whether_messages_arrive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.system("git init -q .")
    program(tmp_path, f"cat > {tmp_path}/got")
    server = "schema: 1\ncluster: lab\nnotifications: [{name: ops, command: mail}, {name: chat, url_ref: gone}]\n"
    (tmp_path / "server.yaml").write_text(server)

    assert run(["notify", "test", "ops", "--notify-dir", str(tmp_path)]) == 0
    assert "ops was told" in capsys.readouterr().out
    assert "this is a test" in (tmp_path / "got").read_text()
    assert run(["notify", "test", "--notify-dir", str(tmp_path)]) == 4
    assert "the key file" in capsys.readouterr().out
    assert run(["notify", "test", "oops", "--notify-dir", str(tmp_path)]) == 4
    assert "ops" in capsys.readouterr().err
