"""A client that leaves is followed by its request, at once and whatever it was waiting for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct

import pytest

from fakes.quirks import STREAM_HEAD, answer, chat_answer, chunk, event, piece, plays_bytes, well_behaved
from fakes.table_server import model, replica
from fakes.waiting import until
from llmgw.gateway.bounds import Bounds

CHAT = "/v1/chat/completions"
SOON_S = 0.5
"""How long an engine may go on for nobody."""


class RawClient:
    """A client whose connection ends as a test wants it to."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, body: dict) -> RawClient:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        data = json.dumps(body).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        return self

    async def leave(self, how: str) -> None:
        if how == "RST":
            found = self.writer.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def silent(connection, _):
    await connection.gone.wait()


async def one_event_then_silence(connection, _):
    await connection.send(STREAM_HEAD + piece(event(chunk("hel"))))
    await connection.gone.wait()


async def headers_then_silence(connection, _):
    await connection.send(STREAM_HEAD)
    await connection.gone.wait()


async def half_an_answer(connection, _):
    await connection.send(answer(chat_answer())[:-10])
    await connection.gone.wait()


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize(
    ("play", "stream", "tokens"),
    [
        pytest.param(silent, False, None, id="before the answer"),
        pytest.param(half_an_answer, False, None, id="inside the answer"),
        pytest.param(silent, True, None, id="before the stream"),
        pytest.param(headers_then_silence, True, None, id="before the first token"),
        pytest.param(one_event_then_silence, True, 1, id="in the middle of a silent stream"),
    ],
)
async def test_f20_the_engine_sees_within_half_a_second_that_its_client_left(fleet, chat, play, stream, tokens, how):
    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, engine="vllm")))
    await fleet.start()
    client = await RawClient(fleet.port).ask(chat(stream=stream))
    await until(lambda: engine.at_work == 1)
    if tokens:
        await client.reader.readuntil(b"hel")
    loop = asyncio.get_running_loop()
    left = loop.time()

    await client.leave(how)

    await until(lambda: not engine.open)
    assert engine.losses[-1] - left < SOON_S
    await fleet.idle()
    (record,) = await fleet.records(1)
    assert (record["outcome"], record["status"], record["completion_tokens"]) == ("client_closed", 499, tokens)


@pytest.mark.parametrize("how", ["FIN", "RST"])
async def test_a_client_that_leaves_inside_its_own_body_is_no_failure(fleet, how):
    await fleet.put_nothing()
    client = RawClient(fleet.port)
    client.reader, client.writer = await asyncio.open_connection("127.0.0.1", fleet.port)
    client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await client.writer.drain()
    await fleet.health()

    await client.leave(how)

    (record,) = await fleet.records(1)
    assert (record["outcome"], record["status"]) == ("client_closed", 499)
    assert not [r for r in fleet.logged.records if r.exc_info]


async def test_a_client_that_is_slow_to_read_holds_no_slot(fleet, chat):
    big = answer(chat_answer("x" * 30_000_000))
    engine = await fleet.engine(play=plays_bytes(big, end="keep"))
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)))
    await fleet.start()
    client = await RawClient(fleet.port).ask(chat())
    await client.reader.readuntil(b"200 OK")

    engine.play = well_behaved
    async with fleet.post(CHAT, chat()) as got:
        assert got.status == 200

    await client.leave("RST")
    await fleet.idle()


async def test_f20_in_the_middle_of_a_stream_that_flows(fleet, chat):
    async def flows(connection, _):
        await connection.send(STREAM_HEAD)
        while not connection.gone.is_set():
            await connection.send(piece(event(chunk("x" * 1000))))
            await asyncio.sleep(0)

    engine = await fleet.engine(play=flows)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start()
    client = await RawClient(fleet.port).ask(chat(stream=True))
    await client.reader.readuntil(b"xxx")
    left = asyncio.get_running_loop().time()

    await client.leave("RST")

    await until(lambda: not engine.open)
    assert engine.losses[-1] - left < SOON_S
    await fleet.idle()


