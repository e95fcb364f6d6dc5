"""Short questions to web servers: bounded in time and bytes, and asked again where that may help.

On the connections that weights are fetched over, so what can be asked here can
be fetched there, and a redirect carries no token to another host.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import urllib3
from urllib3.exceptions import HTTPError

from llmgw.errors import Unreachable
from llmgw_agent.fetch.answers import ask
from llmgw_agent.fetch.download import Address, Connections, system_addresses
from llmgw_agent.fetch.failures import Again, DownloadFailed, Source, shown_size, shown_url
from llmgw_agent.fetch.line import Line

TRIES = 3
STALL_S = 10.0
"""A connection that gives nothing for this long is given up."""
ONE_S = 30.0
"""One exchange takes no longer, redirects and all, however slowly its bytes come."""
PATIENCE_S = 60.0
"""What all tries of one question may take together, with what a server asks to wait in between."""

_SILENT = Again("unreachable", "it fell silent, or took too long")
_PASSING = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True, slots=True)
class Said:
    """One answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    on_the_way: tuple[Mapping[str, str], ...] = ()
    """The headers of every redirect that led to it: a hub says there what it knows of a file."""

    def header(self, name: str) -> str:
        """From the first answer that has it."""
        return next((found for h in (*self.on_the_way, self.headers) if (found := h.get(name))), "")


def _anywhere(_: str) -> None:
    pass


class Web:
    """Asks. Any number of threads may use one."""

    def __init__(
        self,
        *,
        check_hop: Callable[[str], None] = _anywhere,
        addresses: Callable[[str, int], Sequence[Address]] = system_addresses,
        stall_s: float = STALL_S,
        one_s: float = ONE_S,
        patience_s: float = PATIENCE_S,
        backoff_s: float = 0.5,
    ) -> None:
        """Make no connection yet.

        Args:
            check_hop: asked about every URL before it is used, redirects included. Raises.
            addresses: where a host may be reached. Raises.
            stall_s: how long a connection may give nothing.
            one_s: how long one exchange may take.
            patience_s: how long one question may, with every try.
            backoff_s: the wait before the second try; it doubles.
        """
        self._check_hop, self._addresses = check_hop, addresses
        self._stall_s, self._one_s, self._patience_s = stall_s, one_s, patience_s
        self._backoff_s = backoff_s
        self._pool = Connections()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every connection, and every wait."""
        self._over.set()
        self._pool.clear()

    def ask(
        self,
        url: str,
        *,
        method: str = "GET",
        fields: Mapping[str, str] | None = None,
        private: Mapping[str, str] | None = None,
        most_bytes: int,
        cut: bool = False,
    ) -> Said:
        """The answer at the end of the redirects; of any status but one that may pass.

        Args:
            url: http or https.
            method: GET or HEAD.
            fields: sent to every host on the way.
            private: sent to the first scheme, host and port, and no further.
            most_bytes: of the body.
            cut: a longer body is left off there, and is no failure.

        Raises:
            Unreachable: it does not answer, or only that it cannot now.
            DownloadFailed: it leads nowhere, or where it may not.
        """
        source, until, tried = Source(url), time.monotonic() + self._patience_s, 0
        sent = {"Accept-Encoding": "identity", "User-Agent": "llmgw", **(fields or {})}
        while True:
            try:
                return self._exchange(source, method, sent, private or {}, most_bytes, cut=cut)
            except Again as e:
                tried += 1
                wait = max(e.after_s, self._backoff_s * 2 ** (tried - 1))
                if tried >= TRIES or time.monotonic() + wait > until or self._over.wait(wait):
                    raise _unreachable(url, e) from None
            except DownloadFailed as e:
                if e.lasting:
                    raise
                raise Unreachable(f"{shown_url(url)} cannot be read", why=e.why, do=e.do) from None

    def _exchange(
        self,
        source: Source,
        method: str,
        fields: Mapping[str, str],
        private: Mapping[str, str],
        most_bytes: int,
        *,
        cut: bool,
    ) -> Said:
        until = time.monotonic() + self._one_s
        ways: list[Mapping[str, str]] = []
        unwanted = lambda: self._over.is_set() or time.monotonic() > until  # noqa: E731 - said once, used once
        with Line(unwanted=unwanted, stall_s=self._stall_s, addresses=self._addresses) as line:

            def hop(url: str) -> None:
                line.moved()
                self._check_hop(url)

            line.moved()
            try:
                answer = ask(
                    source,
                    pool=self._pool,
                    fields=fields,
                    private=private,
                    check_hop=hop,
                    timeout=urllib3.Timeout(connect=self._stall_s, read=self._stall_s),
                    method=method,
                    on_redirect=ways.append,
                )
                with closing(answer):
                    body = b"" if method == "HEAD" else self._body(source, answer, line, most_bytes, cut=cut)
                was_cut = line.was_cut
            except HTTPError as e:
                raise (_SILENT if line.was_cut else source.broken(e)) from e
            finally:
                line.let_go()
        if was_cut:
            raise _SILENT
        if answer.status in _PASSING:
            raise _again(answer.status, answer.headers)
        return Said(answer.status, answer.headers, body, tuple(ways))

    def _body(self, source: Source, answer: Any, line: Line, most_bytes: int, *, cut: bool) -> bytes:
        parts, size = [], 0
        while block := answer.read1(1 << 16, decode_content=False):
            line.moved()
            parts.append(block)
            size += len(block)
            if size > most_bytes:
                if not cut:
                    why = f"it sends more than {shown_size(most_bytes)}"
                    raise source.failed("upstream", why, "see what listens there")
                break
        if (said := _length(answer.headers)) is not None and size < said and not (cut and size >= most_bytes):
            raise Again("upstream", f"it ends after {shown_size(size)} of {shown_size(said)}")
        return b"".join(parts)[:most_bytes]


def _length(headers: Mapping[str, str]) -> int | None:
    said = headers.get("Content-Length", "")
    return int(said) if re.fullmatch(r"\d{1,18}", said) else None


def _again(status: int, headers: Mapping[str, str]) -> Again:
    """A hub says in `RateLimit` how long to leave it alone; others say it in `Retry-After`."""
    window = re.search(r"(?:^|[;,\s])t=(\d{1,6})", headers.get("RateLimit", ""))
    after = re.fullmatch(r"\d{1,6}", headers.get("Retry-After", ""))
    wait = max(float(window[1]) if window else 0.0, float(after[0]) if after else 0.0)
    if status == 429:
        return Again("upstream", f"it answers 429 and asks to be left alone for {wait:.0f} s", after_s=wait)
    return Again("upstream", f"it answers {status}", after_s=wait)


def _unreachable(url: str, error: Again) -> Unreachable:
    do = "look whether it is up and reachable from here, and call again"
    if error.after_s:
        do = f"call again in {error.after_s:.0f} s; a token raises most limits: --token-file"
    return Unreachable(f"{shown_url(url)} cannot be read", why=error.why, do=do)
