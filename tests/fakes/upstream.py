"""An upstream that misbehaves on purpose: a real server on loopback, told answer by answer what to do wrong."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

CERTIFICATE = Path(__file__).with_name("localhost.pem")
"""For localhost and 127.0.0.1, signed by itself, with its key. Good for tests and for nothing else."""

_STEP = 16_384


@dataclass(frozen=True)
class Answer:
    """How one request is answered; without arguments, properly."""

    status: int | None = None
    """In place of 200 and 206; without a body."""
    headers: dict[str, str] = field(default_factory=dict)
    """Added to the answer, or put in the place of what it would say."""
    page: bytes | None = None
    """An HTML page in place of the file."""
    cut_after: int | None = None
    """Bytes of the body after which the connection is closed."""
    stall_after: int | None = None
    """Bytes of the body after which nothing more comes."""
    silent: bool = False
    """The request is read, and nothing is answered."""
    whole: bool = False
    """A Range is ignored."""
    shifted: bool = False
    """A range is answered from another place than asked for, and says so."""
    flipped: int | None = None
    """Where one byte is wrong."""
    no_length: bool = False
    """The end of the body is the end of the connection."""
    chunked: bool = False
    bytes_per_s: int | None = None


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    path: str
    range: str | None
    headers: dict[str, str]


class Upstream:
    """Files at paths, and for each path the answers of its next requests; the last one is repeated."""

    def __init__(self, host: str = "127.0.0.1", *, tls: bool = False) -> None:
        self.files: dict[str, bytes] = {}
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        self.asked: list[Asked] = []
        self.sent_bytes = 0
        self.connections = 0
        self.over = threading.Event()
        self.scheme = "https" if tls else "http"
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
        if self.tls is not None:
            self.tls.load_cert_chain(CERTIFICATE)
        upstream = self

        class Handler(_Handler):
            world = upstream

        self._server = _Server((host, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def base(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{self.scheme}://{host}:{port}"

    @property
    def netloc(self) -> str:
        return self.base.partition("//")[2]

    def put(self, path: str, data: bytes, *answers: Answer) -> str:
        """Offer `data` at `path`; the URL of it."""
        self.files[path] = data
        self.answers[path] = list(answers)
        return self.base + path

    def ranges(self) -> list[str | None]:
        """The Range of every request so far."""
        return [asked.range for asked in self.asked]


def gguf(size: int, seed: int = 0) -> bytes:
    """Bytes that begin like a GGUF file and look random after that."""
    head = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)
    blocks = (sha256(f"{seed} {n}".encode()).digest() * 32 for n in range(size // 1024 + 1))
    return (head + b"".join(blocks))[:size]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: Upstream

    def setup(self) -> None:
        self.world.connections += 1
        if self.world.tls is not None:
            self.request = self.world.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.world.asked.append(Asked(self.path, self.headers.get("Range"), dict(self.headers)))
        queue = self.world.answers[path]
        answer = (queue.pop(0) if len(queue) > 1 else queue[0]) if queue else Answer()
        if answer.silent:
            self._stall()
        elif answer.status is not None:
            self._head(answer.status, {"Content-Length": "0", **answer.headers})
        elif answer.page is not None:
            self._page(answer)
        elif path not in self.world.files:
            self._head(404, {"Content-Length": "0"})
        else:
            self._file(answer, self.world.files[path])

    def _page(self, answer: Answer) -> None:
        assert answer.page is not None
        self._head(200, {"Content-Type": "text/html", "Content-Length": str(len(answer.page)), **answer.headers})
        self.wfile.write(answer.page)

    def _file(self, answer: Answer, data: bytes) -> None:
        if answer.flipped is not None:
            at = answer.flipped
            data = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        tag = f'"{sha256(data).hexdigest()[:16]}"'
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        belongs = self.headers.get("If-Range", tag) == tag
        start = int(found[1]) if found and belongs and not answer.whole else None
        if start is not None and start >= len(data):
            self._head(416, {"Content-Range": f"bytes */{len(data)}", "Content-Length": "0", **answer.headers})
            return
        headers = {"Content-Type": "application/octet-stream", "ETag": tag}
        status = 200
        if start is not None:
            start -= answer.shifted
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start or 0 :]
        if answer.chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif answer.no_length:
            headers["Connection"] = "close"
        else:
            headers["Content-Length"] = str(len(body))
        self._head(status, headers | answer.headers)
        self._body(answer, body)

    def _body(self, answer: Answer, body: bytes) -> None:
        end = min(n for n in (answer.cut_after, answer.stall_after, len(body)) if n is not None)
        for at in range(0, end, _STEP):
            block = body[at : min(at + _STEP, end)]
            if answer.bytes_per_s is not None:
                time.sleep(len(block) / answer.bytes_per_s)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block) if answer.chunked else block)
            self.world.sent_bytes += len(block)
        if answer.stall_after is not None:
            self._stall()
        if answer.cut_after is not None or answer.no_length:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif answer.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _stall(self) -> None:
        self.close_connection = True
        self.world.over.wait(60)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
