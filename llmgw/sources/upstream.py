"""What a source holds, whatever its form: asked of a hub, a web server, the mirror or this machine's disk."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Struct

from llmgw.catalog.forms import FILE_PATH
from llmgw.catalog.origin import Origin, Place, origin
from llmgw.catalog.problem import shorten
from llmgw.core.resolved import Resolved, ResolvedFile
from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources import selecting
from llmgw.sources.header import Read, facts_of, read_file
from llmgw.sources.hub import Hub
from llmgw.sources.web import Said, Web
from llmgw_agent.fetch.failures import shown_url

_MANIFEST_BYTES = 4 << 20


class _ManifestFile(Struct):
    path: str
    size: int
    sha256: str


class _Manifest(Struct):
    files: list[_ManifestFile]
    complete: bool = True


def _anywhere(_: Path) -> None:
    pass


class Upstream:
    """Looks at sources. Any number of threads may use one."""

    def __init__(
        self, web: Web, hub: Hub, *, mirror: str | None = None, check_path: Callable[[Path], None] = _anywhere
    ) -> None:
        """Ask nothing yet.

        Args:
            web: asks.
            hub: where `hf://` leads.
            mirror: the byte port of the fleet's mirror, where `mirror:` leads.
            check_path: asked about every path of this machine before it is read. Raises.
        """
        self._web, self._hub = web, hub
        self._mirror, self._check_path = mirror, check_path

    def resolve(self, asked: Mapping[str, Any], *, facts: bool = True) -> Resolved:
        """The files of a source, as they are there now.

        Args:
            asked: the fields of the source that say what is fetched.
            facts: whether its header is read too, by at most two requests.

        Raises:
            Refused: it is not there, or may not be had.
            Unreachable: it cannot be asked now.
            OperatorError: what answers is not what it should be.
        """
        read = origin(asked)
        if read is None:
            raise Refused(
                f"{str(asked['from'])[:200]!a} is no source",
                why="it is written like none",
                do="see docs/lock.md for the forms there are",
            )
        found, reader = self._look(read)
        for file in found.files:
            if not re.fullmatch(FILE_PATH, file.path):
                raise Refused(
                    f"{shorten(file.path)} of {shorten(read.at)} cannot be kept",
                    why="a part of a path is of letters, digits, `.`, `-`, `+` and `_`, and begins with no `.` or `_`",
                    do="leave it out with a pattern, or use another source",
                )
        main = selecting.main_file([file.path for file in found.files]) if facts else None
        if main is None:
            return found
        sizes = {file.path: file.bytes for file in found.files}
        return msgspec.structs.replace(found, facts=facts_of(main, reader, sizes))

    def _look(self, read: Origin) -> tuple[Resolved, Read]:
        match read.place:
            case Place.HUB:
                found = self._hub.resolve(read)
                first = selecting.main_file([f.path for f in found.files]) or found.files[0].path
                self._hub.reachable(read.at, found.commit, first)
                return found, lambda path, start, end: self._hub.read(read.at, found.commit, path, start, end)
            case Place.URL if read.at.endswith("/"):
                return self._manifest(read.at)
            case Place.URL:
                return self._one(read.at), lambda _, start, end: self._part(read.at, start, end)
            case Place.MIRROR:
                if self._mirror is None:
                    raise Refused(
                        f"mirror:{read.at}/ cannot be looked at",
                        why="no mirror is known",
                        do="write `mirror:` into server.yaml, or name one with --via",
                    )
                return self._manifest(f"{self._mirror.rstrip('/')}/{read.at}/")
            case Place.FILE | Place.PATH:
                return self._here(Path(read.at))
            case Place.OTHER:
                raise Refused(
                    f"{shown_url(read.at)} cannot be looked at",
                    why="there is no client for its scheme yet",
                    do="write its https:// address, with the sha256 that its publisher names",
                )

    def _one(self, url: str) -> Resolved:
        said = self._web.ask(url, method="HEAD", private=self._known(url), most_bytes=0)
        size = _length(said)
        if said.status in {403, 405, 501} or (said.status == 200 and size is None):
            # A link that is signed for GET alone, or a server that has no HEAD.
            said = self._web.ask(url, fields={"Range": "bytes=0-0"}, private=self._known(url), most_bytes=1, cut=True)
            size = _total(said)
        if said.status not in {200, 206}:
            raise _refusal(url, said)
        _no_page(url, said)
        name = unquote(urlsplit(url).path).rpartition("/")[2]
        commit = said.header("X-Repo-Commit")
        return Resolved(
            files=(ResolvedFile(name, size, _sha256(said)),),
            commit=commit if re.fullmatch(r"[0-9a-f]{40}", commit) else "",
        )

    def _part(self, url: str, start: int, end: int) -> bytes:
        said = self._web.ask(
            url,
            fields={"Range": f"bytes={start}-{end - 1}"},
            private=self._known(url),
            most_bytes=end,
            cut=True,
        )
        if said.status == 206 and said.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            return said.body[: end - start]
        if said.status == 200:
            return said.body[start:end]
        if said.status == 416:
            return b""
        raise _refusal(url, said)

    def _known(self, url: str) -> dict[str, str]:
        """A file of the hub by its URL is asked for as one by its name is."""
        return self._hub.private() if url.startswith(f"{self._hub.endpoint}/") else {}

    def _manifest(self, url: str) -> tuple[Resolved, Read]:
        said = self._web.ask(url, most_bytes=_MANIFEST_BYTES)
        if said.status != 200:
            raise _refusal(url, said)
        try:
            listed = msgspec.json.decode(said.body, type=_Manifest)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            kind = said.headers.get("Content-Type", "").partition(";")[0] or "something else"
            raise OperatorError(
                f"{shown_url(url)} lists no files",
                why=f"it answers with {kind} where a manifest of JSON was expected",
                do="see that it is a mirror's byte port, or name the files one by one",
            ) from None
        files = tuple(sorted(ResolvedFile(f.path, f.size, f.sha256) for f in listed.files))
        return Resolved(files), lambda path, start, end: self._part(url + quote(path), start, end)

    def _here(self, path: Path) -> tuple[Resolved, Read]:
        self._check_path(path)
        try:
            if path.is_dir():
                found = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
                base = path
            else:
                found, base = [path], path.parent
            if len(found) > selecting.MOST_FILES:
                raise Refused(
                    f"{path} has {len(found)} files", why="that is no model's folder", do="name a folder of it"
                )
            files = tuple(ResolvedFile(str(p.relative_to(base)), p.stat().st_size) for p in found)
        except OSError as e:
            raise Refused(
                f"{path} cannot be read here",
                why=(e.strerror or type(e).__name__).lower(),
                do="lock where the file is, or have the mirror look: llmgw lock --via mirror",
            ) from None
        return Resolved(tuple(sorted(files))), lambda name, start, end: read_file(base / name, start, end)


def _length(said: Said) -> int | None:
    """The size of the whole, from the answer that knows it best."""
    text = said.header("X-Linked-Size") or said.headers.get("Content-Length", "")
    return int(text) if re.fullmatch(r"\d{1,18}", text) else None


def _total(said: Said) -> int | None:
    found = re.fullmatch(r"bytes \d+-\d+/(\d{1,18})", said.headers.get("Content-Range", ""))
    return int(found[1]) if found else _length(said)


def _sha256(said: Said) -> str | None:
    """What the server says the whole file's sum is, where it says it in a way that can mean nothing else."""
    tag = said.header("X-Linked-ETag").strip('"')
    if said.header("X-Repo-Commit") and re.fullmatch(r"[0-9a-f]{64}", tag):
        return tag
    digest = re.search(r"sha-256=:([A-Za-z0-9+/=]{44}):", said.headers.get("Repr-Digest", ""))
    try:
        return base64.b64decode(digest[1], validate=True).hex() if digest else None
    except binascii.Error:
        return None


def _no_page(url: str, said: Said) -> None:
    kind = said.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/html" and not url.endswith((".html", ".htm")):
        raise Refused(
            f"{shown_url(url)} is a page and not a file",
            why="it answers with text/html",
            do="open it yourself and correct the source; on Hugging Face a file is under /resolve/, not /blob/",
        )


def _refusal(url: str, said: Said) -> OperatorError:
    at, status = shown_url(url), said.status
    if status in {404, 410}:
        return Refused(f"{at} is not there", why=f"it answers {status}", do="correct the source")
    if status in {401, 403}:
        return Refused(
            f"{at} may not be read",
            why=f"it answers {status}",
            do="accept its terms, or use a source that needs no key",
        )
    if status >= 500:
        return Unreachable(f"{at} cannot be read", why=f"it answers {status}", do="call again later")
    return OperatorError(f"{at} cannot be read", why=f"it answers {status}", do="correct the source")
