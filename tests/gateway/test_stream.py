"""What becomes of an engine's stream: names, usage, errors, and the end."""

from __future__ import annotations

import json

import pytest

from fakes.quirks import USAGE, chat_events, chunk, event, usage_chunk
from llmgw.gateway.stream import ClientStream


def passed(*pieces: bytes, broken: str = "", model: str = "m", wants_usage: bool = False) -> tuple[bytes, ClientStream]:
    through = ClientStream(model=model, wants_usage=wants_usage)
    out = b"".join(through.feed(piece) for piece in pieces if not through.over)
    return out + through.end(broken), through


def chunks(out: bytes) -> list:
    return [json.loads(e.removeprefix(b"data: ")) for e in out.split(b"\n\n") if e.startswith(b"data: {")]


def test_an_ordinary_stream_goes_through_without_the_usage_that_was_not_asked_for():
    out, through = passed(chat_events("hel", "lo"))

    assert out == chat_events("hel", "lo", usage=False)
    assert through.failure is None
    assert (through.tokens.prompt_tokens, through.tokens.completion_tokens) == (7, 2)
    assert through.tokens.prompt_tokens_details.cached_tokens == 3


def test_usage_goes_to_whoever_asked_for_it():
    out, _ = passed(chat_events("a"), wants_usage=True)

    assert out == chat_events("a")


def test_every_chunk_has_the_name_that_was_asked_for_and_is_else_as_it_came():
    more = {"logprobs": None, "nested": {"model": "m", "text": '"model":"m"'}}
    sent = event(chunk("a", **more))

    out, _ = passed(sent, event(chunk(finish="stop")), model='my/"alias"')

    first = chunks(out)[0]
    assert first.pop("model") == 'my/"alias"'
    assert first == {k: v for k, v in chunk("a", **more).items() if k != "model"}


SENT = b": ping\n\n" + chat_events("日本", "語 🙂", "data: [DONE]", '"finish_reason":"stop"')


@pytest.mark.parametrize("wants_usage", [False, True])
def test_f01_f02_a_cut_at_any_byte_gives_the_same_bytes_and_the_same_usage(wants_usage):
    whole, expected = passed(SENT, model="other", wants_usage=wants_usage)

    for at in range(len(SENT) + 1):
        out, through = passed(SENT[:at], SENT[at:], model="other", wants_usage=wants_usage)
        assert out == whole, f"cut at {at}"
        assert (through.tokens, through.deltas, through.events) == (expected.tokens, expected.deltas, expected.events)


def test_f11_a_break_at_any_byte_before_the_answer_is_complete_is_one_failure_and_whole_events():
    complete = SENT.index(b'"finish_reason": "stop"') + len(b'"finish_reason": "stop"')

    for at in range(complete):
        out, through = passed(SENT[:at], broken="it was reset")
        assert through.failure is not None, f"broken at {at}"
        assert through.cut
        assert b"[DONE]\n\n" not in out.replace(b'data: [DONE]"', b"")
        assert out.endswith(b"\n\n") or not out
        assert all(c["choices"] for c in chunks(out))


@pytest.mark.parametrize(
    ("sent", "complete"),
    [
        pytest.param(chat_events("a", done=False), True, id="a finish reason and no [DONE]"),
        pytest.param(event(chunk("a")) + b"data: [DONE]\n\n", True, id="[DONE] and no finish reason"),
        pytest.param(event(chunk("a")) + b"data: [DONE]", True, id="[DONE] without its line end"),
        pytest.param(event(chunk("a")), False, id="F11 neither"),
        pytest.param(event(chunk("a")) + b'data: {"choi', False, id="F11 half an event"),
        pytest.param(b"", False, id="nothing at all"),
        pytest.param(b": ping\n\n", False, id="only comments"),
    ],
)
def test_when_a_stream_that_just_ends_is_complete(sent, complete):
    out, through = passed(sent)

    assert (through.failure is None) == complete
    assert out.endswith(b"data: [DONE]\n\n") == complete


