"""docs/gateway.md says what is."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
from pathlib import Path

import pytest

from llmgw.gateway import openai, request
from llmgw.gateway.bounds import Bounds
from llmgw.gateway.usage import Record, Usage

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
ROWS = re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("field", dataclasses.fields(Bounds), ids=lambda f: f.name)
def test_every_bound_is_in_the_table_with_its_default(field):
    (default,) = re.findall(rf"^\| `{field.name}` \| ([0-9.]+) \|", section("Bounds"), re.MULTILINE)

    assert float(default) == field.default


ERRORS = [
    openai.bad_request("x"),
    openai.unauthorized("x"),
    openai.not_allowed("m"),
    openai.unknown_model("m"),
    openai.unknown_path("GET", "/"),
    openai.queue_full("m", 1),
    openai.internal(),
    openai.upstream_failed("x"),
    openai.unavailable("x"),
    openai.unavailable("x", loading=True),
    openai.timed_out("x"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: f"{e.status} {e.code}")
def test_every_error_is_in_the_table(error):
    code = f"`{error.code}`" if error.code else "null"
    retry = "after a time" if error.retry_after_s else {True: "yes", False: "no", None: ""}[error.retry]

    start = f"{error.status} | `{error.kind}` | {code} | {retry}"
    assert any(row.startswith(start) for row in ROWS)


def test_every_constructor_of_an_error_is_among_those():
    made = {name for name, f in inspect.getmembers(openai, inspect.isfunction) if "-> ApiError" in inspect.getsource(f)}

    assert made == {
        "bad_request",
        "from_engine",
        "from_event",
        "internal",
        "not_allowed",
        "queue_full",
        "timed_out",
        "unauthorized",
        "unavailable",
        "unknown_model",
        "unknown_path",
        "upstream_failed",
    }


@pytest.mark.parametrize("path", sorted(request.PATHS))
def test_every_path_is_in_the_table(path):
    assert [r for r in ROWS if r.startswith(f"`POST {path}` | ")]


def test_every_field_of_a_record_is_in_the_table_in_its_order(caplog):
    caplog.set_level(logging.INFO, "llmgw")
    Usage().close(Record(request_id="r", path="/", started=0.0), 1.0)

    plain = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}
    said = [name for name in vars(caplog.records[0]) if name not in plain]
    assert re.findall(r"^\| `(\w+)` \|", section("One record a request"), re.MULTILINE) == said
