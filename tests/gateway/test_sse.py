"""Server-sent events out of bytes that were cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from llmgw.gateway.sse import Comment, EventReader, TooLong


def events(*pieces: bytes) -> list[bytes]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.end()


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(b'data: {"a":1}\n\n', [b'{"a":1}'], id="one event"),
        pytest.param(b'data:{"a":1}\n\n', [b'{"a":1}'], id="F03 no space after the colon"),
        pytest.param(b"data:  two\n\n", [b" two"], id="only one space is taken off"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"], id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="CR"),
        pytest.param(b'data: {"a":\ndata: 1}\n\n', [b'{"a": 1}'], id="two data lines of one event come as one"),
        pytest.param(b": ping\n\ndata: a\n\n", [b": ping", b"a"], id="F07 a comment is a comment"),
        pytest.param(b":\n\n", [b":"], id="an empty comment too"),
        pytest.param(b"id: 1\nretry: 5\ndata: a\n\n", [b"a"], id="F07 id and retry are dropped"),
        pytest.param(b"retry: 100\n\n", [], id="retry alone is nothing"),
        pytest.param(b"data:\n\ndata: \n\n", [], id="empty data is nothing"),
        pytest.param(b"event: x\ndata: a\n\n", [b"a"], id="an event's name is dropped"),
        pytest.param(b'data: "data: [DONE]"\n\n', [b'"data: [DONE]"'], id="only the start of a line counts"),
        pytest.param(b"data: a\n\ndata: b", [b"a", b"b"], id="the end of the stream ends the event"),
        pytest.param(b"\n\n\n", [], id="blank lines are nothing"),
    ],
)
def test_what_an_event_is(sent, expected):
    assert events(sent) == expected


def test_a_comment_is_told_from_data_that_looks_like_one():
    comment, data = events(b": x\n\ndata: : x\n\n")

    assert isinstance(comment, Comment)
    assert not isinstance(data, Comment)


STREAM = (
    ': ping\r\n\r\ndata: {"text":"日本語 🙂 data: [DONE]"}\r\n\r\nid: 4\r\ndata:{"a":\r\ndata:1}\r\n\r\nretry: 3\n\n'
    "data: crs only\r\rdata:\n\ndata: [DONE]\n\n"
).encode()


@for_each({f"cut at {at}": at for at in range(len(STREAM) + 1)})
def test_f01_f02_a_cut_at_any_byte_changes_nothing(at):
    assert events(STREAM[:at], STREAM[at:]) == events(STREAM)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_f01_many_cuts_change_nothing(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]

    assert events(*(STREAM[a:b] for a, b in itertools.pairwise(edges))) == events(STREAM)


def test_only_the_line_feed_right_after_a_carriage_return_belongs_to_it():
    assert events(b"data: a\r", b"\n", b"\n", b"data: b") == [b"a", b"b"]


@given(st.lists(st.sampled_from([b"data: x", b"data:", b"\r", b"\n", b":c", b"id: 1", b"y"]), max_size=40))
def test_any_cut_of_any_stream_changes_nothing(parts):
    whole = b"".join(parts)

    assert events(*parts) == events(whole) == events(*(whole[i : i + 1] for i in range(len(whole))))


def test_f04_a_line_of_ten_megabytes_is_one_event():
    text = b"x" * 10_000_000
    sent = b"data: " + text + b"\n\n"

    assert events(*(sent[i : i + 65_536] for i in range(0, len(sent), 65_536))) == [text]


@pytest.mark.parametrize("piece", [b"data: not ended yet", b"data: one more line of it\n"], ids=["a line", "lines"])
def test_an_event_that_does_not_end_is_not_collected_for_ever(piece):
    reader = EventReader(limit=1000)
    for _ in range(1000 // len(piece)):
        reader.feed(piece)

    with pytest.raises(TooLong):
        reader.feed(piece * 100)
