"""What the gateway reads of a request, and what it leaves as it is."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.gateway import request
from llmgw.gateway.openai import ApiError

CHAT = "/v1/chat/completions"


def test_only_the_name_changes_and_every_other_member_goes_on_byte_for_byte():
    body = b'{ "a":1.10,"model" : "big" ,"x":{"model": "big",  "deep":[1E2,null]},"logprobs":null,"s":"\\u00e9"}'

    sent = request.read(CHAT, body).for_engine("m")

    assert sent == b'{"a":1.10,"model":"m","x":{"model": "big",  "deep":[1E2,null]},"logprobs":null,"s":"\\u00e9"}'


def test_a_name_given_twice_cannot_mean_one_model_here_and_another_in_the_engine():
    ask = request.read(CHAT, b'{"model":"cheap","model":"dear"}')

    assert ask.name == "dear"
    assert ask.for_engine("m") == b'{"model":"m"}'


def test_a_name_with_escapes_is_the_name():
    ask = request.read(CHAT, rb'{"mod\u0065l":"a\/b"}')

    assert ask.name == "a/b"
    assert ask.for_engine("m") == b'{"model":"m"}'


@pytest.mark.parametrize(
    ("options", "wants", "sent"),
    [
        pytest.param(None, False, {"include_usage": True}, id="none"),
        pytest.param({}, False, {"include_usage": True}, id="empty"),
        pytest.param({"include_usage": False}, False, {"include_usage": True}, id="not wanted"),
        pytest.param({"include_usage": True}, True, {"include_usage": True}, id="wanted"),
        pytest.param({"other": [1]}, False, {"other": [1], "include_usage": True}, id="others stay"),
    ],
)
def test_f16_a_stream_is_always_asked_for_its_usage(options, wants, sent):
    body = {"model": "m", "stream": True, "stream_options": options}

    ask = request.read(CHAT, json.dumps(body).encode())

    assert ask.stream
    assert ask.wants_usage is wants
    assert json.loads(ask.for_engine("m"))["stream_options"] == sent


def test_without_a_stream_there_are_no_stream_options():
    ask = request.read(CHAT, b'{"model":"m","stream":null}')

    assert not ask.stream
    assert ask.for_engine("m") == b'{"model":"m","stream":null}'


def test_embeddings_are_no_stream_whatever_the_body_says():
    ask = request.read("/v1/embeddings", b'{"model":"m","stream":true,"encoding_format":"base64"}')

    assert not ask.stream
    assert ask.as_base64


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "not a JSON object", id="empty"),
        pytest.param(b"hello", "not a JSON object", id="text"),
        pytest.param(b"[1]", "not a JSON object", id="a list"),
        pytest.param(b'{"model":"m"', "not a JSON object", id="half"),
        pytest.param(b'{"model":"m"} {}', "not a JSON object", id="two"),
        pytest.param(b'{"model":"m","x":NaN}', "not a JSON object", id="NaN"),
        pytest.param(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "not a JSON object", id="too deep"),
        pytest.param(b"{}", "names no model", id="no model"),
        pytest.param(b'{"model":null}', "names no model", id="null"),
        pytest.param(b'{"model":""}', "names no model", id="no name"),
        pytest.param(b'{"model":7}', "model: ", id="a number"),
        pytest.param(b'{"model":"m","stream":"yes"}', "stream: ", id="stream is no boolean"),
        pytest.param(b'{"model":"m","stream":true,"stream_options":[]}', "stream_options: ", id="options are a list"),
        pytest.param(b'{"model":"\xff"}', "model: ", id="not UTF-8"),
    ],
)
def test_f37_what_is_wrong_with_a_body_is_said_and_is_never_a_failure_of_ours(body, message):
    with pytest.raises(ApiError, match=message) as refused:
        request.read(CHAT, body)

    assert refused.value.status == 400
    assert refused.value.headers() == {"x-should-retry": "false"}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_body_is_anything_but_understood_or_refused(body):
    with contextlib.suppress(ApiError):
        request.read(CHAT, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
KNOWN = {"model", "stream", "stream_options", "encoding_format"}


@given(st.dictionaries(st.text().filter(lambda name: name not in KNOWN), JSON, max_size=5), st.text(min_size=1))
def test_whatever_else_a_body_says_the_engine_is_told(more, name):
    sent = request.read(CHAT, json.dumps({**more, "model": name}).encode()).for_engine("m")

    assert json.loads(sent) == {**more, "model": "m"}
