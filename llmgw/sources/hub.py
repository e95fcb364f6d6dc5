"""Hugging Face, or whatever speaks its API: what a repository holds at a revision.

Sizes and sums come from the listing of one commit, so a branch that moves
while it is read changes nothing. docs/decisions/0006 says why this is not the
hub's own client.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct, field

from llmgw.catalog.origin import COMMIT, Origin
from llmgw.core.resolved import Resolved, ResolvedFile
from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.net.key import read_key
from llmgw.sources import selecting
from llmgw.sources.hub_refusals import refusal
from llmgw.sources.hub_text import plain
from llmgw.sources.web import Said, Web

T = TypeVar("T")

ENDPOINT = "https://huggingface.co"

MAX_PAGES = 200
"""Of one listing: 200,000 files, and no server keeps us longer."""
_PAGE_BYTES = 16 << 20
_SMALL_BYTES = 32 << 20
"""What is not in LFS has no published sha256, and is read to find it: up to this size, which is three times
what the hub keeps out of LFS."""
_AT_ONCE = 8


class _Info(Struct, rename={"card": "cardData"}):
    sha: str
    gated: bool | str | None = False
    card: dict[str, Any] | None = None
    tags: list[str] = field(default_factory=list)


class _Lfs(Struct):
    oid: str
    size: int


class TreeFile(Struct):
    """One row of a listing."""

    type: str
    path: str
    size: int = 0
    oid: str = ""
    """git's own, which of a file in LFS is its pointer's."""
    lfs: _Lfs | None = None


class Hub:
    """One endpoint, with or without a token. One in a file is read at each use."""

    def __init__(self, web: Web, *, endpoint: str = ENDPOINT, token_file: Path | None = None, token: str = "") -> None:
        """Ask nothing yet.

        Args:
            web: asks.
            endpoint: where the API is.
            token_file: holds a token.
            token: from the environment, where there is no file.

        Raises:
            Refused: the endpoint is no URL, the token is none, or it would travel in the clear.
        """
        self.endpoint = endpoint.rstrip("/")
        self._web, self._token_file, self._token = web, token_file, token.strip()
        self._token_at = str(token_file) if token_file else "HF_TOKEN" if self._token else ""
        split = urlsplit(self.endpoint)
        if split.scheme not in {"http", "https"} or not split.hostname or "@" in split.netloc:
            raise Refused(
                f"{endpoint!r} is no hub's address",
                why="it is the beginning of a URL, without a user",
                do=f"write it like {ENDPOINT}",
            )
        if self._token_at and split.scheme == "http" and not _here(split.hostname):
            raise Refused(
                f"the token is not sent to {self.endpoint}",
                why="over plain http everybody on the way could read it",
                do=f"use https, or leave the token of {self._token_at} away",
            )
        if not (self._token.isascii() and re.fullmatch(r"\S*", self._token)):
            raise Refused("HF_TOKEN is no token", why="it has characters that none has", do="set it again, or unset it")

    def resolve(self, asked: Origin) -> Resolved:
        """The files that are asked for, at the commit that the revision names now.

        Raises:
            Refused: they are not there, or may not be had.
            Unreachable: the hub cannot be asked now.
            OperatorError: it answers what no hub does.
        """
        info = self._info(asked)
        files = selecting.chosen(asked, {file.path: file for file in self.files(asked.at, info.sha)})
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            listed = tuple(pool.map(lambda file: self._listed(asked.at, info.sha, file), files))
        card = info.card or {}
        return Resolved(
            files=tuple(sorted(listed)),
            commit=info.sha,
            license=_text(card.get("license")) or _tagged(info.tags, "license:"),
            gated=bool(info.gated),
            base_model=_text(card.get("base_model")) or _tagged(info.tags, "base_model:"),
        )

    def reachable(self, repository: str, commit: str, path: str) -> None:
        """Whether the bytes of a file may be had: a gated repository lists files that it does not give.

        Raises:
            OperatorError: as `resolve`.
        """
        said = self._web.ask(
            self.url(repository, commit, path), method="HEAD", private=self.private(), most_bytes=_SMALL_BYTES
        )
        if said.status != 200:
            raise self._refusal(said, repository, commit, path)

    def read(self, repository: str, commit: str, path: str, start: int, end: int) -> bytes:
        """The bytes of a file from start up to, and without, end; fewer where it ends before.

        Raises:
            OperatorError: as `resolve`.
        """
        said = self._web.ask(
            self.url(repository, commit, path),
            fields={"Range": f"bytes={start}-{end - 1}"},
            private=self.private(),
            most_bytes=end - start if start else end,
            cut=True,
        )
        if said.status == 206 and said.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            return said.body
        if said.status == 200:
            return said.body[start:end]
        if said.status == 416:
            return b""
        raise self._refusal(said, repository, commit, path)

    def url(self, repository: str, commit: str, path: str) -> str:
        """Where a file is."""
        return f"{self.endpoint}/{repository}/resolve/{quote(commit, safe='')}/{quote(path)}"

    def private(self) -> dict[str, str]:
        """What says who asks: for the endpoint, and for no other host."""
        token = read_key(self._token_file) if self._token_file else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _info(self, asked: Origin) -> _Info:
        path = f"/api/models/{asked.at}/revision/{quote(asked.revision, safe='')}"
        info = self.value(self.get(path, asked.at, asked.revision), path, _Info)
        if not COMMIT.fullmatch(info.sha):
            raise self.nonsense(path, f"the commit is {info.sha[:50]!a}")
        return info

    def files(self, repository: str, commit: str, *, pages: int | None = None) -> Iterator[TreeFile]:
        """Every file of a commit.

        Raises:
            OperatorError: as `resolve`, or there are more pages than that.
        """
        path = f"/api/models/{repository}/tree/{quote(commit, safe='')}?recursive=true"
        most = pages or MAX_PAGES
        for _ in range(most):
            said = self.get(path, repository, commit)
            for row in self.value(said, path, list[TreeFile]):
                if row.type == "file":
                    yield row
            onward = self.onward(said, path)
            if not onward:
                return
            path = onward
        raise self.nonsense(path, f"its listing has more than {most} pages")

    def onward(self, said: Said, path: str) -> str:
        """The path of the next page. Empty: there is none.

        Raises:
            OperatorError: it is on another host. It is asked for with the token, so it is not asked for.
        """
        found = re.search(r'<([^>]*)>;\s*rel="?next"?', said.headers.get("Link", ""))
        if found is None:
            return ""
        url = found[1] if not found[1].startswith("/") else self.endpoint + found[1]
        if not url.startswith(f"{self.endpoint}/"):
            raise self.nonsense(path, "the next page of its listing is on another host")
        return url.removeprefix(self.endpoint)

    def _listed(self, repository: str, commit: str, file: TreeFile) -> ResolvedFile:
        if file.lfs is not None:
            if not re.fullmatch(r"[0-9a-f]{64}", file.lfs.oid) or file.lfs.size < 0:
                raise self.nonsense(file.path, "its sum in the listing is no sha256")
            return ResolvedFile(file.path, file.lfs.size, file.lfs.oid)
        if not 0 <= file.size <= _SMALL_BYTES:
            return ResolvedFile(file.path, file.size)
        data = self.read(repository, commit, file.path, 0, file.size) if file.size else b""
        # git's sum of the file is in the listing: what was read is what was listed, or it is not used.
        blob = hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()
        if blob != file.oid:
            raise Unreachable(
                f"{file.path} of {repository} came damaged",
                why=f"its git id is {blob}, and the listing says {file.oid[:40]!a}",
                do="call again",
            )
        return ResolvedFile(file.path, len(data), hashlib.sha256(data).hexdigest())

    def get(self, path: str, repository: str = "", revision: str = "") -> Said:
        """A good answer of the API.

        Args:
            path: with its query.
            repository: it is about; empty: none, it is a search.
            revision: of that.

        Raises:
            OperatorError: as `resolve`.
        """
        said = self._web.ask(self.endpoint + path, private=self.private(), most_bytes=_PAGE_BYTES)
        if said.status != 200:
            raise self._refusal(said, repository, revision)
        return said

    def value(self, said: Said, path: str, kind: type[T]) -> T:
        """An answer's value.

        Raises:
            OperatorError: it is none of that kind.
        """
        try:
            return msgspec.json.decode(said.body, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as e:
            kind_said = plain(said.headers.get("Content-Type", "").partition(";")[0])
            raise self.nonsense(path, f"{kind_said or 'nothing that names itself'}: {e}") from None

    def nonsense(self, path: str, why: str) -> OperatorError:
        """That an answer is none of a hub's."""
        return OperatorError(
            f"{self.endpoint} does not answer as a hub does",
            why=f"{path.partition('?')[0]}: {why}",
            do="see that the endpoint is a hub, and that no proxy answers in its place",
        )

    def _refusal(self, said: Said, repository: str, revision: str, path: str = "") -> OperatorError:
        at = f"hf://{repository}" + (f"@{revision}" if revision else "") + (f"/{path}" if path else "")
        page = f"{self.endpoint}/{repository}"
        return refusal(said, at if repository else f"the list of {self.endpoint}", page=page, token_at=self._token_at)


def _text(value: Any) -> str:
    """A card's value. A list's first: some models have several base models."""
    first = value[0] if isinstance(value, list) and value else value
    return first[:200] if isinstance(first, str) and first.isprintable() else ""


def _tagged(tags: list[str], prefix: str) -> str:
    return next((tag.removeprefix(prefix)[:200] for tag in tags if tag.startswith(prefix) and tag.isprintable()), "")


def _here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
