"""Called by a git server: control looks at once, and believes nothing of what it is told."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import httpx
import pytest

from control.fleet import a_control, a_model, until
from fakes.git_http import GitServer
from llmgw.control.hooks import MOST_BYTES
from llmgw.net.http import Client

BODY = b'{"ref": "refs/heads/main"}'
SECRET = b"between the two of us"
MAC = hmac.new(SECRET, BODY, hashlib.sha256).hexdigest()


async def ask(port: int, body: bytes = BODY, **headers: str | bytes) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient() as client:
        return await client.post(f"http://127.0.0.1:{port}/hooks/git", content=body, headers=names)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "hook-secret"
    path.write_bytes(SECRET + b"\n")
    return path


@pytest.mark.needs_git
async def test_a_signed_call_has_a_push_seen_at_once_however_seldom_control_polls(tmp_path: Path, secret: Path) -> None:
    with GitServer(tmp_path) as server:
        url = server.url("fleet.git")
        settings = {"repo": url, "poll_s": 3600.0, "hook_secret_file": secret}
        async with a_control(tmp_path, files={"m": a_model()}, **settings) as site:
            client: Client = site.client("operator", "ana")
            site.push(n=a_model(name="n"))

            assert (await ask(site.port, X_Hub_Signature_256=f"sha256={MAC}")).status_code == 202

            async def known() -> bool:
                answer = await client.call("GET", "/v1/seen")
                return b'"n"' in answer.body

            await until(known)


@pytest.mark.parametrize(
    "header",
    [
        {"X_Hub_Signature_256": f"sha256={MAC}"},
        {"X_Gitea_Signature": MAC},
        {"X_Forgejo_Signature": MAC},
        {"X_Gitlab_Token": SECRET.decode()},
    ],
    ids=["GitHub", "Gitea", "Forgejo", "GitLab"],
)
async def test_each_server_proves_itself_in_its_own_way(secret: Path, header: dict[str, str], hooked) -> None:
    async with hooked(secret) as (port, looks):
        assert (await ask(port, **header)).status_code == 202
        assert looks == [1]
        assert (await ask(port, **header)).status_code == 202
        assert looks == [1], "a second call in the same seconds asks nothing of the git server"


@pytest.mark.parametrize(
    ("header", "body", "status"),
    [
        ({}, BODY, 401),
        ({"X_Hub_Signature_256": "sha256="}, BODY, 401),
        ({"X_Hub_Signature_256": f"sha256={MAC}"}, b"another body", 401),
        ({"X_Gitlab_Token": "a guess \u00fc".encode()}, BODY, 401),
        ({"X_Hub_Signature_256": f"sha256={MAC}"}, b"x" * (MOST_BYTES + 1), 413),
    ],
    ids=["unsigned", "empty", "of another body", "a guess", "too large"],
)
async def test_what_is_not_signed_or_too_large_is_turned_away(secret, header, body, status, hooked) -> None:
    async with hooked(secret) as (port, looks):
        assert (await ask(port, body, **header)).status_code == status
        assert looks == []


async def test_without_a_secret_no_call_is_taken(hooked) -> None:
    async with hooked(None) as (port, looks):
        assert (await ask(port, X_Hub_Signature_256=f"sha256={MAC}")).status_code == 404
        assert looks == []


async def test_a_secret_that_cannot_be_read_takes_no_call_and_breaks_nothing(tmp_path: Path, hooked) -> None:
    async with hooked(tmp_path / "gone") as (port, looks):
        assert (await ask(port, X_Hub_Signature_256=f"sha256={MAC}")).status_code == 503
        assert looks == []
