"""HTTP as far as git needs it: bounded in time, and with a sentence for every way it ends badly.

dulwich takes a urllib3 pool; this is one that never retries, never sleeps at a
Retry-After, and turns every answer that is none into an error of ours while its
status and headers are still at hand.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import urllib3
from dulwich.client import default_user_agent_string
from dulwich.errors import GitProtocolError
from urllib3 import exceptions as failed
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.util import Retry, Timeout

from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources.access import Access, Limits

BROKEN = (OperatorError, failed.HTTPError, GitProtocolError, AssertionError, IndexError, KeyError, OSError, ValueError)
"""What a connection that ends in the middle of an answer is to the library."""

MAX_RETRY_AFTER_S = 600.0
SAID_AT_MOST = 300
"""Characters of a server's own words in an error."""


class Throttled(Unreachable):
    """The server asks to be left alone for a while. Whoever polls waits, and not this call."""

    def __init__(self, what: str, *, why: str, do: str, after_s: float | None) -> None:
        super().__init__(what, why=why, do=do)
        self.after_s = after_s
        """As the server asked, at most ten minutes; None where it gave no time."""


class Wire(urllib3.PoolManager):
    """A pool for one repository. Everything it raises is an `OperatorError`."""

    def __init__(self, shown: str, limits: Limits, **way: Any) -> None:
        """Connect to nothing yet.

        Args:
            shown: the repository, as errors name it.
            limits: until a connection is there, and until the next byte.
            way: where a proxy is, for a pool that has one.
        """
        super().__init__(
            **way,
            headers={"User-Agent": default_user_agent_string()},
            timeout=Timeout(connect=limits.connect_s, read=limits.read_s),
            retries=Retry(total=5, connect=0, read=0, status=0, other=0, redirect=5, respect_retry_after_header=False),
        )
        self._shown = shown
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._cut = threading.Event()

    def request(self, method: str, url: str, *args: Any, **kwargs: Any) -> urllib3.BaseHTTPResponse:
        """As urllib3's, but only what git can read is returned."""
        try:
            response = super().request(method, url, *args, **kwargs)
        except failed.HTTPError as e:
            raise self.sentence(e) from None
        wanted = "application/x-git-"
        if response.status == 200 and response.headers.get("Content-Type", "").startswith(wanted):
            return response
        response.close()
        raise self._no(response)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Ends whatever is on the wire after so long, a server that sends a byte now and then too."""
        self._cut.clear()
        timer = threading.Timer(seconds, self._hang_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        except BROKEN as e:
            if self._cut.is_set():
                raise Unreachable(
                    f"{self._shown} cannot be reached",
                    why=f"it did not finish within {seconds:.0f} s",
                    do="check the network between here and there",
                ) from None
            if isinstance(e, failed.HTTPError):
                raise self.sentence(e) from None
            raise
        finally:
            timer.cancel()
            timer.join()

    def broken(self) -> Unreachable:
        """What is said of an answer that ends in the middle."""
        return Unreachable(
            f"{self._shown} cannot be reached", why="the connection broke", do="nothing: it is tried again"
        )

    def sentence(self, error: failed.HTTPError) -> Unreachable:
        """What went wrong below HTTP, without a word of the library's that could hold an address or a secret."""
        if isinstance(error, failed.MaxRetryError) and error.reason is not None:
            error = error.reason if isinstance(error.reason, failed.HTTPError) else error
        for kind, why, do in (
            (failed.ProxyError, "its proxy does not let us through", "check --git-proxy, or HTTPS_PROXY"),
            (failed.NameResolutionError, "its name cannot be resolved", "check the host's name and DNS"),
            (failed.NewConnectionError, "nothing answers at its address", "check that the server runs"),
            (failed.ConnectTimeoutError, "no connection in time", "check the network between here and there"),
            (failed.ReadTimeoutError, "it stopped answering", "nothing: it is tried again"),
            (failed.SSLError, *_of_tls(error)),
            (failed.ResponseError, "it redirects in circles", "check the address"),
        ):
            if isinstance(error, kind):
                return Unreachable(f"{self._shown} cannot be reached", why=why, do=do)
        return self.broken()

    def _no(self, response: urllib3.BaseHTTPResponse) -> OperatorError:
        shown, status = self._shown, response.status
        if status == 200:
            return Refused(
                f"there is no git repository at {shown}",
                why="what answers there is not git over HTTP; it may be a page to log in",
                do="check the address: it is the one that git clone takes",
            )
        if status == 429 or (status in (403, 503) and "Retry-After" in response.headers):
            return Throttled(
                f"{shown} asks for a pause",
                why=f"the server answers {status}",
                do="nothing: it is tried again; poll less often if this stays",
                after_s=_seconds(response.headers.get("Retry-After")),
            )
        if status in (401, 403):
            return Refused(
                f"{shown} refused us",
                why=f"the server answers {status}: the token is missing, wrong, or has not this right",
                do="put a token that may do this into the file given with --git-token-file",
            )
        if status in (404, 410):
            return Refused(
                f"there is no repository at {shown}",
                why=f"the server answers {status}, as many do for a private one without a token too",
                do="check the address, or give --git-token-file",
            )
        kind = Refused if 400 <= status < 500 else Unreachable
        return kind(f"{shown} did not answer", why=f"the server answers {status}", do="look at the server's log")

    def _hang_up(self) -> None:
        self._cut.set()
        for connection in list(self._connections):
            if connection.sock is not None:
                # The socket's own shutdown also where TLS is on it: it wakes
                # the thread that reads, and leaves the closing to that one.
                with suppress(OSError):
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def _new_pool(self, *args: Any, **kwargs: Any) -> HTTPConnectionPool:
        pool = super()._new_pool(*args, **kwargs)
        make = pool._new_conn  # noqa: SLF001 - where every connection begins

        def remembered() -> Any:
            connection = make()
            self._connections.add(connection)
            return connection

        pool._new_conn = remembered  # type: ignore[method-assign]  # noqa: SLF001
        return pool


class ProxiedWire(Wire, urllib3.ProxyManager):
    """The same, through a proxy."""


def wire(shown: str, access: Access) -> Wire:
    """A pool for one repository.

    Raises:
        Refused: the proxy's address is none.
    """
    if access.proxy is None:
        return Wire(shown, access.limits)
    try:
        return ProxiedWire(shown, access.limits, proxy_url=access.proxy)
    except (failed.HTTPError, ValueError):
        raise Refused(
            f"{shown} cannot be reached through the proxy",
            why="the proxy's address is no http:// or https:// one",
            do="mend --git-proxy, or HTTPS_PROXY of the environment",
        ) from None


def _of_tls(error: failed.HTTPError) -> tuple[str, str]:
    if error.args and isinstance(error.args[0], ssl.SSLCertVerificationError):
        return "its certificate is not trusted", "add its authority to the system's certificates"
    return "what answers there does not speak TLS as we do", "check the address: it may be an http one"


def said(chunks: list[bytes]) -> str:
    """What a server wrote for people, on one line."""
    text = b"".join(chunks).decode("utf-8", "replace")
    clean = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return clean if len(clean) <= SAID_AT_MOST else clean[: SAID_AT_MOST - 1] + "\u2026"


def _seconds(header: str | None) -> float | None:
    # A date is as good as nothing: only differences of our own clock count.
    if header is None or not re.fullmatch(r"\d{1,9}", header.strip()):
        return None
    return min(float(header), MAX_RETRY_AFTER_S)
