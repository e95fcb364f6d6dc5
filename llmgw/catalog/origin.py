"""What `from` says, taken apart: which place, what of it, and how far it is fixed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

COMMIT = re.compile(r"[0-9a-f]{40}")
"""A commit's whole id. Anything else that names a revision can move."""

MAIN = "main"
"""The revision that is meant where none is written."""

REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_SELECTS = ("from", "version", "revision", "files", "ignore")
"""The fields of a source that say what is fetched. A lock keeps them as they were written."""


class Place(StrEnum):
    """Who holds it."""

    HUB = "hub"
    URL = "url"
    FILE = "file"
    MIRROR = "mirror"
    PATH = "path"
    OTHER = "other"


class Origin(NamedTuple):
    """A `from`, read."""

    place: Place
    at: str
    """The repository (`owner/name`), the URL, the path, or `name/version`."""
    revision: str = ""
    """Of a repository: a branch, a tag or a commit."""
    patterns: tuple[str, ...] = ()
    """Of a repository: which of its files. Empty: those that a model is made of."""
    ignored: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether another day the same words may mean other files."""
        return self.place is Place.HUB and not COMMIT.fullmatch(self.revision)

    @property
    def needs_lock(self) -> bool:
        """Whether only a lock can say which files these are."""
        exact = len(self.patterns) == 1 and not re.search(r"[*?\[]", self.patterns[0])
        return self.place is Place.HUB and (self.moves or not exact)

    def takes(self, path: str) -> bool:
        """Whether a repository's file is asked for. As on the hub, `*` stands for slashes too."""
        wanted = not self.patterns or _any(path, self.patterns)
        return wanted and not _any(path, self.ignored)


def origin(asked: Mapping[str, Any]) -> Origin | None:
    """What a source asks for, or None where it cannot be read.

    Args:
        asked: its fields as they are written, as `selection` gives them.
    """
    written = str(asked["from"])
    if written.startswith("/"):
        return Origin(Place.PATH, written)
    try:
        url = urlsplit(written)
    except ValueError:
        return None
    match url.scheme:
        case "hf":
            return _hub(written.removeprefix("hf://"), asked)
        case "mirror":
            parts = written.removeprefix("mirror:").strip("/").split("/")
            return Origin(Place.MIRROR, "/".join(parts)) if len(parts) == 2 and all(parts) else None
        case "file":
            return Origin(Place.FILE, unquote(url.path))
        case "http" | "https":
            return Origin(Place.URL, written)
        case _:
            return Origin(Place.OTHER, written)


def selection(source: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields of a source that say what is fetched, in one order, without what is not written."""
    return {key: source[key] for key in _SELECTS if source.get(key) not in (None, [], ())}


def pinned(asked: Mapping[str, Any], commit: str) -> dict[str, Any]:
    """The same source at one commit, whatever its revision has become since."""
    found = origin(asked)
    if found is None or found.place is not Place.HUB:
        return dict(asked)
    kept = {key: part for key, part in asked.items() if key not in {"revision", "files"}}
    files = {"files": list(found.patterns)} if found.patterns else {}
    return {**kept, "from": f"hf://{found.at}@{quote(commit, safe='')}", **files}


def url_of(found: Origin, commit: str | None, path: str) -> str:
    """Where one file of a source is had from. Empty: it is not fetched by a URL.

    Args:
        found: the source.
        commit: that its revision names.
        path: of the file within it.
    """
    match found.place:
        case Place.HUB:
            # Which hub that is, and who asks there, is the affair of whoever fetches.
            return f"hf://{found.at}@{quote(commit or found.revision, safe='')}/{quote(path)}"
        case Place.URL:
            return f"{found.at}{quote(path)}" if found.at.endswith("/") else found.at
        case Place.FILE:
            folder = found.at.removesuffix(path) if found.at.endswith(f"/{path}") else f"{found.at.rstrip('/')}/"
            return f"file://{quote(folder + path)}"
        case _:
            return ""


def _hub(text: str, asked: Mapping[str, Any]) -> Origin | None:
    head, _, rest = text.partition("@")
    if rest or "@" in text:
        revision, _, pattern = rest.partition("/")
        repository = head
        if not revision:
            return None
    else:
        parts = text.split("/", 2)
        repository, revision, pattern = "/".join(parts[:2]), "", parts[2] if len(parts) > 2 else ""
    if not REPOSITORY.fullmatch(repository):
        return None
    written = unquote(revision) or str(asked.get("revision") or MAIN)
    patterns = tuple(part for part in (unquote(pattern), *asked.get("files", ())) if part)
    return Origin(Place.HUB, repository, written, patterns, tuple(asked.get("ignore", ())))


def _any(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path, f"{p}*" if p.endswith("/") else p) for p in patterns)
