"""Paths, headers and bodies, as clients send them and as some should not."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging

import aiohttp
import openai
import pytest

from fakes.table_server import hashed, model, replica
from llmgw.core.table import Serving, TableKey
from llmgw.gateway.bounds import Bounds

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
async def one(fleet):
    engine = await fleet.engine()
    fleet.control.put(
        model("m", replica("m/gpu/0", engine.url), aliases=("org/big:latest",), description="Knows little."),
        model("cold", why="no node has a card of class l40s-48g", wanted=1),
    )
    await fleet.start()
    return engine


async def call(fleet, method: str, path: str, **more) -> tuple[int, bytes, dict]:
    async with aiohttp.ClientSession() as session, session.request(method, fleet.url + path, **more) as got:
        return got.status, await got.read(), dict(got.headers)


async def raw(fleet, data: bytes, *, then: bytes = b"") -> bytes:
    """What is answered to these bytes until the connection closes, or a second passed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", fleet.port)
    writer.write(data)
    out = b""
    try:
        async with asyncio.timeout(1):
            while part := await reader.read(65_536):
                out += part
                if then:
                    writer.write(then)
                    then = b""
    except TimeoutError:
        pass
    writer.close()
    return out


async def test_the_models_are_listed_from_the_table_and_no_engine_is_asked(fleet, one):
    listed = [m async for m in await fleet.client().models.list()]

    assert [(m.id, m.owned_by, m.description, m.status) for m in listed] == [
        ("cold", "llmgw", "", "unavailable"),
        ("m", "llmgw", "Knows little.", "ready"),
    ]
    assert (await call(fleet, "GET", "/models"))[1] == (await call(fleet, "GET", "/v1/models"))[1]
    assert not one.received


async def test_a_model_is_found_by_a_name_with_a_slash_which_the_client_encodes(fleet, one):
    found = await fleet.client().models.retrieve("org/big:latest")

    assert (found.id, found.name) == ("org/big:latest", "m")
    assert (await call(fleet, "GET", "/v1/models/org/big:latest"))[0] == 200
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        await fleet.client().models.retrieve("other")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("HEAD", "/", 200),
        ("HEAD", "/health", 200),
        ("GET", "/", 404),
        ("GET", CHAT, 404),
        ("POST", "/v1/models", 404),
        ("OPTIONS", CHAT, 404),
        ("POST", "/v1/unknown", 404),
        ("POST", "/slots/0?action=erase", 404),
        ("GET", "/slots", 404),
        ("GET", "/metrics", 404),
        ("POST", "/props", 404),
        ("POST", "/cors-proxy", 404),
        ("POST", "/v1/chat/completions/../../slots", 404),
        ("GET", "/gateway/v1/table", 404),
    ],
)
async def test_only_the_paths_of_the_api_are_there(fleet, one, method, path, status):
    got, body, headers = await call(fleet, method, path)

    assert got == status
    if status == 404:
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
        assert headers["x-should-retry"] == "false"
    assert not one.received


async def test_a_query_is_no_part_of_the_path(fleet, one):
    status, _, _ = await call(fleet, "POST", CHAT + "?beta=true", json={"model": "m", "messages": HI})

    assert status == 200


async def test_health_counts(fleet, one):
    await call(fleet, "POST", CHAT, json={"model": "m", "messages": HI})
    await call(fleet, "POST", CHAT, json={"model": "none", "messages": HI})
    health = await fleet.health()

    assert health.pop("table")
    assert health == {
        "status": "ok",
        "control": "ok",
        "models": 2,
        "ready_replicas": 1,
        "in_flight": 0,
        "left_behind": 0,
        "waiting": 0,
        "requests": {"ok": 1, "rejected": 1, "failed": 0, "client_closed": 0},
    }


async def test_the_request_id_that_comes_in_goes_out_and_to_the_engine(fleet, one):
    _, _, headers = await call(
        fleet, "POST", CHAT, json={"model": "m", "messages": HI}, headers={"x-request-id": "trace-7"}
    )

    assert headers["X-Request-ID"] == "trace-7"
    assert one.asked[0].headers["x-request-id"] == "trace-7"
    assert (await fleet.records(1))[0]["request_id"] == "trace-7"


