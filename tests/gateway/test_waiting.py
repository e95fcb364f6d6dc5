"""Requests that wait: in line, for a start, with comments so that clients do not give up."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fakes.quirks import LAST_PIECE, STREAM_HEAD, answer, chat_answer, chat_events, piece, plays_bytes, well_behaved
from fakes.table_server import model, replica
from fakes.waiting import until
from llmgw.core.table import Serving
from llmgw.gateway.bounds import Bounds

CHAT = "/v1/chat/completions"


class Gate:
    """An engine's behaviour that answers once it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, connection, request):
        await self.open.wait()
        await well_behaved(connection, request)


async def body_of(fleet, body) -> tuple[int, bytes]:
    async with fleet.post(CHAT, body) as got:
        return got.status, await got.read()


async def test_ka1_seven_cards_and_four_cpus_fill_in_order_and_the_rest_waits(fleet, chat):
    gate = Gate()
    gpus = [await fleet.engine(play=gate) for _ in range(7)]
    cpus = [await fleet.engine(play=gate) for _ in range(4)]
    fleet.control.put(
        model(
            "m",
            *(replica(f"m/gpu/{n}", e.url, tier=100, capacity=4) for n, e in enumerate(gpus)),
            *(replica(f"m/cpu/{n}", e.url, tier=10, capacity=2) for n, e in enumerate(cpus)),
        )
    )
    await fleet.start()

    tasks = []
    for total, on_gpu, on_cpu in [(28, 28, 0), (30, 28, 2), (36, 28, 8), (40, 28, 8)]:
        tasks += [asyncio.create_task(body_of(fleet, chat())) for _ in range(total - len(tasks))]
        await fleet.until_health(lambda h, total=total: h["in_flight"] + h["waiting"] == total)
        await until(lambda on_gpu=on_gpu, on_cpu=on_cpu: _at_work(gpus, cpus) == (on_gpu, on_cpu))
    assert (await fleet.health())["waiting"] == 4
    assert max(e.at_work for e in gpus) == 4, "never more than an engine has slots"

    gate.open.set()
    assert {status for status, _ in await asyncio.gather(*tasks)} == {200}
    await body_of(fleet, chat())

    tiers = Counter(r["tier"] for r in await fleet.records(41))
    assert tiers[10] == 8, "as soon as the cards were free again nothing went to a CPU"
    await fleet.idle()


async def test_ls10_a_full_line_is_refused_with_a_time_to_come_again(fleet, chat):
    gate = Gate()
    engine = await fleet.engine(play=gate)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)))
    await fleet.start(bounds=Bounds(waiting=2))
    tasks = [asyncio.create_task(body_of(fleet, chat())) for _ in range(3)]
    await fleet.until_health(lambda h: h["waiting"] == 2)

    async with fleet.post(CHAT, chat(stream=True)) as got:
        error = (await got.json())["error"]

    assert (got.status, error["code"], error["type"]) == (429, "queue_full", "rate_limit_error")
    assert 1 <= int(got.headers["retry-after"]) <= 30
    gate.open.set()
    assert {status for status, _ in await asyncio.gather(*tasks)} == {200}


async def test_requests_wait_while_a_replica_starts_and_control_is_told_at_once(fleet, chat):
    engine = await fleet.engine()
    fleet.control.put(model("m", replica("m/gpu/0", "http://127.0.0.1:1", state=Serving.STARTING)))
    await fleet.start(bounds=Bounds(demand_every_s=60))
    await until(lambda: fleet.control.demands, said="the first demand")

    task = asyncio.create_task(body_of(fleet, chat()))

    await until(lambda: fleet.control.demands[-1].models.get("m"), within_s=2)
    assert fleet.control.demands[-1].models["m"].waiting == 1
    await fleet.put(model("m", replica("m/gpu/0", engine.url)))
    assert (await task)[0] == 200
    for _ in range(20):
        await body_of(fleet, chat())
    assert len(fleet.control.demands) == 2, "once at the start, once at once, and not again before its time"


async def test_what_cannot_be_served_says_why_and_does_not_wait(fleet, chat):
    fleet.control.put(model("m", why="no node has a card of class l40s-48g", wanted=1))
    await fleet.start()

    async with fleet.post(CHAT, chat()) as got:
        error = (await got.json())["error"]

    assert (got.status, error["code"]) == (503, "model_unavailable")
    assert "no node has a card of class l40s-48g" in error["message"]
    assert got.headers["retry-after"]
    (record,) = await fleet.records(1)
    assert record["outcome"] == "rejected"


@pytest.mark.parametrize("where", ["in line", "before the answer", "inside the stream"])
async def test_f08_a_stream_that_waits_hears_comments(fleet, chat, where):
    first, gate = Gate(), Gate()

    async def play(connection, request):
        if where == "inside the stream":
            await connection.send(STREAM_HEAD + piece(chat_events("hel")[:200]))
        await gate.open.wait()
        if where == "inside the stream":
            await connection.send(piece(chat_events("hel")[200:]) + LAST_PIECE)
        else:
            await well_behaved(connection, request)

    engine = await fleet.engine(play=first if where == "in line" else play)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)))
    await fleet.start(bounds=Bounds(keepalive_s=0.05))
    ahead = asyncio.create_task(body_of(fleet, chat())) if where == "in line" else None
    if ahead:
        await until(lambda: engine.at_work == 1)

    async with fleet.post(CHAT, chat(stream=True)) as got:
        said = b""
        while said.count(b": waiting\n\n") < 3:
            said += await got.content.readany()
        first.open.set()
        gate.open.set()
        said += await got.read()

    assert got.status == 200
    assert got.headers["content-type"] == "text/event-stream"
    assert got.headers["x-accel-buffering"] == "no"
    assert said.replace(b": waiting\n\n", b"").endswith(b"data: [DONE]\n\n")
    assert b"error" not in said
    if ahead:
        await ahead


