"""What the gateway itself says to clients: errors in the one shape they all raise, and the list of models."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec

from llmgw.core.table import Serving, TableModel
from llmgw.net.decoding import decode

DONE = b"data: [DONE]\n\n"

MAX_RETRY_S = 30.0
"""The Node client sleeps for whatever it is told: it is never told more."""

MAX_MESSAGE = 2000
"""Characters of an engine's message that a client is shown."""


class ApiError(Exception):
    """An answer that is not a success. All four keys are always there."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.kind, self.code, self.param = kind, code, param
        self.retry_after_s = retry_after_s
        self.retry = retry

    def body(self) -> bytes:
        return msgspec.json.encode(
            {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}},
        )

    def headers(self) -> dict[str, str]:
        """When, and whether, the client should come again."""
        said: dict[str, str] = {}
        if self.retry is not None:
            said["x-should-retry"] = "true" if self.retry else "false"
        if self.retry_after_s is not None:
            # Spread over a fifth, so that those who were refused together do not come back together.
            wait = min(MAX_RETRY_S, self.retry_after_s * random.uniform(0.9, 1.1))  # noqa: S311
            said["retry-after"] = str(max(1, round(wait)))
            said["retry-after-ms"] = str(max(1, round(wait * 1000)))
        return said

    def events(self) -> bytes:
        """The same inside a stream that has begun: the one form every client raises, and the end."""
        return b"data: " + self.body() + b"\n\n" + DONE


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code, retry=False)


def unauthorized(message: str) -> ApiError:
    return ApiError(401, message, kind="authentication_error", code="invalid_api_key", retry=False)


def not_allowed(name: str) -> ApiError:
    return ApiError(
        403,
        f"this key may not use the model {name!r}",
        kind="permission_error",
        code="model_not_allowed",
        param="model",
        retry=False,
    )


def unknown_model(name: str) -> ApiError:
    return ApiError(
        404,
        f"the model {name!r} does not exist; GET /v1/models lists those that do",
        code="model_not_found",
        param="model",
        retry=False,
    )


def unknown_path(method: str, path: str) -> ApiError:
    return ApiError(404, f"there is no {method} {path} here", code="unknown_path", retry=False)


def queue_full(name: str, retry_after_s: float) -> ApiError:
    return ApiError(
        429,
        f"{name} is full and as many requests as may wait for it are waiting",
        kind="rate_limit_error",
        code="queue_full",
        retry_after_s=retry_after_s,
    )


def unavailable(message: str, *, retry_after_s: float = 10.0, loading: bool = False) -> ApiError:
    return ApiError(
        503,
        message,
        kind="server_error",
        code="model_loading" if loading else "model_unavailable",
        retry_after_s=retry_after_s,
    )


def upstream_failed(message: str) -> ApiError:
    return ApiError(502, message, kind="upstream_error", code="upstream_error", retry=True)


def timed_out(message: str) -> ApiError:
    # Told not to retry: the engine may still be at work on the first one.
    return ApiError(504, message, kind="timeout_error", code="timeout", retry=False)


def internal() -> ApiError:
    return ApiError(500, "the gateway failed; its log says how", kind="server_error", code="internal_error")


def from_engine(status: int, body: bytes) -> ApiError:
    """An engine's error, whatever its shape, as one a client understands.

    llama-server nests it with a number for its code, SGLang does not nest it,
    vLLM's 401 has a string in the place of the object, and its 404 a `detail`.
    """
    found = _said(body)
    text = str(found.get("message") or body[:MAX_MESSAGE].decode(errors="replace") or f"status {status}")[:MAX_MESSAGE]
    kind = str(found.get("type") or "")
    if status in {401, 403}:
        return upstream_failed("the engine refused the gateway's own key")
    if kind == "exceed_context_size_error":
        return bad_request(text, code="context_length_exceeded")
    if status == 503:
        return unavailable(text, retry_after_s=5.0, loading="loading" in text.lower())
    if status < 400 or status > 501:
        return upstream_failed(text)
    code = found.get("code")
    return ApiError(
        status,
        text,
        kind=kind or ("invalid_request_error" if status < 500 else "server_error"),
        code=None if code is None else str(code),
        param=found["param"] if isinstance(found.get("param"), str) else None,
        # A capability that is missing stays missing; clients would ask three times for a 501.
        retry=None if status in {429, 500} else False,
    )


def from_event(data: bytes) -> ApiError:
    """An engine's error inside a stream, whose status was sent long ago."""
    code = _said(data).get("code")
    return from_engine(code if isinstance(code, int) and 400 <= code < 600 else 500, data)


def _said(body: bytes) -> dict[str, Any]:
    """The object in which an engine says what is wrong, or one made of what it says instead."""
    try:
        whole = decode(body, object)
    except msgspec.DecodeError:
        return {}
    if not isinstance(whole, dict):
        return {"message": str(whole)}
    error = whole.get("error", whole)
    if isinstance(error, str):
        return {"message": error}
    if not isinstance(error, dict):
        return {}
    return error if "message" in error else {**error, "message": error.get("detail")}


def model_list(models: Iterable[TableModel]) -> bytes:
    return msgspec.json.encode({"object": "list", "data": [_entry(m, m.name) for m in models if not m.unlisted]})


def model_entry(model: TableModel, name: str) -> bytes:
    """One model, under the name it was asked by."""
    return msgspec.json.encode(_entry(model, name))


def _entry(model: TableModel, name: str) -> dict[str, Any]:
    # Both spellings of the context length are read by clients, and so are `name` and the modalities.
    entry: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "llmgw",
        "name": model.name,
        "description": model.description,
        "context_length": model.context_length,
        "max_model_len": model.context_length,
        "max_completion_tokens": model.max_output,
        "architecture": {
            "input_modalities": ["text"],
            "output_modalities": ["embeddings" if model.kind == "embedding" else "text"],
        },
        "capabilities": [*{"chat": ["chat", "completion"]}.get(model.kind, [model.kind]), *model.capabilities],
        "aliases": list(model.aliases),
        "status": _status(model),
    }
    optional = {
        "tags": list(model.tags),
        "license": model.license,
        "replaced_by": model.replaced_by,
        "why": model.why,
    }
    return entry | {key: value for key, value in optional.items() if value}


def _status(model: TableModel) -> str:
    states = {r.state for r in model.replicas}
    if states & {Serving.READY, Serving.SILENT}:
        return "ready"
    if Serving.STARTING in states:
        return "loading"
    return "cold" if model.state == "running" and not model.why else "unavailable"