@pytest.mark.parametrize("given", ["", "a b", "x" * 200, "ü"])
async def test_a_request_id_that_is_none_is_replaced(fleet, one, given):
    _, _, headers = await call(fleet, "GET", "/health", headers={"x-request-id": given})

    assert headers["X-Request-ID"].startswith("req_")


SECRET = "sk-llmgw-secret"


async def test_f30_no_key_cookie_or_address_of_a_client_reaches_the_engine_or_the_log(fleet, one, caplog):
    caplog.set_level(logging.DEBUG)
    await fleet.put(*fleet.control.table.models, keys={hashed(SECRET): TableKey(name="ana")})
    headers = {
        "authorization": f"Bearer {SECRET}",
        "x-api-key": SECRET,
        "api-key": SECRET,
        "cookie": f"session={SECRET}",
        "proxy-authorization": f"Basic {SECRET}",
        "x-forwarded-for": "10.9.8.7",
        "x-conversation-id": "goes on after the client has left",
        "x-own": SECRET,
    }

    for stream in (False, True):
        status, body, _ = await call(
            fleet, "POST", CHAT, headers=headers, json={"model": "m", "messages": HI, "stream": stream}
        )
        assert status == 200
        assert SECRET.encode() not in body

    for request in one.asked:
        assert request.headers["authorization"] == "Bearer engine-key"
        assert SECRET.encode() not in request.raw
        assert b"10.9.8.7" not in request.raw
        assert b"conversation" not in request.raw.lower()
    assert all(SECRET not in str(vars(r)) and "engine-key" not in str(vars(r)) for r in caplog.records)
    assert [r["key"] for r in await fleet.records(2)] == ["ana", "ana"]


async def test_a_key_uses_the_models_it_may_and_sees_no_others(fleet, one):
    keys = {hashed("k1"): TableKey(name="ana", models=("cold",))}
    await fleet.put(*fleet.control.table.models, keys=keys)
    client = fleet.client(api_key="k1")

    assert [m.id async for m in await client.models.list()] == ["cold"]
    with pytest.raises(openai.PermissionDeniedError) as refused:
        await client.chat.completions.create(model="org/big:latest", messages=HI)
    assert refused.value.code == "model_not_allowed"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("m")
    with pytest.raises(openai.AuthenticationError) as unknown:
        await fleet.client(api_key="k2").models.list()
    assert unknown.value.code == "invalid_api_key"
    assert not one.received


async def test_before_the_first_table_nobody_is_served_and_nobody_is_let_in(fleet):
    await fleet.start()

    for method, path in [("GET", "/v1/models"), ("POST", CHAT)]:
        status, body, headers = await call(fleet, method, path, json={"model": "m"})
        assert (status, json.loads(body)["error"]["code"]) == (503, "model_unavailable")
        assert "Retry-After" in headers or "retry-after" in headers
    assert (await fleet.health())["table"] is None


async def test_f39_an_unknown_model_is_told_from_one_that_is_down(fleet, one):
    client = fleet.client()

    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(model="other", messages=HI)
    with pytest.raises(openai.InternalServerError) as down:
        await client.chat.completions.create(model="cold", messages=HI)

    assert unknown.value.code == "model_not_found"
    assert (down.value.status_code, down.value.code) == (503, "model_unavailable")


async def test_f31_a_body_of_three_megabytes_passes_byte_for_byte(fleet, one):
    image = "A" * 3_000_000
    content = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}]

    await fleet.client().chat.completions.create(model="m", messages=[{"role": "user", "content": content}])

    assert one.asked[0].json["messages"][0]["content"] == content


@pytest.mark.parametrize("chunked", [False, True], ids=["by its length", "while it is read"])
async def test_f31_a_body_over_the_limit_is_413(fleet, chunked):
    await fleet.put_nothing(bounds=Bounds(body_bytes=10_000))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 20_000}]}).encode()

    async def pieces():
        yield body

    status, said, _ = await call(fleet, "POST", CHAT, data=pieces() if chunked else body)

    assert status == 413
    assert json.loads(said)["error"]["code"] == "request_too_large"


