"""What an engine, a file or control says may be anything: each reader has one answer for what it is not."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmgw_agent import dossier, durable, process, weights
from llmgw_agent.dossier import Fault
from llmgw_agent.engines import llama_server
from llmgw_agent.engines.ask import Endpoint, NoAnswerError, Reply, _reply, ask
from llmgw_agent.engines.llamacpp import LlamaCpp
from llmgw_agent.errors import Refused
from llmgw_agent.fetch import failures
from llmgw_agent.orders import OrderBook
from llmgw_agent.probe import amd, nvidia
from llmgw_agent.process import Exit
from llmgw_agent.protocol import Orders
from llmgw_agent.records import Record, Records, slug
from llmgw_agent.settings import read_allow

DEEP = b"[" * 100_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

ANSWERS = {
    "nothing": b"",
    "one word": b"garbage\r\n\r\n",
    "an empty status line": b"\r\n\r\n",
    "bytes": bytes(range(256)),
    "deep JSON": OK % len(DEEP) + DEEP,
    "a number of 5000 digits": OK % 5000 + b"9" * 5000,
    "half a surrogate": OK % 25 + b'{"data":[{"id":"\\ud800"}]}',
    "a length below zero": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc",
    "a length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc",
    "chunks of no size": CHUNKED + b"zz\r\n",
    "chunks below zero": CHUNKED + b"-5\r\nabc",
    "a line without an end": b"A" * (9 << 20),
}

# Bytes of the kinds that readers look for, in any order: pure noise seldom gets past the first byte.
HTTP = [b"HTTP/1.1 ", b"200", b" OK", b"\r\n", b"\r\n\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked", b"3"]
JSON = [b"[", b"]", b"{", b"}", b'"a"', b":", b",", b"-", b"1e+-", b"NaN", b'"\\ud800"', b"9" * 30, b"[" * 3000]
SOUP = st.lists(
    st.sampled_from([*HTTP, *JSON, b"\xff", b"\x00"]) | st.binary(max_size=8),
    max_size=12,
).map(b"".join)


@asynccontextmanager
async def answering(data: bytes):
    """An engine that answers every question with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1], "k", "m", "chat")


@pytest.mark.parametrize("answer", [pytest.param(a, id=name) for name, a in ANSWERS.items()])
async def test_an_engine_that_answers_garbage_has_not_answered(answer):
    async with answering(answer) as at:
        with pytest.raises(NoAnswerError):
            await LlamaCpp().vitals(at, within_s=20)
        with suppress(NoAnswerError):
            assert await LlamaCpp().work(at, within_s=20) is None
        with suppress(Fault):
            assert not await LlamaCpp().ready(at, within_s=20)


async def test_an_answer_that_ends_with_its_connection_is_read_to_its_end():
    whole = b"x" * 3_000_000
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n" + whole) as at:
        assert len((await ask(at, "/metrics", within_s=20)).text) == len(whole)


@pytest.mark.parametrize("figure", ["1e+-", "1e999", "-", "+.", "1e5e5"])
async def test_a_metric_that_is_no_number_is_no_speed(figure):
    text = f"llamacpp:tokens_predicted_total {figure}\nllamacpp:tokens_predicted_seconds_total {figure}\n".encode()
    async with answering(OK % len(text) + text) as at:
        assert await LlamaCpp().work(at, within_s=20) is None


async def test_a_counter_that_is_no_number_is_no_sign_of_life():
    # NaN is unlike itself: an engine that stands still would seem to move for ever.
    text = b'[{"is_processing": true, "id_task": 1e99, "next_token": {"n_decoded": [1]}}]'
    async with answering(OK % len(text) + text) as at:
        first, second = [await LlamaCpp().vitals(at, within_s=20) for _ in range(2)]

    assert (first.busy, first.mark) == (1, ((None, None, None),))
    assert second == first


@given(SOUP)
def test_whatever_comes_over_a_connection_is_an_answer_or_none(data):
    async def read() -> None:
        reader = asyncio.StreamReader(limit=1 << 16)
        reader.feed_data(data)
        reader.feed_eof()
        with suppress(EOFError, ValueError, asyncio.LimitOverrunError):  # what `ask` makes NoAnswerError of
            assert (await _reply(reader)).status < 1000

    asyncio.run(read())


@given(SOUP)
def test_whatever_an_answer_carries_has_a_value_or_none(data):
    value = Reply(200, data.decode(errors="replace")).value

    msgspec.json.encode(value)  # so it can be written down, and reported


