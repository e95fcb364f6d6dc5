"""`llmgw bench`: what a model does through a real gateway, and what is said where it cannot be measured."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from fakes.quirks import LAST_PIECE, STREAM_HEAD, answer, chunk, event, piece, plays_bytes, usage_chunk, well_behaved
from fakes.table_server import model, replica
from fakes.waiting import until
from llmgw.cli.main import run
from llmgw.core.live import Figures, ReplicaFigures
from llmgw.core.table import Serving
from llmgw.planning.predicted import Predicted
from llmgw.units import GIB

Run = Callable[..., Awaitable[tuple[int, str, str]]]


def writes(tokens: int, *, token_s: float) -> Any:
    """An engine that writes at a pace, with `usage` at the end."""

    async def play(connection, request):
        await connection.send(STREAM_HEAD)
        for n in range(tokens):
            await asyncio.sleep(token_s)
            await connection.send(piece(event(chunk(f"w{n} "))))
        end = {**usage_chunk(), "usage": {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}}
        await connection.send(piece(event(chunk(finish="length")) + event(end) + event(b"[DONE]")) + LAST_PIECE)
        connection.close()

    return play


@pytest.fixture
def bench(fleet, capsys, monkeypatch) -> Run:
    """Runs the command against this gateway: its exit code, and what it printed."""
    monkeypatch.delenv("LLMGW_CONTROL", raising=False)

    async def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        # In a thread: the engines and the gateway are in this one's loop.
        code = await asyncio.to_thread(run, ["bench", *words, "--gateway", fleet.url])
        said = capsys.readouterr()
        return int(code), said.out, said.err

    return call


@asynccontextmanager
async def a_control(found: Figures, key_file):
    """Control, as far as a measurement asks it."""

    async def figures(request: web.Request) -> web.Response:
        assert request.headers["authorization"] == "Bearer operator-key"
        if request.match_info["model"] != "m":
            return web.json_response({"error": {"what": "x", "why": "y", "do": "z"}}, status=404)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    app = web.Application()
    app.router.add_get("/v1/figures/{model}", figures)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    key_file.write_text("operator-key")
    port = site._server.sockets[0].getsockname()[1]
    try:
        yield ("--control", f"http://127.0.0.1:{port}", "--control-key-file", str(key_file))
    finally:
        await runner.cleanup()


async def test_each_profile_is_measured_beside_its_estimate_and_weights_are_proposed(fleet, bench, tmp_path):
    quick = await fleet.engine(play=writes(20, token_s=0.002))
    slow = await fleet.engine(play=writes(20, token_s=0.02))
    # The quick one has a higher priority, so without a word to the gateway the slow one would never be asked.
    fleet.control.put(
        model(
            "m",
            replica("m/a/0", quick.url, capacity=2),
            replica("m/b/0", slow.url, capacity=1, tier=1),
            aliases=("alias",),
        )
    )
    await fleet.start()
    known = Figures(
        {"a": 1, "b": 1},
        {"a": 100, "b": 100},
        (
            ReplicaFigures("m/a/0", "n1", 2, Predicted("llama", 4 * GIB, None, 300.0), 3 * GIB),
            ReplicaFigures("m/b/0", "n2", 1, None, 2 * GIB, 5 * GIB),
        ),
    )

    async with a_control(known, tmp_path / "operator") as control:
        code, out, _ = await bench("alias", "--requests", "2", "--tokens", "20", "--json", *control)
        text = (await bench("alias", "--requests", "1", "--tokens", "20", *control))[1]

    found = json.loads(out)
    assert (code, found["model"], found["failed"], found["over"]) == (0, "m", [], False)
    a, b = found["profiles"]
    assert (a["name"], a["replicas"], a["streams"], a["expected_tps"]) == ("a", ["m/a/0"], 2, 300.0)
    assert (b["name"], b["replicas"], b["streams"], b["expected_tps"]) == ("b", ["m/b/0"], 1, None)
    assert 100 < a["alone_tps"] < 500
    assert 20 < b["alone_tps"] <= 50
    assert a["first_p50_s"] <= a["first_p90_s"]
    assert b["proposed"] == 1
    assert a["proposed"] > 1
    assert [(m["replica"], m["host"], m["card_bytes"]) for m in found["memory"]] == [
        ("m/a/0", {"predicted": 4 * GIB, "measured": 3 * GIB}, None),
        ("m/b/0", None, 5 * GIB),
    ]
    # One that does not count, then two alone, then two on each slot.
    assert len(slow.asked) == 5 + 4
    assert {r.json["max_tokens"] for r in slow.asked} == {20}
    assert len({r.json["messages"][0]["content"] for r in slow.asked[:5]}) == 5, "none is found in a cache"
    assert "3.00 GiB  4.00 GiB, 33 % too high" in text
    assert "2.00 GiB  -" in text


async def test_profiles_of_another_priority_do_not_share_so_no_weight_is_proposed(fleet, bench, tmp_path):
    one, two = [await fleet.engine(play=writes(20, token_s=0.001)) for _ in range(2)]
    fleet.control.put(model("m", replica("m/a/0", one.url), replica("m/b/0", two.url, tier=1)))
    await fleet.start()
    known = Figures(
        {"a": 3, "b": 1},
        {"a": 100, "b": 1},
        tuple(ReplicaFigures(f"m/{p}/0", "n1", 1, None) for p in "ab"),
    )

    async with a_control(known, tmp_path / "operator") as control:
        _, out, _ = await bench("m", "--requests", "1", "--json", *control)

    assert [(p["weight"], p["proposed"]) for p in json.loads(out)["profiles"]] == [(1, None), (3, None)]


async def test_without_control_what_the_gateway_alone_shows_is_measured_and_the_rest_is_said(fleet, bench):
    engine = await fleet.engine(play=writes(20, token_s=0.001))
    fleet.control.put(model("m", replica("m/a/0", engine.url)))
    await fleet.start()

    code, out, _ = await bench("m", "--requests", "2")

    assert code == 0
    assert "\na        " in out
    assert "control was not asked (--control, --control-key-file)" in out
    assert len(engine.asked) == 3


@pytest.mark.parametrize(
    ("words", "there", "code", "said"),
    [
        pytest.param(("nobody",), {}, 1, "the model 'nobody' does not exist", id="no such model"),
        pytest.param(("m",), {"state": Serving.STARTING}, 5, "nothing serves it: it loads", id="it loads"),
        pytest.param(("m",), None, 5, "nothing serves it: it is started when it is asked", id="it is cold"),
        pytest.param(("m", "--profile", "b"), {}, 5, "it has no replica of a profile 'b'", id="no such profile"),
    ],
)
async def test_what_cannot_be_measured_is_said_with_a_code_that_means_it(fleet, bench, words, there, code, said):
    engine = await fleet.engine(play=writes(20, token_s=0.001))
    fleet.control.put(model("m", *([] if there is None else [replica("m/a/0", engine.url, **there)])))
    await fleet.start()

    got, out, err = await bench(*words, "--requests", "1")

    assert (got, out) == (code, "")
    assert said in err
    assert "Traceback" not in err


def test_an_address_that_is_no_url_is_wrong_usage(capsys):
    assert run(["bench", "m", "--gateway", "gateway:8080"]) == 64
    assert "it is no http or https URL" in capsys.readouterr().err


async def test_a_gateway_that_is_down_is_unreachable(fleet, bench):
    await fleet.put_nothing()
    await fleet.stop()

    code, out, err = await bench("m")

    assert (code, out) == (3, "")
    assert "the gateway did not answer at" in err


async def test_what_is_no_gateway_is_said_so(fleet, bench):
    odd = await fleet.engine(play=plays_bytes(answer(b"<html>")))
    fleet.port = odd.port

    code, _, err = await bench("m")

    assert code == 1
    assert "does not answer as a gateway" in err


async def test_answers_that_break_off_are_counted_and_do_not_make_a_figure(fleet, bench):
    plays = [writes(20, token_s=0.001)] * 2 + [plays_bytes(STREAM_HEAD + piece(event(chunk("hel"))), end="reset")]

    async def play(connection, request):
        await (plays.pop(0) if plays else well_behaved)(connection, request)

    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/a/0", engine.url)))
    await fleet.start()

    code, out, _ = await bench("m", "--requests", "2")

    assert code == 1
    assert "failed  an answer of m broke off: m/a/0 failed" in out


async def test_an_engine_that_fails_everything_is_an_error_and_no_table(fleet, bench):
    engine = await fleet.engine(play=plays_bytes(answer({"error": {"message": "boom"}}, status=500), end="keep"))
    fleet.control.put(model("m", replica("m/a/0", engine.url)))
    await fleet.start()

    code, out, err = await bench("m")

    assert (code, out) == (3, "")
    assert "boom" in err


async def test_it_ends_in_its_time_and_says_what_it_has_until_then(fleet, bench):
    plays = [writes(20, token_s=0.001)] * 2
    hang = plays_bytes(STREAM_HEAD + piece(event(chunk("hel"))), end="hang")

    async def play(connection, request):
        await (plays.pop(0) if plays else hang)(connection, request)

    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/a/0", engine.url)))
    await fleet.start()

    code, out, err = await bench("m", "--requests", "2", "--within", "1")

    assert (code, out) == (5, "")
    assert "within 1 s" in err
    await fleet.idle()


async def test_an_interrupt_ends_it_and_its_streams(fleet):
    engine = await fleet.engine(play=plays_bytes(STREAM_HEAD + piece(event(chunk("hel"))), end="hang"))
    fleet.control.put(model("m", replica("m/a/0", engine.url)))
    await fleet.start()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llmgw", "bench", "m", "--gateway", fleet.url, stderr=asyncio.subprocess.PIPE
    )
    await until(lambda: engine.at_work, said="a stream")

    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), 30)

    assert process.returncode == 130
    assert b"Traceback" not in err
    await fleet.idle()
