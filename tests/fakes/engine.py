"""A fake llama-server: a real process behind the real one's flags, answers and habits, with faults on demand.

It starts in a tenth of a second, needs nothing but the standard library, and
fails in the ways engines were seen to fail. A fault comes as JSON in the
environment variable `LLMGW_FAKE` or behind a flag of its own: the field
`token_ms` of `Faults` is `--fake-token-ms 20`. `fakes.launch` starts one, or
puts one where an agent finds it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import dataclasses
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

KEEP_ALIVE = "Keep-Alive: timeout=5, max=100"
STATUS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 500: "Internal Server Error"}
STATUS |= {501: "Not Implemented", 503: "Service Unavailable"}


@dataclasses.dataclass
class Faults:
    """What goes wrong, and when. Every default is an engine that works."""

    load_s: float = 0.0
    """A load takes this long; `/health` says 503 meanwhile."""
    load_signs: str = "log,io"
    """The signs of life while it loads: log, io, both or, empty, none."""
    never_ready: bool = False
    say: str = ""
    """Printed on stderr at the start."""
    exit_message: str = ""
    """Printed on stderr before it ends, with `exit_code` or by `exit_signal`."""
    exit_code: int = 1
    exit_signal: int = 0
    leak_child: str = ""
    """A file that gets the pid of a child left in its own session, deaf to SIGTERM."""
    ignore_sigterm: bool = False
    hang_while: str = ""
    """While this file exists nothing is answered, `/health` included."""
    wedge_while: str = ""
    """While this file exists `/health` answers and no token comes."""
    break_at_token: int = 0
    """A stream's connection is cut after this many tokens."""
    truncate_at_token: int = 0
    """A stream ends cleanly after this many tokens, without a finish reason or [DONE]."""
    error_at_token: int = 0
    """A stream says an error after this many tokens, and ends."""
    die_at_token: int = 0
    """The process ends after this many tokens of any one answer."""
    die_after_requests: int = 0
    """The process ends once it has answered this many requests for tokens."""
    claim_bytes: int = 0
    """Memory it takes and touches before it is ready."""
    free_when_loaded: bool = False
    """It gives that back when it is ready."""
    prefill_ms: float = 0.0
    token_ms: float = 0.0
    tokens: int = 16
    """How many it generates when the request does not say fewer."""
    status: int = 0
    """Answers requests for tokens with this status."""
    served_name: str = ""
    """Calls itself this, whatever `--alias` says."""
    stamp: str = ""
    """A file to which each start appends its pid and the time."""


def faults_of(flags: list[str], environment: str) -> Faults:
    values: dict[str, Any] = json.loads(environment or "{}")
    for flag, text in zip(flags[::2], flags[1::2], strict=True):
        try:
            values[flag.removeprefix("--fake-").replace("-", "_")] = json.loads(text)
        except json.JSONDecodeError:
            values[flag.removeprefix("--fake-").replace("-", "_")] = text
    return Faults(**values)


