"""What the gateway says to clients in its own words."""

from __future__ import annotations

import json

import pytest

from fakes.table_server import model, replica
from llmgw.core.table import Serving
from llmgw.gateway import openai

EVERY = [
    (openai.bad_request("x"), 400, "invalid_request_error", None),
    (openai.unauthorized("x"), 401, "authentication_error", "invalid_api_key"),
    (openai.not_allowed("m"), 403, "permission_error", "model_not_allowed"),
    (openai.unknown_model("m"), 404, "invalid_request_error", "model_not_found"),
    (openai.queue_full("m", 5), 429, "rate_limit_error", "queue_full"),
    (openai.internal(), 500, "server_error", "internal_error"),
    (openai.upstream_failed("x"), 502, "upstream_error", "upstream_error"),
    (openai.unavailable("x"), 503, "server_error", "model_unavailable"),
    (openai.unavailable("x", loading=True), 503, "server_error", "model_loading"),
    (openai.timed_out("x"), 504, "timeout_error", "timeout"),
]


@pytest.mark.parametrize(("error", "status", "kind", "code"), EVERY, ids=lambda v: str(v) if isinstance(v, int) else "")
def test_an_error_has_all_four_keys_and_the_code_is_text(error, status, kind, code):
    body = json.loads(error.body())["error"]

    assert error.status == status
    assert set(body) == {"message", "type", "param", "code"}
    assert (body["type"], body["code"]) == (kind, code)


@pytest.mark.parametrize("after_s", [0, 0.2, 1, 10, 30, 300])
def test_nobody_is_told_to_wait_longer_than_30_s_or_not_at_all(after_s):
    said = openai.unavailable("x", retry_after_s=after_s).headers()

    assert 1 <= int(said["retry-after"]) <= 30
    assert 1 <= int(said["retry-after-ms"]) <= 30_000


def test_those_who_are_refused_together_are_not_told_to_come_back_together():
    said = {openai.queue_full("m", 10).headers()["retry-after-ms"] for _ in range(20)}

    assert len(said) > 10


@pytest.mark.parametrize(
    ("error", "retry"),
    [(openai.bad_request("x"), "false"), (openai.timed_out("x"), "false"), (openai.upstream_failed("x"), "true")],
)
def test_clients_are_told_whether_to_try_again(error, retry):
    assert error.headers()["x-should-retry"] == retry


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(
            400,
            {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_ctx": 5}},
            (400, "invalid_request_error", "context_length_exceeded", "too long"),
            id="llama-server, too long",
        ),
        pytest.param(
            501,
            {"error": {"code": 501, "message": "no embeddings", "type": "not_supported_error"}},
            (501, "not_supported_error", "501", "no embeddings"),
            id="llama-server, a capability it lacks",
        ),
        pytest.param(
            503,
            {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
            (503, "server_error", "model_loading", "Loading model"),
            id="llama-server, loading",
        ),
        pytest.param(
            503,
            {"object": "error", "message": "The request queue is full.", "code": 503},
            (503, "server_error", "model_unavailable", "The request queue is full."),
            id="SGLang, full",
        ),
        pytest.param(
            400,
            {"object": "error", "message": "flat", "type": "BadRequestError", "param": "top_p", "code": 400},
            (400, "BadRequestError", "400", "flat"),
            id="SGLang, flat",
        ),
        pytest.param(
            401,
            {"error": "Unauthorized"},
            (502, "upstream_error", "upstream_error", "the engine refused the gateway's own key"),
            id="an engine's 401 is not the client's",
        ),
        pytest.param(404, {"detail": "Not Found"}, (404, "invalid_request_error", None, "Not Found"), id="vLLM, path"),
        pytest.param(422, [1, 2], (422, "invalid_request_error", None, "[1, 2]"), id="a list"),
        pytest.param(500, b"oops", (500, "server_error", None, "oops"), id="text"),
        pytest.param(500, b"", (500, "server_error", None, "status 500"), id="nothing"),
        pytest.param(500, b"\xff\xfe", (500, "server_error", None, "\ufffd\ufffd"), id="not text"),
        pytest.param(502, b"x", (502, "upstream_error", "upstream_error", "x"), id="a proxy's"),
        pytest.param(302, b"x", (502, "upstream_error", "upstream_error", "x"), id="a redirect is not followed"),
    ],
)
def test_whatever_shape_an_engines_error_has_the_client_gets_ours(status, body, expected):
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()

    error = openai.from_engine(status, sent)

    assert (error.status, error.kind, error.code, error.message) == expected
    assert set(json.loads(error.body())["error"]) == {"message", "type", "param", "code"}


def test_a_long_message_of_an_engine_is_cut():
    error = openai.from_engine(400, json.dumps({"error": {"message": "x" * 100_000}}).encode())

    assert len(error.message) == openai.MAX_MESSAGE


def test_a_model_says_what_clients_read():
    of = model(
        "qwen",
        replica("qwen/gpu/0", "http://secret"),
        aliases=("coder",),
        description="Code in any language.",
        max_output=512,
    )

    (entry,) = json.loads(openai.model_list([of]))["data"]

    assert entry == {
        "id": "qwen",
        "object": "model",
        "created": 1_790_000_000,
        "owned_by": "llmgw",
        "name": "qwen",
        "description": "Code in any language.",
        "context_length": 2048,
        "max_model_len": 2048,
        "max_completion_tokens": 512,
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "capabilities": ["chat", "completion"],
        "aliases": ["coder"],
        "status": "ready",
    }


@pytest.mark.parametrize(
    ("states", "more", "status"),
    [
        (["ready", "starting"], {}, "ready"),
        (["silent"], {}, "ready"),
        (["starting"], {"why": "on its way"}, "loading"),
        ([], {}, "cold"),
        ([], {"why": "no node"}, "unavailable"),
        (["draining"], {"state": "stopped"}, "unavailable"),
    ],
)
def test_a_models_status_is_one_word(states, more, status):
    of = model("m", *(replica(f"m/p/{n}", "http://x", state=Serving(s)) for n, s in enumerate(states)), **more)

    assert json.loads(openai.model_entry(of, "m"))["status"] == status
