"""How fetching a file fails: the causes, and the sentences for them."""

from __future__ import annotations

import errno
import os
import ssl
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlsplit

from urllib3.exceptions import HTTPError, LocationValueError, SSLError
from urllib3.exceptions import TimeoutError as TookTooLong
from urllib3.response import BaseHTTPResponse

from llmgw_agent.errors import OperatorError

LOOK_AT_URL = "open the URL yourself and correct the source; on Hugging Face a file is under /resolve/, not /blob/"

_PASSING = {408, 425, 429, 500, 502, 503, 504}


class DownloadFailed(OperatorError):
    """A file that could not be had.

    Its `cause` is one of those `llmgw.core.holdings.Failure` lists; `lasting`
    says that trying again cannot help until somebody changes something.
    """

    def __init__(self, what: str, *, why: str, do: str, cause: str, lasting: bool) -> None:
        super().__init__(what, why=why, do=do)
        self.cause, self.lasting = cause, lasting


class DownloadCancelled(Exception):
    """Nobody wants the file any more. Not an error: the caller said so itself."""


class Again(Exception):
    """A try that failed in a way that may pass. Never leaves `download`."""

    def __init__(self, cause: str, why: str, *, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.cause, self.why, self.after_s = cause, why, after_s


def shown_url(url: str) -> str:
    """A URL as it may be quoted: without its query and userinfo, where secrets travel."""
    try:
        split = urlsplit(url)
    except ValueError:
        return "a malformed URL"
    host = split.netloc.rpartition("@")[2]
    return quote(f"{split.scheme}://{host}{split.path}", safe=":/%[]@")[:300]


def shown_size(n: int) -> str:
    """`98.4 MB`, `635 bytes`."""
    value = float(n)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{n} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


@dataclass(frozen=True)
class Source:
    """Where a file comes from, and what is said when it does not."""

    url: str

    @property
    def scheme(self) -> str:
        """Empty where it is no URL."""
        try:
            return urlsplit(self.url).scheme
        except ValueError:
            return ""

    def failed(self, cause: str, why: str, do: str = LOOK_AT_URL, *, lasting: bool = True) -> DownloadFailed:
        return DownloadFailed(
            f"{shown_url(self.url)} could not be fetched", why=why, do=do, cause=cause, lasting=lasting
        )

    def answered(self, answer: BaseHTTPResponse) -> DownloadFailed | Again:
        """What a status that brings no file means."""
        status = answer.status
        try:
            said = f"it answers {status} {HTTPStatus(status).phrase}"
        except ValueError:
            said = f"it answers {status}"
        if status in _PASSING:
            return Again("upstream", said, after_s=_retry_after_s(answer.headers.get("Retry-After", "")))
        if status in {401, 403}:
            return self.failed("forbidden", said, "accept its terms, or use a source that needs no credentials")
        return self.failed("not_found" if status in {404, 410} else "upstream", said)

    def broken(self, error: HTTPError) -> DownloadFailed | Again:
        """What an exchange that broke means. In our own words: the library's quote URLs whole."""
        reason = error.args[0] if error.args else None
        match error:
            case LocationValueError():
                return self.failed("refused", "it is not a URL that can be asked for", "correct the source")
            case SSLError() if isinstance(reason, ssl.SSLCertVerificationError):
                do = "correct the host's certificate, or the clock here"
                return self.failed("unreachable", f"its certificate: {reason.verify_message}", do, lasting=False)
            case SSLError():
                return Again("unreachable", "TLS failed")
            case TookTooLong():
                return Again("unreachable", "it fell silent")
            case _:
                return Again("unreachable", "the connection broke")

    def unreadable(self, error: OSError) -> DownloadFailed:
        """What a file:// source that cannot be read means."""
        match error.errno:
            case errno.ENOENT | errno.ENOTDIR:
                return self.failed("not_found", "there is no such file", "correct the path, or put the file there")
            case errno.EISDIR:
                return self.failed("not_found", "it is not a regular file", "name the file itself")
            case errno.EACCES | errno.EPERM:
                return self.failed("forbidden", "this process may not read it", "give its user the right to read it")
            case _:
                return self.failed("upstream", f"reading it failed: {error.strerror}", "look at the disk it is on")

    def unwritable(self, error: OSError, part: Path, total: int | None) -> DownloadFailed:
        """What a part that cannot be written means."""
        do = "free space there; what has come so far is kept"
        match error.errno:
            case errno.ENOSPC:
                return self.failed("disk_full", f"disk full{_short(part, total)}", do, lasting=False)
            case errno.EDQUOT:
                return self.failed("disk_full", "disk full: this user's quota is used up", do, lasting=False)
            case errno.EFBIG:
                return self.failed("disk_full", "a file may not grow any further here", do, lasting=False)
            case _:
                why = f"{part.parent} cannot be written: {error.strerror}"
                return self.failed("disk", why, "look at that disk and its rights", lasting=False)


def _short(part: Path, total: int | None) -> str:
    try:
        disk, have = os.statvfs(part.parent), part.stat().st_size
    except OSError:
        return ""
    if total is None:
        return f" after {shown_size(have)}"
    return f", {shown_size(max(total - have - disk.f_bavail * disk.f_frsize, 0))} short"


def _retry_after_s(text: str) -> float:
    """Seconds of a Retry-After, which is a number or a date. 0 where it says nothing usable."""
    if text.isdecimal():
        return float(text[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return 0.0