async def test_f09_what_is_refused_is_refused_with_a_status_and_not_inside_a_stream(fleet, chat):
    await fleet.put_nothing()

    for body, status in [(chat("other", stream=True), 404), ({"stream": True}, 400)]:
        async with fleet.post(CHAT, body) as got:
            assert got.status == status
            assert got.content_type == "application/json"


async def test_an_error_after_a_comment_is_an_event(fleet, chat):
    gate = Gate()

    async def play(connection, _):
        await gate.open.wait()
        await connection.send(answer({"error": {"message": "no memory"}}, 400))

    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start(bounds=Bounds(keepalive_s=0.05))

    async with fleet.post(CHAT, chat(stream=True)) as got:
        said = await got.content.readany()
        gate.open.set()
        said += await got.read()

    assert got.status == 200
    assert said.startswith(b": waiting\n\n")
    assert said.count(b'data: {"error"') == 1
    assert b"no memory" in said
    assert said.endswith(b"data: [DONE]\n\n")
    (record,) = await fleet.records(1)
    assert (record["status"], record["outcome"]) == (400, "rejected")


async def test_an_answer_that_is_no_stream_hears_no_comments(fleet, chat):
    gate = Gate()
    engine = await fleet.engine(play=gate)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start(bounds=Bounds(keepalive_s=0.02))
    task = asyncio.create_task(body_of(fleet, chat()))
    await until(lambda: engine.at_work == 1)
    await asyncio.sleep(0.1)  # five comments' time

    gate.open.set()

    status, body = await task
    assert status == 200
    assert body.startswith(b"{")


async def test_f06_each_piece_goes_on_as_it_comes(fleet, chat):
    events = [e + b"\n\n" for e in chat_events("a", "b", "c", usage=False).split(b"\n\n") if e]
    turn = asyncio.Semaphore(0)

    async def play(connection, _):
        await connection.send(STREAM_HEAD)
        for e in events:
            await turn.acquire()
            await connection.send(piece(e))
        await connection.send(LAST_PIECE)

    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start()

    turn.release()
    async with fleet.post(CHAT, chat(stream=True)) as got:
        for e in events:
            # Nothing more is sent until this one has arrived.
            assert await got.content.readexactly(len(e)) == e
            turn.release()


async def test_vo10_a_new_table_cuts_no_stream(fleet, chat):
    gate = Gate()

    async def play(connection, _):
        await connection.send(STREAM_HEAD + piece(chat_events("hel")[:200]))
        await gate.open.wait()
        await connection.send(piece(chat_events("hel")[200:]) + LAST_PIECE)

    old, new = await fleet.engine(play=play), await fleet.engine()
    fleet.control.put(model("m", replica("m/gpu/0", old.url)))
    await fleet.start()
    async with fleet.post(CHAT, chat(stream=True)) as got:
        await until(lambda: old.at_work == 1)

        await fleet.put(model("m", replica("m/gpu/1", new.url), aliases=("other",)))
        async with fleet.post(CHAT, chat("other")) as other:
            assert other.headers["x-llmgw-replica"] == "m/gpu/1"
        gate.open.set()

        assert (await got.read()).endswith(b"data: [DONE]\n\n")
    await fleet.put(model("else", replica("else/gpu/0", new.url)))
    async with fleet.post(CHAT, chat()) as gone:
        assert gone.status == 404


async def test_ds2_a_steady_load_over_a_rolling_update_loses_no_request(fleet, chat):
    old, new = await fleet.engine(), await fleet.engine()
    before = replica("m/gpu/0", old.url)
    fleet.control.put(model("m", before))
    await fleet.start()
    stop = asyncio.Event()
    statuses: Counter[int] = Counter()

    async def load() -> None:
        while not stop.is_set():
            status, _ = await body_of(fleet, chat())
            statuses[status] += 1

    tasks = [asyncio.create_task(load()) for _ in range(4)]
    starting = replica("m/gpu/0", new.url, generation=2, state=Serving.STARTING)
    for step in (
        [before, starting],
        [before, replica("m/gpu/0", new.url, generation=2)],
        [replica("m/gpu/0", old.url, state=Serving.DRAINING), replica("m/gpu/0", new.url, generation=2)],
        [replica("m/gpu/0", new.url, generation=2)],
    ):
        reached = sum(statuses.values()) + 20
        await until(lambda reached=reached: sum(statuses.values()) >= reached)
        await fleet.put(model("m", *step))
    stop.set()
    await asyncio.gather(*tasks)

    assert set(statuses) == {200}
    assert old.asked
    assert new.asked


async def test_a_slow_first_answer_does_not_hold_up_another_model(fleet, chat):
    gate = Gate()
    slow, quick = await fleet.engine(play=gate), await fleet.engine(play=plays_bytes(answer(chat_answer()), end="keep"))
    fleet.control.put(
        model("a", replica("a/gpu/0", slow.url, capacity=1)), model("b", replica("b/gpu/0", quick.url, capacity=1))
    )
    await fleet.start()
    tasks = [asyncio.create_task(body_of(fleet, chat("a"))) for _ in range(10)]
    await fleet.until_health(lambda h: h["waiting"] == 9)

    async with fleet.post(CHAT, chat("b")) as got:
        assert got.status == 200

    gate.open.set()
    await asyncio.gather(*tasks)


def _at_work(*groups) -> tuple[int, ...]:
    return tuple(sum(e.at_work for e in group) for group in groups)
