"""The real client behind the gateway, whatever an engine sends: an answer, or an error that is raised.

The rows are those of streams and errors that clients were seen to take for a
success, to hang on, or to break on.
"""

from __future__ import annotations

import asyncio
import json

import aiohttp
import openai
import pytest

from fakes.quirks import (
    STREAM_HEAD,
    USAGE,
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
from fakes.waiting import until

HI = [{"role": "user", "content": "hi"}]
ERROR = {"error": {"message": "no memory left", "type": "server_error", "code": 500}}


@pytest.fixture
async def one(fleet):
    """A gateway with one engine."""
    engine = await fleet.engine()
    fleet.control.put(model("m", replica("m/gpu/0", engine.url), aliases=("big",)))
    await fleet.start()
    return engine


async def text_of(client: openai.AsyncOpenAI, into: list[str] | None = None, **more) -> str:
    """The text of a streamed answer, which is also put `into` a list as it comes."""
    got = [] if into is None else into
    async for part in await client.chat.completions.create(model="big", messages=HI, stream=True, **more):
        assert part.model == "big"
        if part.choices and part.choices[0].delta.content:
            got.append(part.choices[0].delta.content)
    return "".join(got)


UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
WHOLE = chat_events("hel", "lo", usage=True)
JSON_TWO_LINES = (
    b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m",\n'
    b'data: "choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\n'
)


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(plays_stream(WHOLE), id="an ordinary stream"),
        pytest.param(plays_stream(b": ping\n\n", WHOLE.replace(b"\n\n", b"\n\n: ping\n\n")), id="F07 comments"),
        pytest.param(plays_stream(b'id: 1\ndata: {"choices":[]}\n\n', b": ping\n\n", WHOLE), id="F07 an id, a comment"),
        pytest.param(plays_stream(b"retry: 100\n\n", WHOLE), id="F07 retry alone"),
        pytest.param(plays_stream(b"data:\n\n", WHOLE), id="empty data"),
        pytest.param(plays_stream(JSON_TWO_LINES, b"data: [DONE]\n\n"), id="JSON over two data lines"),
        pytest.param(
            plays_stream(b'event: llmgw.status\ndata: {"stage":"load"}\n\n', WHOLE), id="another kind of event"
        ),
        pytest.param(plays_stream(event({**chunk(), "choices": []}), WHOLE), id="a chunk without choices"),
        pytest.param(plays_stream(WHOLE.replace(b"data: ", b"data:")), id="F03 no space after the colon"),
        pytest.param(plays_stream(WHOLE.replace(b"\n", b"\r\n")), id="F03 CRLF"),
        pytest.param(plays_stream(*(WHOLE[i : i + 1] for i in range(len(WHOLE)))), id="F01 a byte a piece"),
        pytest.param(plays_stream(WHOLE, end="hang"), id="[DONE], and then left open"),
        pytest.param(plays_stream(WHOLE, event(chunk("more"))), id="data after [DONE]"),
        pytest.param(plays_stream(chat_events("hello", done=False)), id="a finish reason and no [DONE]"),
        pytest.param(plays_stream(chat_events("hello", done=False), last=False), id="finished, then cut"),
        pytest.param(plays_stream(chat_events("hello", done=False), last=False, end="reset"), id="finished, reset"),
        pytest.param(plays_stream(event(chunk("hello")), b"data: [DONE]\n\n"), id="[DONE] and no finish reason"),
        pytest.param(plays_stream(WHOLE.replace(b'"choices": []', b'"choices": null')), id="usage with choices: null"),
        pytest.param(plays_stream(WHOLE.replace(b'"choices": [], ', b"")), id="usage without choices"),
        pytest.param(plays_bytes(UNTIL_CLOSED + WHOLE), id="until the connection closes"),
    ],
)
@pytest.mark.parametrize("usage", [False, True], ids=["", "usage asked for"])
async def test_a_stream_that_is_odd_and_complete_arrives(fleet, one, play, usage):
    one.play = play
    more = {"stream_options": {"include_usage": True}} if usage else {}

    async with asyncio.timeout(5):
        assert await text_of(fleet.client(), **more) == "hello"

    await fleet.idle()
    (record,) = await fleet.records(1)
    assert (record["outcome"], record["status"]) == ("ok", 200)


