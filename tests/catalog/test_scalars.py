"""Unquoted text is what YAML 1.2's core schema says it is."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog import scalars
from llmgw.catalog.parse import parse

INFINITY = float("inf")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *((text, text) for text in ("no", "on", "yes", "off", "y", "NO", "nULL", "tRUE", "None")),
        *((text, None) for text in ("", "~", "null", "Null", "NULL")),
        *((text, True) for text in ("true", "True", "TRUE")),
        *((text, False) for text in ("false", "False", "FALSE")),
        ("017", 17),
        ("0o17", 15),
        ("0o8", "0o8"),
        ("0x1F", 31),
        ("-0x1F", "-0x1F"),
        ("0b1", "0b1"),
        ("+12", 12),
        ("-12", -12),
        ("1_000", "1_000"),
        ("--1", "--1"),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1.10", 1.1),
        ("1.10.1", "1.10.1"),
        ("e3", "e3"),
        ("12:30:45", "12:30:45"),
        ("2026-01-02", "2026-01-02"),
        ("7e123456", INFINITY),
        (".inf", INFINITY),
        ("+.INF", INFINITY),
        ("-.Inf", -INFINITY),
        (".", "."),
        ("-", "-"),
        ("<<", "<<"),
        ("=", "="),
        ("٣", "٣"),
    ],
)
def test_a_plain_scalar_is_read_as_the_core_schema_says(written, read):
    found = scalars.resolve(written)

    assert found == read
    assert type(found) is type(read)


def test_not_a_number_is_a_number_to_yaml():
    assert math.isnan(scalars.resolve(".nan"))


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_that_json_writes_is_read_back(number):
    assert scalars.resolve(json.dumps(number)) == number


@given(st.text())
def test_any_text_is_resolved_or_is_too_long_a_number(text):
    assert isinstance(scalars.resolve(text), str | int | float | None)


@pytest.mark.parametrize("written", ["9" * 200_000, "-" + "9" * 200_000, "0x" + "f" * 200_000, "1." + "0" * 200_000])
def test_a_number_of_200000_digits_is_refused_before_it_is_computed(written):
    with pytest.raises(ValueError, match="a number of 20000"):
        scalars.resolve(written)


@pytest.mark.parametrize("written", ['"17"', "'17'", "|\n  17", ">\n  17"])
def test_quotes_and_blocks_make_text(written):
    assert parse(f"a: {written}\n".encode()).value["a"].strip() == "17"
