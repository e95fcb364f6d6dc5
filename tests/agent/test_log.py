"""Logs: one JSON object a line, and text on a terminal."""

from __future__ import annotations

import io
import json
import logging

from llmgw_agent import log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_is_one_json_object_with_the_extra_fields():
    out = io.StringIO()
    log.setup(stream=out)

    logging.getLogger("x").info("coder is ready", extra={"node": "n1", "model": "coder"})

    line = json.loads(out.getvalue())
    assert {k: v for k, v in line.items() if k != "time"} == {
        "level": "info",
        "event": "coder is ready",
        "model": "coder",
        "node": "n1",
    }
    assert line["time"].endswith("Z")


def test_a_newline_in_an_event_does_not_make_a_second_line():
    out = io.StringIO()
    log.setup(stream=out)

    logging.getLogger("x").warning("two\nlines")

    assert out.getvalue().count("\n") == 1


def test_a_traceback_is_a_field_of_its_line():
    out = io.StringIO()
    log.setup(stream=out)

    try:
        {}["a bug"]
    except KeyError:
        logging.getLogger("x").exception("a pass failed")

    assert "KeyError: 'a bug'" in json.loads(out.getvalue())["traceback"]


def test_a_terminal_gets_text():
    out = Terminal()
    log.setup(stream=out)

    logging.getLogger("x").info("coder is ready", extra={"node": "n1"})

    assert out.getvalue().endswith("info    coder is ready node=n1\n")


def test_every_request_of_an_http_client_is_not_news():
    out = io.StringIO()
    log.setup(stream=out)

    logging.getLogger("httpx").info("HTTP Request: GET /")

    assert out.getvalue() == ""