def test_a_break_after_every_choice_has_finished_loses_nothing():
    out, through = passed(event(chunk("a")) + event(chunk(finish="length")), broken="it was reset")

    assert through.failure is None
    assert out.endswith(b"data: [DONE]\n\n")


def test_a_choice_that_has_not_finished_makes_it_incomplete():
    second = chunk("b")
    second["choices"][0]["index"] = 1

    _, through = passed(event(chunk("a")) + event(second) + event(chunk(finish="stop")))

    assert through.failure is not None


def test_nothing_goes_on_after_done():
    out, through = passed(chat_events("a") + event(chunk("more")), event(chunk("and more")))

    assert out == chat_events("a", usage=False)
    assert through.over


@pytest.mark.parametrize(
    ("sent", "message", "code"),
    [
        pytest.param(
            {"error": {"message": "no memory", "type": "server_error", "code": 500}}, "no memory", "500", id="nested"
        ),
        pytest.param({"object": "error", "message": "flat", "code": 400}, "flat", "400", id="flat, as SGLang has it"),
        pytest.param({"error": "a string"}, "a string", None, id="a string"),
        pytest.param(b"not json", "not what its API says", "upstream_error", id="not JSON"),
        pytest.param(b"[1]", "not what its API says", "upstream_error", id="not an object"),
    ],
)
def test_an_error_in_the_stream_is_the_failure_and_the_end(sent, message, code):
    out, through = passed(event(chunk("a")) + event(sent) + event(chunk("b")))

    assert out == event_as_sent(chunk("a"))
    assert message in through.failure.message
    assert through.failure.code == code
    assert not through.cut


def event_as_sent(value) -> bytes:
    return passed(event(value))[0]


@pytest.mark.parametrize("shape", [{"choices": None}, {}, {"choices": []}], ids=["null", "absent", "empty"])
def test_the_usage_chunk_always_has_a_list_of_choices(shape):
    sent = {k: v for k, v in usage_chunk().items() if k != "choices"} | shape

    out, _ = passed(event(chunk("a")) + event(chunk(finish="stop")) + event(sent), wants_usage=True)

    assert chunks(out)[-1]["choices"] == []
    assert chunks(out)[-1]["usage"] == USAGE


@pytest.mark.parametrize(
    "sent",
    [{**chunk(), "choices": []}, {"status": "loading"}, {**chunk(), "choices": [], "usage": None}],
    ids=["no choices", "an event of its own", "usage that is null"],
)
def test_a_chunk_without_choices_and_usage_is_dropped(sent):
    out, _ = passed(event(sent) + chat_events("a"), wants_usage=True)

    assert out == chat_events("a")


def test_usage_inside_a_chunk_of_text_is_taken_out_and_counted():
    out, through = passed(event(chunk("a", usage=USAGE)) + event(chunk(finish="stop", usage=None)))

    assert all("usage" not in c for c in chunks(out))
    assert through.tokens.prompt_tokens == 7


def test_an_engine_may_say_null_where_it_knows_nothing():
    sent = b'data: {"model":null,"object":null,"choices":[{"index":null,"delta":{},"finish_reason":"stop"}]}\n\n'

    out, through = passed(sent)

    assert through.failure is None
    assert chunks(out)[0]["model"] == "m"


def test_nan_and_half_a_surrogate_pair_are_made_json():
    out, through = passed(
        b'data: {"model":"x","choices":[{"index":0,"delta":{"content":"\\ud83d"},"logprob":NaN}]}\n\n'
    )

    assert through.events == 1
    assert b'"model":"m"' in out
    assert b'"content": "?"' in out
    assert b'"logprob": null' in out


def test_an_event_that_does_not_end_is_a_failure(monkeypatch):
    monkeypatch.setattr("llmgw.gateway.sse.EventReader.__init__.__defaults__", (1000,))
    _, through = passed(b"data: " + b"x" * 2000)

    assert "does not end" in through.failure.message