async def test_ka6_a_client_that_leaves_the_line_is_gone_from_the_demand(fleet, chat):
    engine = await fleet.engine(play=silent)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)))
    await fleet.start()
    first = await RawClient(fleet.port).ask(chat())
    await until(lambda: engine.at_work == 1)
    second = await RawClient(fleet.port).ask(chat())
    await fleet.until_health(lambda h: h["waiting"] == 1)

    await second.leave("FIN")

    await fleet.until_health(lambda h: (h["waiting"], h["in_flight"]) == (0, 1))
    assert len(engine.asked) == 1
    await first.leave("FIN")


async def test_f34_a_client_that_does_not_read_is_given_up(fleet, chat):
    async def endless(connection, _):
        await connection.send(STREAM_HEAD)
        while not connection.gone.is_set():
            await connection.send(piece(event(chunk("x" * 60_000))))

    engine = await fleet.engine(play=endless)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start(bounds=Bounds(write_s=0.2))

    client = await RawClient(fleet.port).ask(chat(stream=True))

    await until(lambda: engine.losses, said="the engine is let go")
    await fleet.idle()
    (record,) = await fleet.records(1)
    assert record["outcome"] == "client_closed"
    await client.leave("RST")


async def test_f21_llama_servers_slot_stays_taken_until_it_says_that_it_is_idle(fleet, chat):
    engine = await fleet.engine(play=silent, slots=[1, 1, 0])
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)))
    await fleet.start(bounds=Bounds(slot_look_s=0.05))
    client = await RawClient(fleet.port).ask(chat(stream=True))
    await until(lambda: engine.at_work == 1)

    await client.leave("FIN")
    engine.play = well_behaved
    async with fleet.post(CHAT, chat()) as got:
        assert got.status == 200

    looks = [r.path for r in engine.received]
    assert looks == [CHAT, "/slots", "/slots", "/slots", CHAT], "the next one waits until the slot is idle"
    assert engine.received[1].headers["authorization"] == "Bearer engine-key"
    assert engine.slots == [0]


async def test_f21_a_slot_is_given_up_on_after_a_while_whatever_the_engine_says(fleet, chat):
    engine = await fleet.engine(play=silent, slots=[1])
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)))
    await fleet.start(bounds=Bounds(slot_look_s=0.02, slot_give_up_s=0.2))
    client = await RawClient(fleet.port).ask(chat())
    await until(lambda: engine.at_work == 1)

    await client.leave("FIN")
    engine.play = well_behaved
    async with fleet.post(CHAT, chat()) as got:
        assert got.status == 200


@pytest.mark.parametrize(
    ("play", "more"),
    [
        pytest.param(silent, {"engine": "vllm"}, id="other engines notice by themselves"),
        pytest.param(one_event_then_silence, {}, id="after the first token llama-server notices too"),
    ],
)
async def test_a_slot_is_free_at_once_where_the_engine_notices(fleet, chat, play, more):
    engine = await fleet.engine(play=play, slots=[1])
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1, **more)))
    await fleet.start()
    client = await RawClient(fleet.port).ask(chat(stream=True))
    await until(lambda: engine.at_work == 1)
    if play is one_event_then_silence:
        await client.reader.readuntil(b"hel")

    await client.leave("FIN")
    engine.play = well_behaved
    async with fleet.post(CHAT, chat()) as got:
        assert got.status == 200

    assert "/slots" not in [r.path for r in engine.received]


async def test_a_slot_of_an_engine_that_is_gone_counts_no_more(fleet, chat):
    engine = await fleet.engine(play=silent, slots=[1])
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)))
    await fleet.start(bounds=Bounds(slot_look_s=0.05))
    client = await RawClient(fleet.port).ask(chat())
    await until(lambda: engine.at_work == 1)
    await client.leave("FIN")
    await engine.die()

    await fleet.idle()


@pytest.mark.parametrize("slots", [b'[{"a":' + b"[" * 200_000, b"\xff", b"{}", b"[5]"])
async def test_a_slot_is_given_back_whatever_the_engine_says_of_its_slots(fleet, chat, slots):
    engine = await fleet.engine(play=silent, slots=[slots])
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)))
    await fleet.start(bounds=Bounds(slot_look_s=0.02, slot_give_up_s=0.1))
    client = await RawClient(fleet.port).ask(chat())
    await until(lambda: engine.at_work == 1)

    await client.leave("FIN")

    await fleet.idle()
