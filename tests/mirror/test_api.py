"""The management API: bad input, keys, and nobody's browser."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KEY = "llmgw-key"
KEY_SHA = hashlib.sha256(KEY.encode()).hexdigest()
FINE = {"name": "m", "version": "1", "from": "https://huggingface.co/x.gguf"}


@pytest.fixture
async def mirror(start: Callable[..., Any]) -> Any:
    return await start()


async def post(mirror: Any, body: Any, **headers: str) -> Any:
    kind = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return await mirror.call("POST", f"{mirror.api}/v1/models", data=body, headers=kind)


async def test_health_says_how_it_is(mirror: Any):
    health = (await mirror.call("GET", f"{mirror.api}/v1/health")).json

    assert health["ok"] is True
    assert health["disk_free_bytes"] > 0
    assert (health["holdings"], health["fetching"]) == (0, 0)
    assert len(health["boot"]) == 16


async def test_every_problem_is_said_and_not_the_first(mirror: Any):
    answered = await mirror.ask(
        "Upper",
        "../1",
        origin="nobody",
        files=[
            {"path": "../x.gguf", "url": "https://example.org/x.gguf"},
            {"path": "a.bin", "url": "file:///etc/shadow", "bytes": -1, "sha256": "abc"},
        ],
    )

    assert answered.status == 422
    error = answered.json["error"]
    assert error["cause"] == "invalid"
    assert error["what"] == "'Upper'/'../1' cannot be fetched as it is asked for"
    for said in (
        "name 'Upper': it is",
        "version '../1': it is",
        "origin 'nobody': it is catalog or hand",
        "file '../x.gguf': each part",
        "https://example.org/x.gguf: example.org is not among the hosts",
        "file a.bin: .bin files can run code",
        "file:///etc/shadow: the mirror reads no files",
        "file 'a.bin': its size is negative",
        "file 'a.bin': a sha256 is 64",
    ):
        assert said in error["why"]
    assert await mirror.models() == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        pytest.param({"name": "m", "version": "1"}, "give either files, or from with one URL", id="nothing"),
        pytest.param({**FINE, "files": [{"path": "a", "url": "b"}]}, "give either files, or from", id="both"),
        pytest.param({**FINE, "from": "https://huggingface.co/a/"}, "from ends in a slash", id="a folder"),
        pytest.param(
            {**FINE, "from": "https://huggingface.co/%2e%2e"}, "each part of its path", id="a name that climbs"
        ),
        pytest.param({**FINE, "from": "https://[::1"}, "it is not a URL", id="no URL"),
        pytest.param({**FINE, "name": 7}, "Expected `str`", id="a wrong type"),
        pytest.param({"version": "1"}, "missing required field `name`", id="a field missing"),
        pytest.param([], "Expected `object`", id="no object"),
        pytest.param(
            {"name": "m", "version": "1", "files": [{"path": "a" * 5000, "url": "b"}]}, "longer than 200", id="long"
        ),
    ],
)
async def test_what_cannot_be_done_is_answered_422(mirror: Any, request_: Any, said: str):
    answered = await post(mirror, json.dumps(request_).encode())

    assert answered.status == 422
    assert said in answered.json["error"]["why"]
    assert answered.json["error"]["do"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b'{"name":"\xff"}', b'{"name": "\\ud800"}', b"[" * 500_000, b'{"a":' * 200_000]
)
async def test_what_is_no_json_is_answered_422(mirror: Any, body: bytes):
    assert (await post(mirror, body)).status == 422


async def test_bodies_are_bounded(mirror: Any):
    assert (await post(mirror, io.BytesIO(b" " * (1 << 20) + b"{}"))).status == 413


async def test_ten_thousand_files_are_too_many_and_said_at_once(mirror: Any):
    files = [{"path": f"{n}", "url": "https://a/b"} for n in range(10_001)]

    answered = await mirror.ask(files=files)

    assert answered.status == 422
    assert len(answered.body) < 10_000


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/m/1", 404),
        ("DELETE", "/v1/models/m/1", 404),
        ("DELETE", "/v1/models/..%2f..%2fetc/passwd", 404),
        ("GET", "/v1/models/m", 404),
        ("GET", "/", 404),
        ("PUT", "/v1/models", 405),
    ],
)
async def test_what_is_not_there_is_said_in_the_same_shape(mirror: Any, method: str, path: str, status: int):
    answered = await mirror.call(method, mirror.api + path)

    assert answered.status == status
    assert set(answered.json["error"]) >= {"what", "why", "do"}
    assert all(answered.json["error"].values()), "none of them is empty"


class TestCallers:
    """With a key, nobody without it; and never a page in a browser."""

    @pytest.fixture
    async def keyed(self, start: Callable[..., Any], tmp_path: Path) -> Any:
        return await start(tmp_path / "keyed", api_key_sha256=KEY_SHA)

    @pytest.mark.parametrize("path", ["/v1/models", "/v1/health", "/v1/models/m/1", "/else"])
    @pytest.mark.parametrize(
        "header", [None, "", "Bearer", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY_SHA}", "Bearer \u00e9"]
    )
    async def test_without_the_key_nothing_is_answered(self, keyed: Any, path: str, header: str | None):
        sent = {} if header is None else {"Authorization": header}

        answered = await keyed.call("GET", keyed.api + path, headers=sent)

        assert answered.status == 401
        assert answered.headers["WWW-Authenticate"] == "Bearer"
        assert answered.json["error"]["do"] == "send Authorization: Bearer KEY"

    async def test_with_it_everything_is(self, keyed: Any):
        answered = await keyed.call("GET", f"{keyed.api}/v1/models", headers={"Authorization": f"bearer  {KEY} "})

        assert (answered.status, answered.json) == (200, [])

    async def test_the_byte_port_asks_for_none(self, keyed: Any):
        assert (await keyed.get("/m/1/")).status == 404

    async def test_a_browser_is_not_answered(self, mirror: Any):
        # A page somewhere on the net can reach a loopback port of whoever looks at it.
        answered = await post(mirror, json.dumps(FINE).encode(), Origin="https://evil.example")

        assert answered.status == 403

    async def test_a_form_is_not_understood(self, mirror: Any):
        answered = await post(mirror, json.dumps(FINE).encode(), Content_Type="text/plain")

        assert answered.status == 415
