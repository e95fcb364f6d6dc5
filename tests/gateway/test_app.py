"""The process: how it starts, and how it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import textwrap

import pytest

from fakes.quirks import LAST_PIECE, STREAM_HEAD, chat_events, piece, plays_bytes
from fakes.table_server import model, replica
from fakes.waiting import until
from llmgw.errors import Refused
from llmgw.gateway.bounds import Bounds

CHAT = "/v1/chat/completions"


async def test_a_port_in_use_is_refused_with_who_has_it_and_what_to_do(fleet):
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    fleet.port = taken.sockets[0].getsockname()[1]

    with pytest.raises(Refused) as refused:
        await fleet.start()

    assert f"127.0.0.1:{fleet.port}" in refused.value.what
    assert f"(pid {os.getpid()})" in refused.value.why
    assert "--listen" in refused.value.do
    fleet.task = None
    taken.close()


async def test_an_address_of_another_machine_is_refused(fleet):
    with pytest.raises(Refused) as refused:
        await fleet.start(listen=("192.0.2.1", 0))

    assert "--listen" in refused.value.do
    fleet.task = None


async def test_a_gateway_that_is_told_to_stop_lets_its_streams_end(fleet, chat):
    gate = asyncio.Event()

    async def play(connection, _):
        await connection.send(STREAM_HEAD + piece(chat_events("hel")[:200]))
        await gate.wait()
        await connection.send(piece(chat_events("hel")[200:]) + LAST_PIECE)

    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start()
    async with fleet.post(CHAT, chat(stream=True)) as got:
        fleet.task.cancel()
        await until(lambda: not _accepts(fleet.port), said="nobody new is let in")
        gate.set()
        assert (await got.read()).endswith(b"data: [DONE]\n\n")
    await asyncio.wait({fleet.task}, timeout=5)

    assert fleet.task.done()
    assert not any("cut off" in r.getMessage() for r in fleet.logged.records)


async def test_what_does_not_end_in_time_is_cut_off_and_counted(fleet, chat):
    engine = await fleet.engine(play=plays_bytes(STREAM_HEAD + piece(chat_events("hel")[:200]), end="hang"))
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start(bounds=Bounds(stop_s=0.1))
    async with fleet.post(CHAT, chat(stream=True)) as got:
        await got.content.readany()

        await fleet.stop()

        assert not engine.open
    (record,) = await fleet.records(1)
    assert record["outcome"] == "client_closed"


PROGRAM = textwrap.dedent(
    """
    import asyncio, pathlib, sys
    from llmgw.gateway.app import GatewayConfig, serve

    home = pathlib.Path(sys.argv[1])
    config = GatewayConfig(
        control="http://127.0.0.1:9", name="g1", key_file=home / "key", state=home / "s", listen=("127.0.0.1", 0)
    )
    asyncio.run(serve(config, ready=lambda where: print(*where, flush=True)))
    print("ended", flush=True)
    """
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_as_it_should_end(tmp_path, number):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(tmp_path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(20):
        host, port = (await process.stdout.readline()).split()
        assert host == b"127.0.0.1"
        assert _accepts(int(port))

        process.send_signal(number)

        out, err = await process.communicate()
    assert process.returncode == 0
    assert out == b"ended\n"
    assert b"Traceback" not in err


def _accepts(port: int) -> bool:
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0
