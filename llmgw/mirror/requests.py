"""What somebody asks the mirror to fetch, checked: every problem, not the first."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import msgspec

from llmgw.core.holdings import FetchRequest, WantedFile
from llmgw.errors import Refused
from llmgw.mirror import names, weights
from llmgw.mirror.sources import Sources
from llmgw_agent.fetch.download import shown_url

_MOST = 50
"""Problems that are said; a request may have ten thousand."""


class Invalid(Refused):
    """A request that cannot be done as it stands."""


def checked(request: FetchRequest, sources: Sources) -> FetchRequest:
    """The request with its files listed and sorted, `from` resolved to the one file it names.

    Raises:
        Invalid: with every problem.
    """
    files = request.files
    if request.from_:
        files = (WantedFile(_last_segment(request.from_), request.from_, sha256=request.sha256),)
    problems = list(_problems(request, files, sources))
    if problems:
        raise Invalid(
            f"{request.name[:80]!a}/{request.version[:80]!a} cannot be fetched as it is asked for",
            why="; ".join(problems[:_MOST]) + (f"; and {len(problems) - _MOST} more" if len(problems) > _MOST else ""),
            do="correct the request: a model's source in the catalog, or what was sent",
        )
    return msgspec.structs.replace(request, files=tuple(sorted(files, key=lambda f: f.path)), sha256=None)


def fetch_id(request: FetchRequest) -> str:
    """Names the content of a checked request: the same asked twice is the same fetch."""
    content = [request.name, request.version, [[f.path, f.url, f.bytes, f.sha256] for f in request.files]]
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32]


def same_content(one: FetchRequest, other: FetchRequest) -> bool:
    """Whether two checked requests ask for the same files, as far as both say."""
    mine = {f.path: f for f in one.files}
    return mine.keys() == {f.path for f in other.files} and all(_agree(mine[f.path], f) for f in other.files)


def where_from(request: FetchRequest) -> str:
    """Where a checked request's files come from, without what may be secret."""
    first = request.files[0]
    url = shown_url(first.url)
    return url if len(request.files) == 1 else url.removesuffix(first.path)


def _problems(request: FetchRequest, files: tuple[WantedFile, ...], sources: Sources) -> Iterator[str]:
    yield from names.name_problems(request.name, request.version)
    if request.origin not in {"catalog", "hand"}:
        yield f"origin {request.origin[:80]!a}: it is catalog or hand"
    if bool(request.from_) == bool(request.files):
        yield "give either files, or from with one URL"
    if request.from_ and not files[0].path:
        yield "from ends in a slash: a folder cannot be listed; name its files"
    else:
        yield from (problem for _, problem in names.path_problems(f.path for f in files))
    for file in files:
        if problem := weights.name_problem(file.path):
            yield problem
        if problem := sources.problem(file.url):
            yield f"{shown_url(file.url)}: {problem}"
        if file.bytes is not None and file.bytes < 0:
            yield f"file {file.path[:80]!a}: its size is negative"
        if file.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
            yield f"file {file.path[:80]!a}: a sha256 is 64 of 0-9 and a-f"


def _agree(one: WantedFile, other: WantedFile) -> bool:
    return (
        one.url == other.url
        and (None in {one.bytes, other.bytes} or one.bytes == other.bytes)
        and (None in {one.sha256, other.sha256} or one.sha256 == other.sha256)
    )


def _last_segment(url: str) -> str:
    try:
        return unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return "malformed"  # the URL itself is the problem that is reported
