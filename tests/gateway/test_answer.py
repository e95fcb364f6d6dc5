"""What becomes of an engine's whole answer."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from llmgw.gateway import answer
from llmgw.gateway.openai import ApiError


def test_the_answer_has_the_name_that_was_asked_for_and_is_else_as_it_came():
    sent = b'{"id":"x", "model":"m" ,"choices":[ {"model":"m"} ],"usage":{"prompt_tokens":3,"completion_tokens":4}}'

    body, tokens = answer.rewrite(sent, model="big")

    assert body == (
        b'{"id":"x","model":"big","choices":[ {"model":"m"} ],"usage":{"prompt_tokens":3,"completion_tokens":4}}'
    )
    assert (tokens.prompt_tokens, tokens.completion_tokens) == (3, 4)


@pytest.mark.parametrize("usage", [b"", b',"usage":null', b',"usage":"a lot"', b',"usage":{"prompt_tokens":"x"}'])
def test_usage_that_is_not_there_or_makes_no_sense_is_unknown_and_not_zero(usage):
    body, tokens = answer.rewrite(b'{"choices":[]' + usage + b"}", model="m")

    assert tokens is None
    assert json.loads(body)["model"] == "m"


def floats(body: bytes) -> list:
    return [item["embedding"] for item in json.loads(body)["data"]]


def test_floats_become_base64_where_that_was_asked_for():
    sent = json.dumps({"data": [{"index": 0, "embedding": [0.5, -1.25, 3.0]}, {"index": 1, "embedding": []}]}).encode()

    body, _ = answer.rewrite(sent, model="m", as_base64=True)

    first, second = floats(body)
    assert struct.unpack("<3f", base64.b64decode(first)) == (0.5, -1.25, 3.0)
    assert second == ""


def test_base64_and_floats_that_were_asked_for_stay():
    as_base64 = b'{"data":[{"embedding":"AAAAPw=="}]}'
    as_floats = b'{"data":[{"embedding":[0.5]}]}'

    assert floats(answer.rewrite(as_base64, model="m", as_base64=True)[0]) == ["AAAAPw=="]
    assert floats(answer.rewrite(as_floats, model="m")[0]) == [[0.5]]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        pytest.param(b"<html>", "not a JSON object", id="not JSON"),
        pytest.param(b"[]", "not a JSON object", id="not an object"),
        pytest.param(b'{"error":{"message":"no memory","code":500}}', "no memory", id="an error with status 200"),
        pytest.param(b'{"object":"error","message":"flat"}', "flat", id="a flat one"),
        pytest.param(b'{"error":"text"}', "text", id="a string"),
    ],
)
def test_an_error_behind_status_200_is_an_error(sent, message):
    with pytest.raises(ApiError, match=message) as failed:
        answer.rewrite(sent, model="m")

    assert failed.value.status == 502


@pytest.mark.parametrize("data", [b"7", b'[{"embedding":["x"]}]', b'[{"embedding":[1e999]}]', b"[7]"])
def test_embeddings_that_are_none_are_an_error(data):
    with pytest.raises(ApiError, match="not lists of numbers"):
        answer.rewrite(b'{"data":' + data + b"}", model="m", as_base64=True)


def test_an_answer_with_nan_reaches_the_client_as_json():
    body, _ = answer.rewrite(b'{"choices":[{"logprob":NaN}]}', model="m")

    assert json.loads(body) == {"choices": [{"logprob": None}], "model": "m"}
