"""The answer at the end of a URL's redirects, and what its headers say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import urljoin, urlsplit

import urllib3

from llmgw_agent.fetch.failures import Source
from llmgw_agent.fetch.line import Connections

MAX_REDIRECTS = 5

_REDIRECTS = {301, 302, 303, 307, 308}


def _ignore(_: object) -> None:
    pass


def ask(
    source: Source,
    *,
    pool: Connections,
    fields: Mapping[str, str],
    private: Mapping[str, str],
    check_hop: Callable[[str], None],
    timeout: urllib3.Timeout,
    method: str = "GET",
    on_redirect: Callable[[Mapping[str, str]], None] = _ignore,
) -> urllib3.BaseHTTPResponse:
    """The first answer that is not a redirect, its body unread.

    Redirects are followed by hand: every hop is asked about first, and what is
    `private` to the first scheme, host and port goes no further than these.
    `on_redirect` is shown the headers of each on the way.
    """
    url, fields = source.url, {**private, **fields}
    for _ in range(1 + MAX_REDIRECTS):
        check_hop(url)
        answer = pool.urlopen(
            method,
            url,
            headers=fields,
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
            timeout=timeout,
        )
        if answer.status not in _REDIRECTS:
            return answer
        on_redirect(answer.headers)
        answer.close()
        onward = _onward(url, answer.headers.get("Location", ""))
        if onward is None:
            raise source.failed(
                "upstream", f"it answers {answer.status} and leads to no web address, or away from https"
            )
        if _origin(onward) != _origin(url):
            fields = {name: value for name, value in fields.items() if name not in private}
        url = onward
    raise source.failed("upstream", f"it redirects more than {MAX_REDIRECTS} times")


def content_length(answer: urllib3.BaseHTTPResponse) -> int | None:
    """None where it does not say."""
    return _number(answer.headers.get("Content-Length", ""))


def content_range(answer: urllib3.BaseHTTPResponse) -> tuple[int | None, int | None]:
    """First byte and whole size of a Content-Range, each None where it does not say."""
    said = answer.headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18}|\*)", said)
    return (_number(found[1] or ""), _number(found[2])) if found else (None, None)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,18}", text) else None


def _onward(url: str, location: str) -> str | None:
    """Where a redirect leads. None where that is not a web address, or is less safe than this one."""
    try:
        onward = urljoin(url, location)
        old, new = urlsplit(url), urlsplit(onward)
        usable = bool(location and new.hostname) and new.port != 0
    except ValueError:
        return None
    safe = new.scheme == "https" or (new.scheme == "http" and old.scheme == "http")
    return onward if usable and safe else None


def _origin(url: str) -> tuple[str, str | None, int]:
    split = urlsplit(url)
    return split.scheme, split.hostname, split.port or (443 if split.scheme == "https" else 80)
