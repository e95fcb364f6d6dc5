"""The connections a download uses: they go only where they may, and can be cut while they wait."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from llmgw_agent.fetch.failures import Again

Address = tuple[int, Any]
"""A family, and the socket address that goes with it."""

LOOK_EVERY_S = 0.2
"""How often a waiting download asks whether it is still wanted: a cancel is honoured within a second."""

_here = threading.local()


def system_addresses(host: str, port: int) -> Sequence[Address]:
    """Whatever the system's resolver says. It has time limits of its own, which nothing here can shorten."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


class Line:
    """One download's use of the network, for the thread that enters it.

    A thread that waits in a read cannot be asked anything. So a second one looks
    at the clock, and shuts the socket down once nobody wants the bytes or none
    have come for `stall_s`; the read then ends as if the other side had hung up,
    and `was_cut` says that it was us.
    """

    def __init__(
        self,
        *,
        unwanted: Callable[[], bool],
        stall_s: float,
        addresses: Callable[[str, int], Sequence[Address]],
    ) -> None:
        self._unwanted, self._stall_s, self._addresses = unwanted, stall_s, addresses
        self._moved = time.monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self.was_cut = False

    def __enter__(self) -> Self:
        _here.line = self
        threading.Thread(target=self._look, name="download-watch", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _here.line = None
        self._over.set()
        self.let_go()

    def moved(self) -> None:
        """Bytes came, or an exchange begins: the next must come within `stall_s`."""
        self._moved = time.monotonic()

    def hold(self, sock: socket.socket) -> None:
        """This is the connection to cut.

        By a handle of our own: TLS passes a socket from one object to the next
        while it shakes hands, and urllib3 closes it when it likes.
        """
        with self._lock:
            self._release()
            self._handle = socket.socket(fileno=os.dup(sock.fileno()))

    def let_go(self) -> None:
        """The exchange is over: nothing is waited for, and nothing is cut."""
        with self._lock:
            self._release()
            self.was_cut = False

    def dial(self, connection: HTTPConnection, timeout_s: float | None) -> socket.socket:
        """A socket to the first address that answers, of those the host may have."""
        try:
            addresses = self._addresses(connection.host, connection.port or connection.default_port)
        except socket.gaierror as e:
            raise Again("unreachable", f"the name {connection.host} is not known here") from e
        problem = "it has no address"
        for family, address in addresses:
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                self.hold(sock)
                sock.settimeout(timeout_s)
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as e:
                sock.close()
                problem = e.strerror or "no answer in time"
            else:
                return sock
            if self.was_cut:
                break
        raise Again("unreachable", f"no connection to {connection.host}: {problem.lower()}")

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            if time.monotonic() - self._moved > self._stall_s or self._unwanted():
                self._cut()

    def _cut(self) -> None:
        with self._lock:
            if self._handle is not None:
                self.was_cut = True
                with suppress(OSError):
                    self._handle.shutdown(socket.SHUT_RDWR)

    def _release(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class _Http(HTTPConnection):
    """A connection that hands itself to the line of the thread it works for."""

    def putrequest(self, method: str, url: str, skip_host: bool = False, skip_accept_encoding: bool = False) -> None:
        if self.sock is not None:  # kept from an earlier file, or just made by TLS
            _here.line.hold(self.sock)
        super().putrequest(method, url, skip_host, skip_accept_encoding)

    def _new_conn(self) -> socket.socket:
        line: Line = _here.line
        return line.dial(self, self.timeout)


class _Https(_Http, HTTPSConnection):
    """The same over TLS: the names in the certificate are still the host's, wherever it was dialled."""


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Https


class Connections(urllib3.PoolManager):
    """Connections kept for the next file of the same host. Any number of threads may share one."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        super().__init__(num_pools=8, maxsize=4, ssl_context=ssl_context)
        self.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
