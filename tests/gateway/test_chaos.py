"""Engines that fail in every way at once, clients that leave: and afterwards everything is counted."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import aiohttp
import pytest

from fakes.quirks import (
    STREAM_HEAD,
    answer,
    chat_events,
    chunk,
    event,
    plays_bytes,
    plays_stream,
    well_behaved,
)
from fakes.table_server import model, replica
from llmgw.gateway.bounds import Bounds

CHAT = "/v1/chat/completions"
FAULTS = [
    well_behaved,
    well_behaved,
    well_behaved,
    plays_bytes(b""),
    plays_bytes(b"", end="reset"),
    plays_bytes(answer({"error": {"message": "Loading model"}}, 503)),
    plays_bytes(answer({"error": {"message": "no"}}, 400), end="keep"),
    plays_bytes(answer({"error": {"message": "no"}}, 500), end="keep"),
    plays_bytes(b"garbage\r\n\r\n"),
    plays_bytes(b"", end="hang"),
    plays_bytes(STREAM_HEAD, end="hang"),
    plays_stream(event(chunk("a")), last=False, end="reset"),
    plays_stream(event(chunk("a"))),
    plays_stream(event(chunk("a")), event({"error": {"message": "no"}})),
    plays_stream(chat_events("a"), end="hang"),
]


@pytest.mark.parametrize("seed", range(3))
async def test_f41_after_any_chaos_nothing_is_in_flight_and_each_request_is_one_record(fleet, chat, seed):
    dice = random.Random(seed)

    async def play(connection, request):
        await dice.choice(FAULTS)(connection, request)

    engines = [await fleet.engine(play=play) for _ in range(3)]

    def replicas():
        return [
            replica(
                f"m/gpu/{n}",
                e.url,
                capacity=dice.randint(1, 3),
                tier=dice.choice([10, 100]),
                engine=dice.choice(["llamacpp", "vllm"]),
            )
            for n, e in enumerate(engines)
        ]

    fleet.control.put(model("m", *replicas()))
    await fleet.start(
        bounds=Bounds(first_s=0.3, idle_s=0.3, full_wait_s=0.5, slot_look_s=0.02, slot_give_up_s=0.2, waiting=8)
    )
    ends: Counter[str] = Counter()

    async def ask(session: aiohttp.ClientSession) -> None:
        patience = dice.choice([0.01, 0.1, 5, 5])
        try:
            async with (
                asyncio.timeout(patience),
                session.post(fleet.url + CHAT, json=chat(stream=dice.random() < 0.6)) as got,
            ):
                body = await got.read()
        except TimeoutError:
            ends["left"] += 1
            return
        ends[str(got.status)] += 1
        if got.content_type == "text/event-stream":
            assert body.endswith(b"data: [DONE]\n\n"), body
            assert body.count(b"[DONE]") == 1
            assert body.count(b'data: {"error"') <= 1
            assert (b'"finish_reason": "stop"' in body) != (b'data: {"error"' in body)

    async def shake() -> None:
        for _ in range(5):
            await asyncio.sleep(0.1)
            await fleet.put(model("m", *replicas()))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        shaking = asyncio.create_task(shake())
        for _ in range(4):
            await asyncio.gather(*(ask(session) for _ in range(25)))
        await shaking

    assert len(ends) > 3, ends
    await fleet.idle()
    health = await fleet.health()
    count = sum(health["requests"].values())
    # Whoever left before the request was out has not been here.
    assert 100 - ends["left"] <= count <= 100
    assert len({r["request_id"] for r in await fleet.records(count)}) == count
