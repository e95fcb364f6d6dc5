"""What reading a shape over HTTP costs: requests, and bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.fidelity.points import DATA
from bench.fidelity.rows import Line
from llmgw.cli.demo import model_file
from llmgw.planning.gguf import read_header
from llmgw.planning.gguf_shape import shape_of

MOST_REQUESTS = 2
MOST_BYTES = 128 << 10


class _Ranges(BaseHTTPRequestHandler):
    """Serves ranges of one file."""

    def __init__(self, path: Path, *given: object) -> None:
        self.file = path
        super().__init__(*given)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        first, last = (int(part) for part in self.headers["Range"].removeprefix("bytes=").split("-"))
        with self.file.open("rb") as file:
            file.seek(first)
            body = file.read(last - first + 1)
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it that
        del format, args


class OverHttp:
    """A file's bytes by ranges, counted."""

    def __init__(self, port: int) -> None:
        self.port, self.requests, self.bytes = port, 0, 0

    def read(self, offset: int, size: int) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/", headers={"Range": f"bytes={offset}-{offset + size - 1}"})
            got = connection.getresponse().read()
        finally:
            connection.close()
        self.requests += 1
        self.bytes += len(got)
        return got


@contextmanager
def served(path: Path) -> Iterator[OverHttp]:
    """A file behind HTTP."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Ranges, path))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield OverHttp(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def http_lines() -> Iterator[Line]:
    """The small model with its vocabulary of 49,152, and the headers that are kept here."""
    costs = []
    for path in (model_file(), *sorted((DATA / "headers").iterdir())):
        with served(path) as source:
            assert shape_of(read_header(source)).known
            costs.append((source.requests, source.bytes))
    requests, size = max(n for n, _ in costs), max(b for _, b in costs)
    yield Line(
        "the shape of a model over HTTP",
        "2 requests, 128 KiB",
        len(costs),
        f"{requests} request, {size / 1024:.0f} KiB",
        requests <= MOST_REQUESTS and size <= MOST_BYTES,
    )
