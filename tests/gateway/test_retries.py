"""Another replica is asked while the client has seen nothing, and never after."""

from __future__ import annotations

import asyncio

import pytest

from fakes.quirks import (
    STREAM_HEAD,
    answer,
    chat_answer,
    chat_events,
    chunk,
    event,
    piece,
    plays_bytes,
    plays_stream,
    well_behaved,
)
from fakes.table_server import model, replica
from llmgw.gateway.bounds import Bounds

CHAT = "/v1/chat/completions"
LOADING = answer({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503)


@pytest.fixture
async def three(fleet):
    """A gateway with three replicas, asked in the order of their numbers."""
    engines = [await fleet.engine() for _ in range(3)]
    fleet.control.put(model("m", *(replica(f"m/gpu/{n}", e.url, tier=100 - n) for n, e in enumerate(engines))))
    await fleet.start()
    return engines


def asked(engines) -> list[int]:
    return [len(e.asked) for e in engines]


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(plays_bytes(b""), id="closed without a word"),
        pytest.param(plays_bytes(b"", end="reset"), id="reset"),
        pytest.param(plays_bytes(LOADING), id="503 while it loads"),
        pytest.param(plays_bytes(answer({}, 502)), id="502"),
        pytest.param(plays_bytes(answer({"error": "Unauthorized"}, 401)), id="401 to a key it does not know"),
        pytest.param(plays_bytes(answer(chat_answer())[:-5], end="reset"), id="reset inside the answer"),
        pytest.param(plays_stream(last=False), id="a stream that ends before it begins"),
        pytest.param(plays_stream(b": ping\n\n", end="reset", last=False), id="a stream that only said that it lives"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["", "stream"])
async def test_gs5_a_replica_that_fails_before_the_first_byte_is_replaced_by_the_next(fleet, three, chat, play, stream):
    three[0].play = play

    async with fleet.post(CHAT, chat(stream=stream)) as got:
        body = await got.read()

    assert got.status == 200
    assert b"error" not in body
    assert body.count(b"data: [DONE]") == stream
    assert asked(three) == [1, 1, 0]
    await fleet.idle()
    (record,) = await fleet.records(1)
    assert (record["replica"], record["attempts"], record["outcome"]) == ("m/gpu/1", 2, "ok")


async def test_the_headers_say_who_answered_and_how_many_were_asked(fleet, three, chat):
    three[0].play = plays_bytes(b"", end="reset")

    async with fleet.post(CHAT, chat()) as got:
        assert got.headers["x-llmgw-replica"] == "m/gpu/1"
        assert got.headers["x-llmgw-attempts"] == "2"
        assert got.headers["x-llmgw-served-model"] == "m"


async def test_gs5_a_replica_that_was_killed_is_replaced_by_the_next_and_then_asked_last(fleet, three, chat):
    await three[0].die()

    for _ in range(3):
        async with fleet.post(CHAT, chat()) as got:
            assert got.status == 200

    assert asked(three) == [0, 3, 0]
    assert [r["attempts"] for r in await fleet.records(3)] == [2, 1, 1]


async def test_at_most_three_are_asked(fleet, three, chat):
    fourth = await fleet.engine()
    for engine in three:
        engine.play = plays_bytes(b"", end="reset")
    await fleet.put(model("m", *(replica(f"m/gpu/{n}", e.url, tier=100 - n) for n, e in enumerate([*three, fourth]))))

    async with fleet.post(CHAT, chat()) as got:
        error = (await got.json())["error"]

    assert (got.status, error["code"]) == (502, "upstream_error")
    assert "m/gpu/2 failed" in error["message"]
    assert got.headers["x-should-retry"] == "true"
    assert asked([*three, fourth]) == [1, 1, 1, 0]
    (record,) = await fleet.records(1)
    assert (record["outcome"], record["attempts"]) == ("failed", 3)


async def test_where_every_replica_loads_the_client_is_told_so_and_when_to_come_again(fleet, three, chat):
    for engine in three:
        engine.play = plays_bytes(LOADING)

    async with fleet.post(CHAT, chat()) as got:
        error = (await got.json())["error"]

    assert (got.status, error["code"]) == (503, "model_loading")
    assert 1 <= int(got.headers["retry-after"]) <= 30


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 500, 501])
async def test_what_an_engine_decided_is_not_asked_again(fleet, three, chat, status):
    three[0].play = plays_bytes(answer({"error": {"message": "no"}}, status))

    async with fleet.post(CHAT, chat()) as got:
        assert got.status == status

    assert asked(three) == [1, 0, 0]