class LlamaFlags(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Say it as llama-server does."""
        log("error: %s", message)
        sys.exit(1)


def parse(argv: list[str]) -> tuple[argparse.Namespace, Faults]:
    parser = LlamaFlags(prog="llama-server", allow_abbrev=False)
    parser.add_argument("-m", "--model", default="")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-a", "--alias", default="")
    parser.add_argument("-c", "--ctx-size", type=int, default=4096)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    for names in (("-t", "--threads"), ("-tb", "--threads-batch"), ("-b", "--batch-size"), ("-ub", "--ubatch-size")):
        parser.add_argument(*names, type=int)
    for short, long in (("-cram", "--cache-ram"), ("-ngl", "--n-gpu-layers"), ("-fit", "--fit")):
        parser.add_argument(short, long)
    parser.add_argument("--api-key-file", default="")
    parser.add_argument("--cors-origins")
    parser.add_argument("--pooling")
    for name in ("--metrics", "--slots", "--no-slots", "--no-ui", "--no-webui", "--jinja"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--embedding", "--embeddings", dest="embeddings", action="store_true")
    known, rest = parser.parse_known_args(argv)
    fakes = [i for i, word in enumerate(rest) if word.startswith("--fake-")]
    taken = {j for i in fakes for j in (i, i + 1)}
    unknown = [word for i, word in enumerate(rest) if i not in taken]
    if unknown:
        log("error: invalid argument: %s", unknown[0])
        sys.exit(1)
    return known, faults_of([rest[i] for i in sorted(taken)], os.environ.get("LLMGW_FAKE", ""))


@dataclasses.dataclass
class Slot:
    id: int
    task: int = -1
    busy: bool = False
    decoded: int = 0


class Request:
    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.path, self.headers, self.body = method, path.partition("?")[0], headers, body


class Engine:
    """What it has loaded, its slots and its counters."""

    def __init__(self, flags: argparse.Namespace, faults: Faults) -> None:
        self.flags, self.faults = flags, faults
        self.name = faults.served_name or flags.alias or Path(flags.model).name or "fake"
        self.key = Path(flags.api_key_file).read_text().strip() if flags.api_key_file else ""
        self.loaded = False
        self.slots = [Slot(i) for i in range(flags.parallel)]
        self.free: asyncio.Queue[Slot] = asyncio.Queue()
        self.deferred = self.requests = self.prompted = self.predicted = self.at_work = 0
        self.predicted_s = 0.0
        self.claimed = bytearray()
        for slot in self.slots:
            self.free.put_nowait(slot)

    async def load(self) -> None:
        """Take as long as asked, with the signs of life asked for, then be ready."""
        f, started, step = self.faults, time.monotonic(), 0
        log("srv    load_model: loading model '%s'", self.flags.model)
        while f.never_ready or time.monotonic() - started < f.load_s:
            step += 1
            if "log" in f.load_signs:
                log("load_tensors: part %d", step)
            if "io" in f.load_signs:
                self.read_some()
            await asyncio.sleep(0.05)
        if self.flags.model:
            self.check_model()
        self.claimed = bytearray(b"\1") * f.claim_bytes
        if f.free_when_loaded:
            self.claimed = bytearray()
        self.loaded = True
        log("srv          init: model loaded")

    def read_some(self) -> None:
        """Read as a load does, so that the process's io counters move."""
        with Path("/dev/zero").open("rb", buffering=0) as file:
            file.read(1 << 18)

    def check_model(self) -> None:
        path = self.flags.model
        try:
            with Path(path).open("rb") as file:
                magic = file.read(4)
        except OSError as e:
            log("gguf_init_from_file: failed to open GGUF file '%s' (%s)", path, e.strerror)
            leave(1)
        if magic != b"GGUF":
            log(
                "gguf_init_from_reader: invalid magic characters: '%s', expected 'GGUF'", magic.decode(errors="replace")
            )
            log("srv          init: exiting due to model loading error")
            leave(1)

    async def tokens(self, slot: Slot, wanted: int) -> AsyncIterator[str]:
        """Words, one a token, as the faults allow. A wedged engine stops here and stays."""
        f, began = self.faults, time.monotonic()
        await asyncio.sleep(f.prefill_ms / 1000)
        for n in range(wanted):
            await gone(f.wedge_while)
            await asyncio.sleep(f.token_ms / 1000)
            if f.die_at_token and n >= f.die_at_token:
                leave(f.exit_code)
            slot.decoded, self.predicted = n + 1, self.predicted + 1
            self.at_work += sum(s.busy for s in self.slots)
            self.predicted_s, began = self.predicted_s + time.monotonic() - began, time.monotonic()
            yield f"w{n} "

    async def take(self) -> Slot:
        """The next free slot. Who comes when there is none waits, without bound, as there."""
        self.deferred += 1
        slot = await self.free.get()
        self.deferred -= 1
        self.requests += 1
        slot.busy, slot.task, slot.decoded = True, self.requests, 0
        return slot

    def give_back(self, slot: Slot) -> None:
        slot.busy = False
        self.free.put_nowait(slot)

    def metrics(self) -> str:
        rate = self.predicted / self.predicted_s if self.predicted_s else 0
        values = {
            "prompt_tokens_total": self.prompted,
            "tokens_predicted_total": self.predicted,
            "tokens_predicted_seconds_total": round(self.predicted_s, 6),
            "n_decode_total": self.predicted,
            "n_busy_slots_per_decode": round(self.at_work / self.predicted, 6) if self.predicted else 0,
            "predicted_tokens_seconds": round(rate, 3),
            "requests_processing": sum(s.busy for s in self.slots),
            "requests_deferred": self.deferred,
        }
        return "".join(f"# TYPE llamacpp:{k} gauge\nllamacpp:{k} {v}\n" for k, v in values.items())

    def slot_list(self) -> list[dict[str, Any]]:
        each = self.flags.ctx_size // self.flags.parallel
        return [
            {"id": s.id, "n_ctx": each, "is_processing": s.busy, "id_task": s.task, "n_prompt_tokens_processed": 0}
            | {"next_token": [{"has_next_token": s.busy, "n_decoded": s.decoded if s.busy else 0}]}
            for s in self.slots
        ]


class Connection:
    """One client's connection: requests one after the other, as the real server takes them."""

    def __init__(self, engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.engine, self.reader, self.writer = engine, reader, writer

    async def serve(self) -> None:
        """Up to a hundred requests, five idle seconds at most between them."""
        try:
            for _ in range(100):
                request = await asyncio.wait_for(self.read(), 5)
                await gone(self.engine.faults.hang_while)
                if request is None or not await self.answer(request):
                    break
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.writer.close()

    async def read(self) -> Request | None:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        if "chunked" in headers.get("transfer-encoding", ""):
            body = b""
            while size := int((await self.reader.readline()).partition(b";")[0], 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Request(method, path, headers, body)

    async def send(self, status: int, value: object, kind: str = "application/json; charset=utf-8") -> bool:
        """One whole answer. An error ends the connection, as there."""
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        last = KEEP_ALIVE if status == 200 else "Connection: close"
        head = f"HTTP/1.1 {status} {STATUS.get(status, 'Error')}\r\nServer: llama.cpp\r\nContent-Type: {kind}\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n{last}\r\n\r\n".encode() + body)
        await self.writer.drain()
        return status == 200

    async def fail(self, status: int, kind: str, message: str, **more: int) -> bool:
        return await self.send(status, {"error": {"code": status, "message": message, "type": kind, **more}})

    async def answer(self, request: Request) -> bool:
        """Answer one request; false when the connection ends with it."""
        engine = self.engine
        if not engine.loaded:
            return await self.fail(503, "unavailable_error", "Loading model")
        path = request.path.removeprefix("/v1")
        if path == "/health":
            return await self.send(200, {"status": "ok"})
        if engine.key and request.headers.get("authorization") != f"Bearer {engine.key}":
            return await self.fail(401, "authentication_error", "Invalid API Key")
        match request.method, path:
            case "GET", "/models":
                meta = {"n_ctx": engine.flags.ctx_size // engine.flags.parallel}
                one = {"id": engine.name, "object": "model", "created": 1, "owned_by": "llamacpp", "meta": meta}
                return await self.send(200, {"object": "list", "data": [one]})
            case "GET", "/slots":
                return await self.send(200, engine.slot_list())
            case "GET", "/props":
                props = {"total_slots": engine.flags.parallel, "model_alias": engine.name, "pid": os.getpid()}
                return await self.send(200, props)
            case "GET", "/metrics" if engine.flags.metrics:
                return await self.send(200, engine.metrics(), "text/plain; version=0.0.4")
            case "GET", "/metrics":
                return await self.fail(501, "not_supported_error", "Start it with `--metrics`")
            case "POST", "/chat/completions" | "/completions" | "/embeddings":
                return await self.generate(request, path)
        return await self.fail(404, "not_found_error", "File Not Found")

    async def generate(self, request: Request, path: str) -> bool:
        """Take a slot, answer from it, give it back."""
        engine, f = self.engine, self.engine.faults
        if f.status:
            return await self.fail(f.status, "server_error", "asked to fail")
        try:
            asked = json.loads(request.body)
        except ValueError as e:
            return await self.fail(400, "invalid_request_error", f"parse error: {e}")
        if path == "/embeddings" and not engine.flags.embeddings:
            message = "This server does not support embeddings. Start it with `--embeddings`"
            return await self.fail(501, "not_supported_error", message)
        messages = asked.get("messages") or [{"content": asked.get("prompt", asked.get("input", ""))}]
        prompt = sum(len(str(m.get("content", "")).split()) for m in messages) or 1
        if prompt >= (room := engine.flags.ctx_size // engine.flags.parallel):
            message = f"request ({prompt} tokens) exceeds the available context size ({room} tokens), try increasing it"
            return await self.fail(400, "exceed_context_size_error", message, n_prompt_tokens=prompt, n_ctx=room)
        slot = await engine.take()
        engine.prompted += prompt
        try:
            if path == "/embeddings":
                return await self.embed(asked, prompt)
            limit = asked.get("max_tokens") or asked.get("max_completion_tokens") or f.tokens
            answer = Answer(engine.name, chat=path == "/chat/completions", prompt=prompt, limit=limit)
            send = self.stream if asked.get("stream") else self.whole
            return await send(answer, slot, min(limit, f.tokens), asked)
        finally:
            engine.give_back(slot)
            if f.die_after_requests and engine.requests >= f.die_after_requests:
                await self.writer.drain()
                leave(f.exit_code)

    async def embed(self, asked: dict[str, Any], prompt: int) -> bool:
        inputs = asked.get("input", "")
        several = isinstance(inputs, list) and bool(inputs) and not isinstance(inputs[0], int)
        data: list[dict[str, Any]] = []
        for i, text in enumerate(inputs if several else [inputs]):
            vector: Any = [1.0, float(len(str(text))), 0.5, -0.25]
            if asked.get("encoding_format") == "base64":
                vector = base64.b64encode(struct.pack("<4f", *vector)).decode()
            data.append({"object": "embedding", "index": i, "embedding": vector})
        usage = {"prompt_tokens": prompt, "total_tokens": prompt}
        return await self.send(200, {"object": "list", "model": self.engine.name, "data": data, "usage": usage})

    async def whole(self, answer: Answer, slot: Slot, wanted: int, asked: dict[str, Any]) -> bool:
        words = [word async for word in self.engine.tokens(slot, wanted)]
        return await self.send(200, answer.whole(words))

    async def stream(self, answer: Answer, slot: Slot, wanted: int, asked: dict[str, Any]) -> bool:
        """Events, then the end of the connection, which the headers did not announce."""
        f, n = self.engine.faults, 0
        head = "HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n"
        self.writer.write(f"{head}Transfer-Encoding: chunked\r\n{KEEP_ALIVE}\r\n\r\n".encode())
        if answer.chat:
            await self.event(answer.piece({"role": "assistant", "content": None}))
        async for word in self.engine.tokens(slot, wanted):
            if self.reader.at_eof():
                return False
            n += 1
            await self.event(answer.piece(word))
            if n == f.break_at_token:
                self.writer.transport.abort()
                return False
            if n == f.error_at_token:
                await self.event({"error": {"code": 500, "message": "asked to fail", "type": "server_error"}})
            if n in (f.truncate_at_token, f.error_at_token):
                self.writer.write(b"0\r\n\r\n")
                return False
        await self.event(answer.piece({} if answer.chat else "", finish=answer.reason(n)))
        if (asked.get("stream_options") or {}).get("include_usage"):
            await self.event(answer.body([]) | {"usage": answer.usage(n)})
        await self.event("[DONE]")
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        return False

    async def event(self, value: object) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        data = f"data: {text}\n\n".encode()
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()


@dataclasses.dataclass
class Answer:
    """The shapes of one answer: chat or plain, whole or in pieces."""

    name: str
    chat: bool
    prompt: int
    limit: int

    def reason(self, count: int) -> str:
        return "length" if count >= self.limit else "stop"

    def usage(self, count: int) -> dict[str, int]:
        return {"prompt_tokens": self.prompt, "completion_tokens": count, "total_tokens": self.prompt + count}

    def body(self, choices: list[Any], kind: str = ".chunk") -> dict[str, Any]:
        """The common part. The fingerprint says which process answered."""
        shape = f"chat.completion{kind}" if self.chat else "text_completion"
        print_ = f"fake-{os.getpid()}"
        head = {"id": "chatcmpl-fake", "object": shape, "created": int(time.time()), "model": self.name}
        return head | {"system_fingerprint": print_, "choices": choices}

    def piece(self, content: Any, finish: str | None = None) -> dict[str, Any]:
        if not self.chat:
            return self.body([{"index": 0, "text": content, "finish_reason": finish}])
        delta = {"content": content} if isinstance(content, str) else content
        return self.body([{"index": 0, "delta": delta, "finish_reason": finish}])

    def whole(self, words: list[str]) -> dict[str, Any]:
        text, finish = "".join(words).rstrip(), self.reason(len(words))
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "text": text}
        if self.chat:
            choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
        return self.body([choice], "") | {"usage": self.usage(len(words))}


async def gone(file: str) -> None:
    """Back once this file is not there, or at once without one."""
    while file and os.path.exists(file):  # noqa: ASYNC110, ASYNC240, PTH110 - a test's file is the switch
        await asyncio.sleep(0.02)


def log(line: str, *values: object) -> None:
    sys.stderr.write(line % values + "\n")
    sys.stderr.flush()


def leave(code: int) -> None:
    """End at once, as a crash does: nothing is flushed to clients, no handler runs."""
    sys.stderr.flush()
    os._exit(code)


def leak(file: str) -> None:
    """A worker in a session of its own, which outlives its parent and a polite request to end."""
    body = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", body], start_new_session=True)
    Path(file).write_text(str(child.pid))


async def run(flags: argparse.Namespace, faults: Faults) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, (lambda: None) if faults.ignore_sigterm else stop.set)
    if faults.leak_child:
        leak(faults.leak_child)
    if faults.say:
        log("%s", faults.say)
    if faults.exit_message:
        log("%s", faults.exit_message)
        if faults.exit_signal:
            os.kill(os.getpid(), faults.exit_signal)
        leave(faults.exit_code)
    engine = Engine(flags, faults)
    try:
        server = await asyncio.start_server(
            lambda r, w: Connection(engine, r, w).serve(), flags.host, flags.port, limit=1 << 24
        )
    except OSError:
        log("srv         start: couldn't bind HTTP server socket, hostname: %s, port: %d", flags.host, flags.port)
        leave(1)
    port = server.sockets[0].getsockname()[1]
    log("srv         start: listening on http://%s:%d", flags.host, port)
    loading = asyncio.create_task(engine.load())
    await stop.wait()
    loading.cancel()
    leave(0)


def main() -> None:
    flags, faults = parse(sys.argv[1:])
    if faults.stamp:
        with Path(faults.stamp).open("a") as file:
            file.write(f"{os.getpid()} {time.time()}\n")
    asyncio.run(run(flags, faults))


if __name__ == "__main__":
    main()