@given(SOUP)
def test_a_damaged_file_is_as_none(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("state")
    (folder / "m@1").mkdir()
    (folder / "w").mkdir()
    for file in ("m@1/record.json", "m@1/key", "orders.json", f"w/{weights.MARKER}"):
        (folder / file).write_bytes(data)

    assert Records(folder).load() == []
    assert Records(folder).engine_key(("m", 1)).isascii()
    assert OrderBook(folder / "orders.json").obeyed == (0, 0)
    assert not weights.whole(folder / "w")


@pytest.mark.parametrize("kind", [Orders, Record])
@given(data=SOUP)
def test_what_is_no_such_value_is_damaged(kind, data):
    with pytest.raises(durable.Damaged):
        durable.decode(data, kind)


@given(data=SOUP, ending=st.sampled_from(["toml", "json"]))
def test_an_allow_file_is_understood_or_refused(tmp_path_factory, data, ending):
    file = tmp_path_factory.mktemp("allow") / f"allow.{ending}"
    file.write_bytes(data)

    with suppress(Refused):
        assert read_allow(file) == ()


@given(st.text(), st.binary())
@example("²", b"&nbsp;")
@example("9" * 5000 + " MiB", b"<fb_memory_usage/>" * 2)
def test_whatever_nvidia_smi_prints_is_cards_or_none(value, more):
    said = (
        f"""<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]><nvidia_smi_log><gpu id="{value}"><uuid>GPU-1</uuid>
        <fb_memory_usage><total>{value}</total><used>{value}</used></fb_memory_usage><processes><process_info>
        <pid>{value}</pid><process_name>{value}</process_name><used_memory>1 MiB</used_memory></process_info>
        </processes>""".encode(errors="replace")
        + more
        + b"</gpu></nvidia_smi_log>"
    )

    if (root := nvidia.tree(said)) is not None:
        found = nvidia.read(root, said, ours={1}, listed=nvidia.slices(value), capability={}, xids={})
        msgspec.json.encode(found.cards)


JSON = st.recursive(
    st.none() | st.integers(-1, 1 << 70) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["gpu_data", "gpu", "asic", "vram", "size", "value", "process_list"]), inner)
    ),
    max_leaves=10,
)


@given(JSON, JSON)
def test_whatever_amd_smi_prints_is_cards_or_none(one, other):
    said = [json.dumps(value).encode() for value in (one, other, {"gpu_data": [one]})]

    msgspec.json.encode(amd.read(*said, ours={1}))


@given(st.integers(0, 255) | st.none(), st.integers(1, 127) | st.none(), st.lists(st.text(), max_size=5), st.booleans())
def test_however_an_engine_ends_it_is_explained(code, signal, lines, kernel):
    found = dossier.of_exit(Exit(code, signal), lines, LlamaCpp.signs, kernel_out_of_memory=kernel)

    assert found.cause
    assert found.message


def test_a_signal_without_a_name_is_told_by_its_number():
    assert dossier.of_exit(Exit(signal=40), [], (), kernel_out_of_memory=False).message.startswith(
        "it ended with signal 40"
    )


@given(st.text() | st.lists(st.sampled_from(["9" * 20, " Jan", " 1", " 07:28:00", " -0000", "-"])).map("".join))
@example("99999 Jan 9999999999999999999 07:28:00 -0000")
def test_a_time_to_wait_is_one_or_none_whatever_a_source_says(text):
    assert failures._retry_after_s(text) >= 0


FLAGS = ["-m", "--host", "--port", "--alias", "-c", "--parallel", "-t", "--embeddings"]


@given(st.lists(st.sampled_from([*FLAGS, "1", "x", "", "²"]) | st.text(max_size=3)))
def test_a_command_line_is_an_engine_of_ours_or_none(words):
    seen = LlamaCpp().recognise(words, {})

    assert seen is None or set(FLAGS[:-1]) <= set(words)


@given(st.text(max_size=12))
def test_a_marker_is_of_a_replica_or_of_none(text):
    assert process.replica_of(process.new_marker("owner", text, 7)) == ((text, 7) if text else None)
    assert process.replica_of(text) is None or text.count(".") > 1


@given(st.text(max_size=300))
@example("..")
@example(".hidden")
def test_an_id_is_the_name_of_one_file_in_its_folder(text):
    name = slug(text)

    assert "/" not in name
    assert not name.startswith(".")


@given(st.binary(max_size=50))
def test_a_log_of_any_bytes_has_lines(tmp_path_factory, data):
    log = tmp_path_factory.mktemp("log") / "log"
    log.write_bytes(data)

    assert all(line.isprintable() for line in dossier.last_lines(log))


def test_the_embedded_server_ends_with_a_message_for_a_key_that_is_no_text(tmp_path, capsys):
    (tmp_path / "key").write_bytes(b"\xff\xfe")

    with pytest.raises(SystemExit):
        llama_server.keys(tmp_path / "key")

    assert "cannot be read" in capsys.readouterr().err