async def test_f10_what_the_client_has_seen_a_part_of_is_not_asked_again(fleet, three, chat):
    three[0].play = plays_stream(event(chunk("hel")), last=False, end="reset")

    async with fleet.post(CHAT, chat(stream=True)) as got:
        body = await got.read()

    assert asked(three) == [1, 0, 0]
    assert body.count(b'"error"') == 1
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_replica_that_is_too_slow_is_not_replaced_since_it_may_be_at_work(fleet, chat):
    engines = [await fleet.engine(play=plays_bytes(b"", end="hang")), await fleet.engine()]
    fleet.control.put(model("m", *(replica(f"m/gpu/{n}", e.url, tier=100 - n) for n, e in enumerate(engines))))
    await fleet.start(bounds=Bounds(first_s=0.1))

    async with fleet.post(CHAT, chat()) as got:
        error = (await got.json())["error"]

    assert (got.status, error["type"], got.headers["x-should-retry"]) == (504, "timeout_error", "false")
    assert asked(engines) == [1, 0]


async def test_a_stream_that_falls_silent_ends_in_an_error(fleet, chat):
    engine = await fleet.engine(play=plays_bytes(STREAM_HEAD + piece(event(chunk("hel"))), end="hang"))
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start(bounds=Bounds(idle_s=0.1))

    async with fleet.post(CHAT, chat(stream=True)) as got:
        body = await got.read()

    assert b'"timeout_error"' in body
    assert body.endswith(b"data: [DONE]\n\n")
    assert not engine.open


async def test_comments_of_the_engine_count_as_life(fleet, chat):
    async def play(connection, _):
        await connection.send(STREAM_HEAD + piece(event(chunk("hel"))))
        for _ in range(8):
            await asyncio.sleep(0.05)
            await connection.send(piece(b":\n\n"))
        await connection.send(piece(chat_events("lo")))
        connection.close()

    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start(bounds=Bounds(idle_s=0.2))

    async with fleet.post(CHAT, chat(stream=True)) as got:
        body = await got.read()

    assert b"error" not in body
    assert body.count(b":\n\n") == 8


async def test_f22_a_kept_connection_that_the_engine_closed_is_replaced_by_a_fresh_one(fleet, chat):
    held = []

    async def play(connection, request):
        held.append(connection)
        if len(held) == 2:
            # The engine's idle limit strikes in the moment the connection is used again.
            connection.close()
            return
        await well_behaved(connection, request)

    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start()

    for _ in range(2):
        async with fleet.post(CHAT, chat()) as got:
            assert got.status == 200

    assert engine.connections == 2
    assert len(engine.asked) == 3
    assert [r["attempts"] for r in await fleet.records(2)] == [1, 1], "the connection failed, not the replica"


async def test_f22_a_fresh_connection_that_fails_is_not_tried_twice(fleet, chat):
    engine = await fleet.engine(play=plays_bytes(b""))
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start()

    async with fleet.post(CHAT, chat()) as got:
        assert got.status == 502

    assert len(engine.asked) == 1


async def test_a_connection_that_carried_json_is_used_again_and_one_that_carried_a_stream_never(fleet, chat):
    engine = await fleet.engine(play=plays_stream(chat_events("a"), end="keep"))
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start()
    for _ in range(3):
        async with fleet.post(CHAT, chat(stream=True)) as got:
            await got.read()
    assert engine.connections == 3

    engine.play = well_behaved
    for _ in range(3):
        async with fleet.post(CHAT, chat()) as got:
            await got.read()

    assert engine.connections == 4


async def test_a_connection_is_not_kept_as_long_as_engines_keep_it(fleet, chat):
    engine = await fleet.engine()
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start(bounds=Bounds(kept_s=0.1))
    async with fleet.post(CHAT, chat()) as got:
        await got.read()
    (connection,) = engine.open

    async with asyncio.timeout(3):
        await connection.gone.wait()

    assert Bounds().kept_s <= 3
