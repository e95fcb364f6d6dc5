"""What the gateway costs a request, beside nginx in front of the same upstream.

Counted is the CPU of the proxy's own process, from outside: the upstream and the
client run here and are left out. Not counted: what the kernel does for sockets
on nobody's account.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil

from bench.row import Row
from llmgw.core.table import Serving, Table, TableModel, TableReplica

REQUESTS = 2000
CONNECTIONS = 8
CHUNKS = 50
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x" * 200}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 40, "total_tokens": 50},
    }
).encode()
ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def rows() -> Iterator[Row]:
    yield from asyncio.run(_rows())


async def _rows() -> list[Row]:
    upstream = await asyncio.start_server(_engine, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    found = []
    async with _gateway(port) as ours, _nginx(port) as theirs:
        for name, stream in (("a JSON request", False), ("a stream of 50 chunks", True)):
            mine = await _cost(ours, stream=stream)
            peer = await _cost(theirs, stream=stream) if theirs else None
            found.append(Row(f"gateway: {name}", mine, "us CPU", "nginx" if theirs else "", peer))
    upstream.close()
    return found


async def _engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            )
            body = await reader.readexactly(length)
            if b'"stream"' not in body:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
                )
                writer.write(ANSWER)
                await writer.drain()
                continue
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for n in range(CHUNKS):
                _event(writer, _chunk(n))
                await writer.drain()
            _event(writer, b"[DONE]")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))


def _chunk(n: int) -> bytes:
    last = n == CHUNKS - 1
    delta = {"index": 0, "delta": {} if last else {"content": f"word{n} "}, "finish_reason": "stop" if last else None}
    return json.dumps(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [delta]}
    ).encode()


def _event(writer: asyncio.StreamWriter, data: bytes) -> None:
    event = b"data: " + data + b"\n\n"
    writer.write(b"%x\r\n%s\r\n" % (len(event), event))


async def _cost(proxy: tuple[int, list[psutil.Process]], *, stream: bool) -> float:
    """Microseconds of the proxy's CPU for one request."""
    port, processes = proxy
    each = REQUESTS // CONNECTIONS // (4 if stream else 1)
    await _ask(port, 20, stream=stream)
    best = float("inf")
    for _ in range(3):
        before = spent(processes)
        await asyncio.gather(*(_ask(port, each, stream=stream) for _ in range(CONNECTIONS)))
        best = min(best, spent(processes) - before)
    return best / (each * CONNECTIONS) * 1e6


def spent(processes: list[psutil.Process]) -> float:
    return sum(t.user + t.system for t in (p.cpu_times() for p in processes))


async def _ask(port: int, times: int, *, stream: bool) -> None:
    body = json.dumps({**ASK, "stream": True} if stream else ASK).encode()
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    ) + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(times):
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head.split(b"\r\n")[0], head
        if b"content-length" in head:
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
        else:
            await reader.readuntil(b"0\r\n\r\n")
    writer.close()


@asynccontextmanager
async def _gateway(upstream: int) -> AsyncIterator[tuple[int, list[psutil.Process]]]:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        (state / "key").write_text("none")
        replica = TableReplica(
            "m/cpu/0", 1, "n1", f"http://127.0.0.1:{upstream}", "k", "llamacpp", 1, 1, 64, Serving.READY
        )
        table = Table("v", "lab", (TableModel("m", "chat", 4096, wanted=1, replicas=(replica,)),))
        (state / "table.json").write_bytes(msgspec.json.encode(table))
        port = free_port()
        words = ("--control", f"http://127.0.0.1:{free_port()}", "--name", "g", "--key-file", str(state / "key"))
        listen = ("--state", folder, "--listen", f"127.0.0.1:{port}", "--log-level", "warning")
        # Its records of requests go nowhere, as nginx's do.
        process = subprocess.Popen(
            [sys.executable, "-m", "llmgw", "gateway", *words, *listen],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            await listens(port)
            yield port, [psutil.Process(process.pid)]
        finally:
            process.terminate()
            process.wait()


@asynccontextmanager
async def _nginx(upstream: int) -> AsyncIterator[tuple[int, list[psutil.Process]] | None]:
    program = shutil.which("nginx")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config = Path(folder) / "nginx.conf"
        config.write_text(
            f"worker_processes 1; daemon off; pid {folder}/pid; error_log /dev/null;\n"
            "events {}\n"
            "http { access_log off; upstream e { server 127.0.0.1:%d; keepalive 16; }\n"
            % upstream
            + f"client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;\n"
            f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
            f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://e; proxy_http_version 1.1;\n"
            'proxy_set_header Connection ""; proxy_buffering off; } } }\n'
        )
        process = subprocess.Popen(
            [program, "-c", str(config), "-p", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            await listens(port)
            yield port, [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
        finally:
            process.terminate()
            process.wait()


async def listens(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise TimeoutError(f"nothing listens on {port}")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