@pytest.mark.parametrize(
    ("play", "message"),
    [
        pytest.param(plays_stream(event(chunk("hel")), event(ERROR)), "no memory left", id="an error, no [DONE]"),
        pytest.param(
            plays_stream(event(chunk("hel")), event(ERROR), b"data: [DONE]\n\n"),
            "no memory left",
            id="an error and [DONE]",
        ),
        pytest.param(
            plays_stream(event(chunk("hel")), event({"object": "error", "message": "flat one"}), b"data: [DONE]\n\n"),
            "flat one",
            id="a flat error",
        ),
        pytest.param(plays_stream(event(chunk("hel"))), "before the answer was complete", id="F11 a clean end"),
        pytest.param(plays_stream(event(chunk("hel")), last=False), "broke off", id="F11 cut inside the body"),
        pytest.param(plays_stream(event(chunk("hel")), last=False, end="reset"), "broke off", id="F11 reset"),
        pytest.param(
            plays_stream(event(chunk("hel")), b'data: {"cho', last=False), "broke off", id="F11 half an event"
        ),
        pytest.param(plays_stream(event(chunk("hel")), event(b"{not json")), "not what its API says", id="not JSON"),
    ],
)
async def test_gs5_a_stream_that_fails_in_the_middle_raises_once(fleet, one, play, message):
    one.play = play
    got: list[str] = []

    with pytest.raises(openai.APIError, match=message) as failed:
        await text_of(fleet.client(), into=got)

    assert got == ["hel"]
    assert failed.value.code is not None or failed.value.type is not None
    assert len(one.asked) == 1, "F10: what the client has seen a part of is never asked again"
    await fleet.idle()
    (record,) = await fleet.records(1)
    assert record["outcome"] == "failed"
    assert record["estimated"]
    assert record["completion_tokens"] == 1


