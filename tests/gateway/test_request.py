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


CAPPED = 10


@pytest.mark.parametrize("path", sorted(request.STREAMING))
@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        pytest.param({}, {"max_tokens": 10}, id="none"),
        pytest.param({"max_tokens": None}, {"max_tokens": 10}, id="null"),
        pytest.param({"max_tokens": 100}, {"max_tokens": 10}, id="over"),
        pytest.param({"max_tokens": 10}, {"max_tokens": 10}, id="as many as there may be"),
        pytest.param({"max_tokens": 3}, {"max_tokens": 3}, id="fewer"),
        pytest.param({"max_tokens": 0}, {"max_tokens": 0}, id="nothing, which is the engine's to answer"),
        pytest.param({"max_tokens": -1}, {"max_tokens": 10}, id="endless, as llama-server takes it"),
        pytest.param({"max_tokens": 1e300}, {"max_tokens": 10}, id="a number beyond all"),
        pytest.param({"max_tokens": 10**400}, {"max_tokens": 10}, id="a whole number beyond all"),
        pytest.param({"max_tokens": 3.0}, {"max_tokens": 3.0}, id="a number with a point"),
        pytest.param({"max_completion_tokens": 100}, {"max_completion_tokens": 10, "max_tokens": 10}, id="new name"),
        pytest.param({"max_completion_tokens": 3}, {"max_completion_tokens": 3, "max_tokens": 3}, id="new name, fewer"),
        pytest.param({"n_predict": -1}, {"n_predict": 10, "max_tokens": 10}, id="llama-server's own name"),
        pytest.param(
            {"max_tokens": 5, "max_completion_tokens": 100, "n_predict": 70},
            {"max_tokens": 5, "max_completion_tokens": 10, "n_predict": 10},
            id="each of several",
        ),
        pytest.param(
            {"max_tokens": None, "max_completion_tokens": 4},
            {"max_tokens": 4, "max_completion_tokens": 4},
            id="null beside one that counts",
        ),
    ],
)
def test_no_answer_has_more_tokens_than_the_catalog_allows(path, asked, sent):
    ask = request.read(path, json.dumps({"model": "m", **asked}).encode())

    assert json.loads(ask.for_engine("m", CAPPED)) == {"model": "m", **sent}
    assert json.loads(ask.for_engine("m")) == {"model": "m", **asked}, "without a limit it is the client's affair"


@pytest.mark.parametrize("name", request.LIMITS)
@pytest.mark.parametrize("value", ["100", True, [1], {}, ""])
def test_a_limit_that_is_none_is_refused_where_there_is_one(name, value):
    # llama-server passes over what it cannot read, and answers without end.
    ask = request.read(CHAT, json.dumps({"model": "m", name: value}).encode())

    with pytest.raises(ApiError, match=name) as refused:
        ask.for_engine("m", CAPPED)

    assert (refused.value.status, refused.value.param) == (400, name)


def test_embeddings_have_no_limit():
    ask = request.read("/v1/embeddings", b'{"model":"m"}')

    assert ask.for_engine("m", CAPPED) == b'{"model":"m"}'


@given(st.dictionaries(st.sampled_from(request.LIMITS), st.none() | st.integers() | st.floats(allow_nan=False)))
def test_whatever_is_asked_no_engine_is_sent_more_than_the_limit(asked):
    ask = request.read(CHAT, json.dumps({"model": "m", **asked}).replace("Infinity", "1e300").encode())

    with contextlib.suppress(ApiError):
        sent = json.loads(ask.for_engine("m", CAPPED))
        assert 0 <= sent["max_tokens"] <= CAPPED
        assert all(sent[name] is None or 0 <= sent[name] <= CAPPED for name in asked)


@pytest.mark.parametrize(
    ("path", "kind", "fits"),
    [
        (CHAT, "chat", True),
        (CHAT, "completion", True),
        (CHAT, "embedding", False),
        ("/v1/completions", "rerank", False),
        ("/v1/embeddings", "embedding", True),
        ("/v1/embeddings", "chat", False),
    ],
)
def test_a_model_is_asked_only_what_its_kind_answers(path, kind, fits):
    if fits:
        request.check_kind(path, "m", kind)
        return

    with pytest.raises(ApiError, match=f"is a model of `kind: {kind}`, and {path}") as refused:
        request.check_kind(path, "m", kind)
    assert (refused.value.status, refused.value.code) == (400, "wrong_kind")


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