async def test_a_compressed_body_is_read_and_counted_as_what_it_is(fleet, one):
    body = gzip.compress(json.dumps({"model": "m", "messages": HI}).encode())
    status, _, _ = await call(fleet, "POST", CHAT, data=body, headers={"content-encoding": "gzip"})
    assert status == 200
    assert one.asked[0].json == {"model": "m", "messages": HI}
    assert "content-encoding" not in one.asked[0].headers

    status, said, _ = await call(fleet, "POST", CHAT, data=b"not gzip", headers={"content-encoding": "gzip"})
    assert status == 400
    assert set(json.loads(said)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("begun", [b"", b"{"], ids=["nothing", "half"])
async def test_f34_a_body_that_does_not_come_is_given_up(fleet, begun):
    await fleet.put_nothing(bounds=Bounds(body_idle_s=0.1))

    said = await raw(fleet, POST + b"Content-Length: 100\r\n\r\n" + begun)

    assert said.startswith(b"HTTP/1.1 408")
    assert b'"error"' in said


async def test_f34_half_a_head_is_given_up(fleet):
    await fleet.put_nothing(bounds=Bounds(client_idle_s=0.1))
    reader, writer = await asyncio.open_connection("127.0.0.1", fleet.port)
    writer.write(b"POST /v1/chat")

    async with asyncio.timeout(3):
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="F35"),
        pytest.param(POST + b"Content-Length: -1\r\n\r\n", id="a length below zero"),
        pytest.param(b"hello\r\n\r\n", id="not HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", id="a header of 20 kB"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", id="TLS"),
    ],
)
async def test_what_is_not_http_is_refused_in_a_line_and_without_a_traceback(fleet, one, caplog, data):
    said = await raw(fleet, data)

    assert said.split(maxsplit=2)[1] == b"400"
    assert set(json.loads(said.partition(b"\r\n\r\n")[2])["error"]) == {"message", "type", "param", "code"}
    assert not [r for r in caplog.records if r.exc_info or r.levelno >= logging.WARNING]
    assert not one.received
    assert (await fleet.health())["status"] == "ok"


async def test_a_client_that_asks_first_is_told_to_go_on(fleet, one):
    body = json.dumps({"model": "m", "messages": HI}).encode()
    head = POST + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)

    said = await raw(fleet, head, then=body)

    assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


async def test_one_connection_serves_many_requests(fleet, one):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        for stream in (False, True, False):
            async with session.post(fleet.url + CHAT, json={"model": "m", "messages": HI, "stream": stream}) as got:
                assert got.status == 200
                await got.read()
    assert len(one.asked) == 3


async def test_a_failure_of_ours_is_500_and_the_next_request_is_served(fleet, one, monkeypatch, caplog):
    with monkeypatch.context() as broken:
        broken.setattr("llmgw.gateway.answer.rewrite", lambda *_, **__: 1 / 0)
        status, body, _ = await call(fleet, "POST", CHAT, json={"model": "m", "messages": HI})
        assert (status, json.loads(body)["error"]["code"]) == (500, "internal_error")
        assert "division" not in body.decode()
    assert any(r.exc_info for r in caplog.records)

    assert (await call(fleet, "POST", CHAT, json={"model": "m", "messages": HI}))[0] == 200
    assert [r["outcome"] for r in await fleet.records(2)] == ["failed", "ok"]


async def test_a_replica_that_starts_is_listed_as_loading(fleet, one):
    await fleet.put(model("m", replica("m/gpu/0", one.url, state=Serving.STARTING)))

    assert [m.status async for m in await fleet.client().models.list()] == ["loading"]


async def test_each_request_is_one_record_with_the_same_fields(fleet, one):
    for body in [{"model": "m", "messages": HI}, {"model": "no"}, b"not json"]:
        await call(fleet, "POST", CHAT, **({"data": body} if isinstance(body, bytes) else {"json": body}))
    await call(fleet, "GET", "/v1/models")

    records = await fleet.records(3)

    assert [(r["status"], r["outcome"], r["model"], r["asked"]) for r in records] == [
        (200, "ok", "m", "m"),
        (404, "rejected", "", "no"),
        (400, "rejected", "", ""),
    ]
    assert all(isinstance(r["total_s"], float) for r in records)


async def test_one_connection_too_many_is_told_to_come_back(fleet):
    await fleet.put_nothing(bounds=Bounds(connections=2))
    kept = [await asyncio.open_connection("127.0.0.1", fleet.port) for _ in range(2)]

    said = await raw(fleet, POST + b"\r\n")

    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n")
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    for _, writer in kept:
        writer.close()
