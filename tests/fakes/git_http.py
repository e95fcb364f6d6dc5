"""git over smart HTTP on loopback: the real `git http-backend`, with faults on demand."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self


@dataclass
class Fault:
    """What goes wrong at the requests that match, so many times."""

    status: int | None = None
    """Answered in place of git's answer."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    hang: bool = False
    """The connection is taken and nothing is said."""
    cut_after: int | None = None
    """Bytes of git's body that are sent before the connection is cut."""
    trickle_s: float | None = None
    """A byte each time, for ever."""
    swallow: bool = False
    """git gets the request, and its answer is lost."""
    only: str = ""
    """In the path and query, or every request."""
    times: int = 1_000_000


class GitServer:
    """Serves the repositories below a folder. `token` set, it asks for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.token: str | None = None
        self.protocol_2 = True
        """False: as servers were before 2018. One ref then takes one request in place of two."""
        self.fault: Fault | None = None
        self.asked: Counter[str] = Counter()
        """Requests by method and service."""
        self.seen: list[dict[str, str]] = []
        """Headers of each request, their names in small letters."""
        self.before: Callable[[str], None] | None = None
        """Called with each path before git is, to move the repository under the client."""
        self.closing = threading.Event()
        self._http = _Http(self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/{name}"

    @property
    def requests(self) -> int:
        return self.asked.total()

    def matching(self, path: str) -> Fault | None:
        fault = self.fault
        if fault is None or fault.only not in path or fault.times <= 0:
            return None
        fault.times -= 1
        return fault

    def lets_in(self, authorization: str | None) -> bool:
        if self.token is None:
            return True
        kind, _, value = (authorization or "").partition(" ")
        return kind == "Basic" and base64.b64decode(value).decode().partition(":")[2] == self.token


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, served: GitServer) -> None:
        self.served = served
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def served(self) -> GitServer:
        return self.server.served

    def do_GET(self) -> None:
        self._git(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            self._git(b"".join(iter(self._chunk, b"")))
        else:
            self._git(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _chunk(self) -> bytes:
        data = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return data

    def _git(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        self.served.asked[f"{self.command} {(query or path).rpartition('/')[2]}"] += 1
        self.served.seen.append({name.lower(): value for name, value in self.headers.items()})
        fault = self.served.matching(self.path)
        if not self.served.lets_in(self.headers.get("Authorization")):
            self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
        elif fault is not None and fault.hang:
            self.served.closing.wait()
            self.close_connection = True
        elif fault is not None and fault.status is not None:
            self._answer(fault.status, fault.headers, fault.body)
        else:
            if self.served.before is not None:
                self.served.before(self.path)
            self._carry(fault or Fault(), path, query, body)

    def _carry(self, fault: Fault, path: str, query: str, body: bytes) -> None:
        status, headers, answer = self._backend(path, query, body)
        if fault.swallow:
            self.close_connection = True
        elif fault.cut_after is not None:
            self._head(status, headers, len(answer))
            self.wfile.write(answer[: fault.cut_after])
            self.close_connection = True
        elif fault.trickle_s is not None:
            self._head(status, headers, len(answer))
            for byte in answer * 1000:
                if self.served.closing.wait(fault.trickle_s):
                    break
                try:
                    self.wfile.write(bytes([byte]))
                except OSError:
                    break
            self.close_connection = True
        else:
            self._answer(status, headers, answer)

    def _backend(self, path: str, query: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_PROJECT_ROOT": str(self.served.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_USER": "tester",
            "REMOTE_ADDR": "127.0.0.1",
        }
        if self.served.protocol_2 and (version := self.headers.get("Git-Protocol")):
            environ["GIT_PROTOCOL"] = version
        if coding := self.headers.get("Content-Encoding"):
            environ["HTTP_CONTENT_ENCODING"] = coding
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environ, capture_output=True, check=False, timeout=60
        )
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(headers.pop("Status", "200 OK").split()[0])
        return status, headers, answer

    def _head(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._head(status, headers, len(body))
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
