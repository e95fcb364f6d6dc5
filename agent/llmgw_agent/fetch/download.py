"""One file fetched into a part, over http, https or from a file:// source, and checked.

Whoever calls keeps the part under a name nobody else writes to. What is left of
it after any failure, cancel or kill is what the next call goes on from.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from llmgw_agent.errors import OperatorError
from llmgw_agent.fetch.answers import ask, content_length, content_range
from llmgw_agent.fetch.failures import Again, DownloadCancelled, DownloadFailed, Source, shown_size, shown_url
from llmgw_agent.fetch.line import LOOK_EVERY_S, Address, Connections, Line, system_addresses
from llmgw_agent.fetch.part import HEAD_BYTES, Part

__all__ = [
    "HEAD_BYTES",
    "Address",
    "Connections",
    "DownloadCancelled",
    "DownloadFailed",
    "Downloaded",
    "Source",
    "download",
    "shown_url",
    "system_addresses",
]

CONNECT_S = 10.0
LONGEST_WAIT_S = 300.0
"""An upstream that asks to be left alone for longer is asked again all the same."""

TRIES_IN_VAIN = 3
"""Exchanges without a single byte before a source is given up: an error within seconds."""
TRIES = 6
"""The same once bytes have come: a transfer of hours is not given up for a short hiccup."""

_PROGRESS_BYTES = 1 << 20
"""What has to come before earlier failures are forgotten: a connection that dies every few bytes is no progress."""
_BLOCK = 1 << 18
_EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class Downloaded(NamedTuple):
    """A file that is whole, right and on the disk."""

    bytes: int
    sha256: str


def _ignore(_: object) -> None:
    pass


def _never() -> bool:
    return False


def download(
    url: str,
    part: Path,
    *,
    expect_bytes: int | None = None,
    expect_sha256: str | None = None,
    on_bytes: Callable[[int], None] = _ignore,
    on_total: Callable[[int], None] = _ignore,
    cancelled: Callable[[], bool] = _never,
    check_hop: Callable[[str], None] = _ignore,
    check_head: Callable[[bytes], None] = _ignore,
    addresses: Callable[[str, int], Sequence[Address]] = system_addresses,
    headers: Mapping[str, str] | None = None,
    pool: Connections | None = None,
    stall_s: float = 60.0,
    backoff_s: float = 1.0,
) -> Downloaded:
    """Fetch `url` into `part`, going on from what is there.

    A part without a sum to check it by is begun again: nothing would notice that
    upstream has changed since, or that a power cut lost some of it. A sum that is
    wrong has the file fetched once more from byte 0, and fails the second time.

    Args:
        url: http, https or file.
        part: where it is written; nobody else writes there.
        expect_bytes: its whole size, where that is known.
        expect_sha256: its sum, where that is known.
        on_bytes: told how many bytes are here, each time that changes; the
            number falls when a file is begun again.
        on_total: told the whole size once the source says it. May raise.
        cancelled: asked often, and from another thread too.
        check_hop: asked about every URL before it is used, redirects included,
            and about the file that a file:// URL has really opened. Raises.
        check_head: given the first bytes once 64 are here, or the whole of a
            shorter file. Raises.
        addresses: where a host may be reached. Raises.
        headers: sent to the first URL's origin, and to no other.
        pool: connections to use and keep, in place of new ones.
        stall_s: a connection that gives nothing for this long is given up.
        backoff_s: the wait before the second try; it doubles.

    Raises:
        DownloadFailed: said for an operator; the part is kept.
        DownloadCancelled: `cancelled` answered yes.
    """
    source = Source(url)
    try:
        with Part(part) as here, Line(unwanted=cancelled, stall_s=stall_s, addresses=addresses) as line:
            fetch = _Fetch(
                source=source,
                here=here,
                line=line,
                pool=pool or Connections(),
                expect_bytes=expect_bytes,
                expect_sha256=expect_sha256,
                on_bytes=on_bytes,
                on_total=on_total,
                cancelled=cancelled,
                check_hop=check_hop,
                check_head=check_head,
                headers=headers or {},
                stall_s=stall_s,
                backoff_s=backoff_s,
            )
            try:
                return fetch.run()
            finally:
                if pool is None:
                    fetch.pool.clear()
    except OSError as e:  # the network's and the source's are caught where they happen: this is the part's
        raise source.unwritable(e, part, expect_bytes) from e


@dataclass
class _Fetch:
    """What one call of `download` was asked, and what it has learnt so far."""

    source: Source
    here: Part
    line: Line
    pool: Connections
    expect_bytes: int | None
    expect_sha256: str | None
    on_bytes: Callable[[int], None]
    on_total: Callable[[int], None]
    cancelled: Callable[[], bool]
    check_hop: Callable[[str], None]
    check_head: Callable[[bytes], None]
    headers: Mapping[str, str]
    stall_s: float
    backoff_s: float
    validator: str = ""
    """The strong ETag of the first answer: without a sum, what says that the rest belongs to the beginning."""
    ranged: bool = True
    """Whether this source goes on from where it is asked to."""
    head_passed: bool = False

    def run(self) -> Downloaded:
        self._take_up()
        wrong = ""
        while True:
            if self.here.size != self.expect_bytes:
                self._get()
            self._check_whole()
            got = self.here.sha256
            if self.expect_sha256 in {None, got}:
                self.here.sync()
                return Downloaded(self.here.size, got)
            if wrong:
                before = "" if wrong == got else f" ({wrong} the time before)"
                raise self.source.failed(
                    "digest",
                    f"its sha256 is {got}{before} where {self.expect_sha256} was expected",
                    "compare with the sum its publisher names: either the catalog's is wrong, or this is another file",
                )
            wrong = got
            self._restart()

    def _take_up(self) -> None:
        """Go on from what an earlier call left, where the sum will show whether that was right."""
        left = self.here.size
        if self.expect_sha256 is None or (self.expect_bytes is not None and left > self.expect_bytes):
            self._restart()
        elif left:
            self.here.take_up(self._still_wanted)
            if self.here.size >= HEAD_BYTES:
                with suppress(OperatorError):  # it is empty then, and what comes in its place is judged again
                    self._check_head()
            self.on_bytes(self.here.size)

    def _restart(self) -> None:
        self.here.restart()
        self.validator, self.head_passed = "", False
        self.on_bytes(0)

    def _get(self) -> None:
        """Whatever is missing, until the source says that it has ended."""
        if self.source.scheme == "file":
            self._copy()
            return
        if self.source.scheme not in {"http", "https"}:
            raise self.source.failed("refused", "it is not an http, https or file URL", "correct the source")
        failures, mark, came = 0, self.here.size, False
        while True:
            before = self.here.size
            try:
                self._exchange()
            except Again as e:
                self._still_wanted()
                came = came or self.here.size > before
                if self.here.size - mark >= _PROGRESS_BYTES:
                    failures, mark = 0, self.here.size
                failures += 1
                if failures >= (TRIES if came else TRIES_IN_VAIN):
                    do = "look whether the source is up, and reachable from here"
                    raise self.source.failed(e.cause, e.why, do, lasting=False) from e
                self._pause(max(e.after_s, self.backoff_s * 2 ** (failures - 1)))
            else:
                return

    def _copy(self) -> None:
        """The rest of a file:// source."""
        self.check_hop(self.source.url)
        path = unquote(urlsplit(self.source.url).path)
        try:
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
        except OSError as e:
            raise self.source.unreadable(e) from e
        with file:
            # About what was opened, and not about its name: a link on the way may
            # lead elsewhere by now.
            self.check_hop(Path(os.path.realpath(f"/proc/self/fd/{file.fileno()}")).as_uri())
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise self.source.failed("not_found", "it is not a regular file", "name the file itself")
            self._total(found.st_size)
            if self.here.size > found.st_size:
                self._restart()
            file.seek(self.here.size)
            while block := self._read(file):
                self._keep(block)

    def _read(self, file: FileIO) -> bytes:
        self._still_wanted()
        try:
            return file.read(_BLOCK)
        except OSError as e:
            raise self.source.unreadable(e) from e

    def _exchange(self) -> None:
        """One request, and as much of the file as comes of it."""
        if self.here.size and not (self.ranged and (self.expect_sha256 or self.validator)):
            self._restart()
        self.line.moved()
        try:
            with closing(self._ask()) as answer:
                if self._accept(answer):
                    while block := answer.read1(_BLOCK, decode_content=False):
                        self.line.moved()
                        self._keep(block)
            cut = self.line.was_cut
        except HTTPError as e:
            raise self.source.broken(e) from e
        finally:
            self.line.let_go()
        if cut:  # which looks like the end of a body without a length
            raise Again("unreachable", "it fell silent")
        if self.expect_bytes is not None and self.here.size < self.expect_bytes:
            raise Again("size", f"it ends after {shown_size(self.here.size)} of {shown_size(self.expect_bytes)}")

    def _ask(self) -> urllib3.BaseHTTPResponse:
        fields = {"Accept-Encoding": "identity", "User-Agent": "llmgw"}
        if self.here.size:
            fields["Range"] = f"bytes={self.here.size}-"
            if self.expect_sha256 is None:
                fields["If-Range"] = self.validator
        return ask(
            self.source,
            pool=self.pool,
            fields=fields,
            private=self.headers,
            check_hop=self._hop,
            timeout=urllib3.Timeout(connect=min(CONNECT_S, self.stall_s), read=self.stall_s),
        )

    def _hop(self, url: str) -> None:
        self._still_wanted()
        self.line.moved()
        self.check_hop(url)

    def _accept(self, answer: urllib3.BaseHTTPResponse) -> bool:
        """Whether the body is the file, from where we are. False where there is nothing more to come."""
        have = self.here.size
        first, total = content_range(answer)
        if answer.status == 416 and have:
            if total == have and self.expect_bytes in {None, have}:
                return False
            self.ranged = False
            raise Again("upstream", "it answers 416 to a range within the file")
        if answer.status == 206 and have:
            if first != have:
                self.ranged = False
                raise Again("upstream", "it sends another range than the one asked for")
        elif answer.status == 200:
            total = content_length(answer)
            if have:
                self._restart()
        else:
            raise self.source.answered(answer)
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise self.source.failed("upstream", "it compresses the file though asked not to")
        self._refuse_page(answer, total)
        if total is not None:
            self._total(total)
        tag = answer.headers.get("ETag", "")
        if tag.startswith('"'):
            self.validator = self.validator or tag
        return True

    def _refuse_page(self, answer: urllib3.BaseHTTPResponse, total: int | None) -> None:
        """An error page under status 200: a proxy's, a login's, or the page about the file in place of the file."""
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "text/html" or (total is not None and total == self.expect_bytes):
            return
        if self.source.url.endswith((".html", ".htm")):
            return
        size = total if total is not None else len(answer.read(1 << 16, decode_content=False))
        place = "the file" if self.expect_bytes is None else shown_size(self.expect_bytes)
        # Passing: a captive portal goes away by itself, and asking once more for a page costs nothing.
        raise self.source.failed(
            "upstream", f"it sends {shown_size(size)} of text/html in place of {place}", lasting=False
        )

    def _total(self, total: int) -> None:
        """The source has said how long the whole is."""
        if self.expect_bytes is not None and total != self.expect_bytes:
            raise self.source.failed("size", f"it has {total} bytes there, and {self.expect_bytes} were expected")
        self.on_total(total)

    def _keep(self, block: bytes) -> None:
        if self.expect_bytes is not None and self.here.size + len(block) > self.expect_bytes:
            raise self.source.failed("size", f"it sends more than the {shown_size(self.expect_bytes)} expected")
        self.here.write(block)
        if self.here.size >= HEAD_BYTES:
            self._check_head()
        self.on_bytes(self.here.size)

    def _check_head(self) -> None:
        if self.head_passed:
            return
        try:
            self.check_head(self.here.head)
        except OperatorError:
            self._restart()  # or the next call would go on from it, and be refused for ever
            raise
        self.head_passed = True

    def _check_whole(self) -> None:
        size = self.here.size
        if size == 0 and self.expect_bytes != 0 and self.expect_sha256 != _EMPTY_SHA256:
            raise self.source.failed("size", "it is empty: 0 bytes came")
        if self.expect_bytes is not None and size != self.expect_bytes:
            raise self.source.failed("size", f"it ends after {shown_size(size)} of {shown_size(self.expect_bytes)}")
        self._check_head()

    def _still_wanted(self) -> None:
        if self.cancelled():
            raise DownloadCancelled

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + min(seconds, LONGEST_WAIT_S)
        while (left := until - time.monotonic()) > 0:
            self._still_wanted()
            time.sleep(min(left, LOOK_EVERY_S))