async def test_f11_a_broken_stream_ends_in_exactly_one_error_and_one_done(fleet, one, chat):
    one.play = plays_stream(event(chunk("hel")), b'data: {"choices"', last=False)

    async with fleet.post("/v1/chat/completions", chat(stream=True)) as got:
        body = await got.read()

    events = body.split(b"\n\n")
    assert [e[:14] for e in events] == [b'data: {"id": "', b'data: {"error"', b"data: [DONE]", b""]
    assert set(json.loads(events[1][6:])["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        pytest.param(answer(ERROR, 400), 400, "no memory left", id="nested"),
        pytest.param(answer({"object": "error", "message": "flat one", "code": 400}, 400), 400, "flat one", id="flat"),
        pytest.param(answer({"error": "Unauthorized"}, 401), 502, "gateway's own key", id="an engine's 401"),
        pytest.param(answer({"detail": "Not Found"}, 404), 404, "Not Found", id="a detail"),
        pytest.param(answer(b"<html>no</html>", 500), 500, "<html>no</html>", id="HTML"),
        pytest.param(answer(b"", 500), 500, "status 500", id="nothing"),
        pytest.param(answer(ERROR, 501), 501, "no memory left", id="a capability that is missing"),
        pytest.param(answer(ERROR, 503), 503, "no memory left", id="503"),
        pytest.param(answer(ERROR, 200), 502, "no memory left", id="an error with status 200"),
        pytest.param(answer(b"hello", 200), 502, "not a JSON object", id="text with status 200"),
        pytest.param(answer(chat_answer(), 200, Content_Encoding="gzip"), 502, "failed", id="F27 not gzip as it says"),
        pytest.param(b"what is this\r\n\r\n", 502, "failed", id="not HTTP"),
        pytest.param(STREAM_HEAD + b"zz\r\n", 502, "not HTTP", id="not chunked as it says"),
        pytest.param(b"", 502, "failed", id="closed without a word"),
        pytest.param(answer(chat_answer())[:-20], 502, "broke off", id="cut inside the body"),
        pytest.param(answer(b"", 302, Location="/slots"), 502, "status 302", id="F33 a redirect"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["", "stream"])
async def test_an_engine_that_fails_before_its_answer_gives_a_status(fleet, one, sent, status, message, stream):
    one.play = plays_bytes(sent)

    with pytest.raises(openai.APIStatusError) as failed:
        await fleet.client().chat.completions.create(model="m", messages=HI, stream=stream)

    assert failed.value.status_code == status
    assert message in failed.value.message
    assert set(failed.value.body) == {"message", "type", "param", "code"}
    assert failed.value.request_id.startswith("req_")
    assert [r.path for r in one.received] == ["/v1/chat/completions"]
    await fleet.idle()


@pytest.mark.parametrize(
    ("first", "status"),
    [
        pytest.param(
            event({"error": {"message": "no memory left", "code": 400}}), 400, id="an error as the first event"
        ),
        pytest.param(event({"error": {"message": "no memory left"}}), 500, id="one without a code"),
        pytest.param(b"", 502, id="an end without an event"),
    ],
)
async def test_what_fails_before_the_first_event_has_a_status(fleet, one, first, status):
    one.play = plays_stream(first)

    with pytest.raises(openai.APIStatusError) as failed:
        await fleet.client().chat.completions.create(model="m", messages=HI, stream=True)

    assert failed.value.status_code == status


async def test_a_stream_that_is_asked_for_and_not_had_is_an_error(fleet, one):
    one.play = plays_bytes(answer(chat_answer()))

    with pytest.raises(openai.APIStatusError, match="something else"):
        await fleet.client().chat.completions.create(model="m", messages=HI, stream=True)


async def test_a_whole_answer_has_the_name_that_was_asked_for(fleet, one):
    got = await fleet.client().chat.completions.create(model="big", messages=HI)

    assert (got.model, got.choices[0].message.content) == ("big", "hello")
    assert one.asked[0].json == {"model": "m", "messages": HI}


async def test_completions_are_served_too(fleet, one):
    text = {"id": "1", "object": "text_completion", "created": 1, "model": "m", "usage": USAGE}
    whole = {**text, "choices": [{"index": 0, "text": "hello", "finish_reason": "stop"}]}
    one.play = plays_bytes(answer(whole), end="keep")
    got = await fleet.client().completions.create(model="big", prompt=[1, 2, 3])
    assert (got.model, got.choices[0].text) == ("big", "hello")
    assert one.asked[0].json == {"model": "m", "prompt": [1, 2, 3]}

    one.play = plays_stream(
        event({**whole, "usage": None}),
        event({**text, "choices": []}),
        b"data: [DONE]\n\n",
    )
    parts = [p async for p in await fleet.client().completions.create(model="big", prompt="x", stream=True)]

    assert [(p.model, p.choices[0].text) for p in parts] == [("big", "hello")]
    assert one.asked[1].path == "/v1/completions"


async def test_usage_that_was_asked_for_comes_last_and_else_not_at_all(fleet, one):
    client = fleet.client()
    asked = [
        p
        async for p in await client.chat.completions.create(
            model="m", messages=HI, stream=True, stream_options={"include_usage": True}
        )
    ]
    plain = [p async for p in await client.chat.completions.create(model="m", messages=HI, stream=True)]

    assert asked[-1].usage.total_tokens == 9
    assert asked[-1].choices == []
    assert all(p.usage is None and p.choices for p in plain)
    assert all(r.json["stream_options"] == {"include_usage": True} for r in one.asked)
    for record in await fleet.records(2):
        assert (record["prompt_tokens"], record["completion_tokens"], record["cached_tokens"]) == (7, 2, 3)
        assert not record["estimated"]


async def test_the_catalogs_limit_is_what_the_engine_is_sent(fleet, one):
    await fleet.put(model("m", replica("m/gpu/0", one.url), max_output=10))

    await fleet.client().chat.completions.create(model="m", messages=HI, max_tokens=100)

    assert one.received[-1].json["max_tokens"] == 10


async def test_a_chat_model_is_not_asked_for_embeddings(fleet, one):
    with pytest.raises(openai.BadRequestError, match="answered by models of `kind: embedding`"):
        await fleet.client().embeddings.create(model="big", input="x")

    assert one.received == []


async def test_f5_an_engine_that_answers_floats_does_not_give_empty_vectors(fleet, one):
    await fleet.put(model("m", replica("m/gpu/0", one.url), aliases=("big",), kind="embedding"))
    async with fleet.post("/v1/embeddings", {"model": "m", "input": "x", "encoding_format": "base64"}) as got:
        (item,) = (await got.json())["data"]

    assert isinstance(item["embedding"], str), "a client that asked for base64 takes a list for nothing"
    assert (await fleet.client().embeddings.create(model="big", input="x")).data[0].embedding == [0.5, -1.25, 3.0]
    floats = await fleet.client().embeddings.create(model="m", input=[[1, 2]], encoding_format="float")
    assert floats.data[0].embedding == [0.5, -1.25, 3.0]


async def test_f02_no_character_is_broken_however_it_is_cut(fleet, one):
    text = "日本語 🙂 é"
    whole = chat_events(text)
    one.play = plays_stream(*(whole[i : i + 1] for i in range(len(whole))))

    assert await text_of(fleet.client()) == text


async def test_f04_a_long_line_arrives_whole(fleet, one):
    text = "x" * 10_000_000
    one.play = plays_stream(chat_events(text))

    assert await text_of(fleet.client()) == text


@pytest.mark.parametrize("stream", [False, True], ids=["", "stream"])
async def test_f23_three_hundred_requests_run_at_the_same_time(fleet, one, chat, stream):
    release = asyncio.Event()

    async def play(connection, request):
        if stream:
            await connection.send(STREAM_HEAD + piece(event(chunk("a"))))
        await release.wait()
        await well_behaved(connection, request, begun=stream)

    one.play = play
    await fleet.put(model("m", replica("m/gpu/0", one.url, capacity=300)))

    async def ask(session: aiohttp.ClientSession) -> int:
        async with session.post(f"{fleet.url}/v1/chat/completions", json=chat(stream=stream)) as got:
            await got.read()
            return got.status

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [asyncio.create_task(ask(session)) for _ in range(300)]
        await until(lambda: one.at_work == 300, within_s=30)
        release.set()

        assert set(await asyncio.gather(*tasks)) == {200}
    await fleet.idle()
    assert {r["outcome"] for r in await fleet.records(300)} == {"ok"}
