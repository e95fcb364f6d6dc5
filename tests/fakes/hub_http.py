"""How the fake hub answers: its API, its files, and the host that its large files are on."""

from __future__ import annotations

import json
import re
import socket
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from fakes.upstream import Asked

if TYPE_CHECKING:
    from fakes.hub import File, Hub, Repository

_STEP = 16_384
_SORTS = {
    "downloads": "downloads",
    "likes": "likes",
    "createdAt": "created",
    "lastModified": "modified",
    "trendingScore": "likes",
}


class _Refusal(Exception):
    """An answer of 400 and above, in the hub's words."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def note(self, where: list[Asked]) -> tuple[str, dict[str, list[str]]]:
        """Write the request down; its path, unquoted, and its query."""
        split = urlsplit(self.path)
        where.append(Asked(self.path, self.headers.get("Range"), dict(self.headers)))
        self.rest = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return unquote(split.path), parse_qs(split.query)

    def faulty(self) -> bool:
        """Whether the request was answered by a fault. One that concerns a body is kept for it."""
        self.answer = self.hub.next_answer(self.path)
        if self.answer.silent:
            self.stall()
        elif self.answer.status is not None:
            self.head(self.answer.status, {"Content-Length": "0", **self.answer.headers})
        elif self.answer.page is not None:
            page = self.answer.page
            self.head(200, {"Content-Type": "text/html", "Content-Length": str(len(page)), **self.answer.headers})
            self.body(page)
        else:
            return False
        return True

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()

    def body(self, data: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(data)
            self.hub.sent_bytes += len(data)

    def json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        kind = {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(data))}
        self.head(status, {**kind, **(headers or {}), **self.answer.headers})
        self.body(data)

    def file(self, file: File, headers: dict[str, str]) -> None:
        """The bytes of a file, or the part asked for, with whatever is to go wrong."""
        answer, size = self.answer, file.size
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end, status = 0, size, 200
        headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes", **headers}
        if found and not answer.whole:
            start = int(found[1])
            end = min(int(found[2]) + 1, size) if found[2] else size
            if start >= size:
                self.head(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0", **answer.headers})
                return
            shown = start - answer.shifted
            status, headers["Content-Range"] = 206, f"bytes {shown}-{end - 1}/{size}"
        if answer.chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif answer.no_length:
            headers["Connection"] = "close"
        else:
            headers["Content-Length"] = str(end - start)
        self.head(status, headers | answer.headers)
        if self.command != "HEAD":
            self._bytes(file, start, end)

    def _bytes(self, file: File, start: int, end: int) -> None:
        answer = self.answer
        stop = min(end, *(start + n for n in (answer.cut_after, answer.stall_after) if n is not None), end)
        for at in range(start, stop, _STEP):
            block = bytearray(file.part(at, min(at + _STEP, stop)))
            if answer.flipped is not None and at <= answer.flipped < at + len(block):
                block[answer.flipped - at] ^= 0xFF
            if answer.bytes_per_s is not None:
                time.sleep(len(block) / answer.bytes_per_s)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block) if answer.chunked else block)
            self.hub.sent_bytes += len(block)
        if answer.stall_after is not None:
            self.stall()
        elif answer.cut_after is not None or answer.no_length:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif answer.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def stall(self) -> None:
        self.close_connection = True
        self.hub.over.wait(60)


class Front(_Handler):
    """The hub itself."""

    def do_GET(self) -> None:
        path, query = self.note(self.hub.asked)
        if self.faulty():
            return
        try:
            self._route(path, query)
        except _Refusal as e:
            page = json.dumps({"error": e.message}).encode()
            named = {"X-Error-Code": e.code, "X-Error-Message": e.message, "Content-Length": str(len(page))}
            self.head(e.status, {**named, **self.answer.headers})
            self.body(page)

    do_HEAD = do_GET  # noqa: N815 - the library's name
    do_POST = do_GET  # noqa: N815 - likewise

    def _route(self, path: str, query: dict[str, list[str]]) -> None:
        if path == "/api/models":
            self._search(query)
        elif path == "/api/whoami-v2":
            self._whoami()
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(.*))?", path):
            self._api(self._repository(found[1]), found[2] or "", query)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            # A revision with a slash is quoted, and unquoted by now: the raw path says where it ends.
            raw = self.path.partition("?")[0].partition("/resolve/")[2].split("/", 1)
            self._resolve(self._repository(found[1]), unquote(raw[0]), unquote(raw[1]))
        else:
            raise _Refusal(404, "", "Sorry, we can't find the page you are looking for.")

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _may_read(self, repo: Repository) -> bool:
        rights = self.hub.tokens.get(self._token(), frozenset())
        return rights is None or repo.id in rights

    def _repository(self, name: str) -> Repository:
        repo = self.hub.repositories.get(name)
        if self._token() and self._token() not in self.hub.tokens:
            raise _Refusal(401, "", "Invalid credentials in Authorization header")
        if repo is None or (repo.private and not self._may_read(repo)):
            # The hub does not tell a stranger which private repositories there are.
            status = 404 if self._token() else 401
            text = "Repository not found" if self._token() else "Invalid username or password."
            raise _Refusal(status, "RepoNotFound", text)
        if repo.disabled:
            raise _Refusal(403, "", "Access to this resource is disabled.")
        return repo

    def _commit(self, repo: Repository, revision: str) -> str:
        commit = repo.commit_of(revision)
        if commit is None:
            raise _Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def _api(self, repo: Repository, rest: str, query: dict[str, list[str]]) -> None:
        if repo.moved_to:
            self._moved(repo)
            return
        kind, _, more = rest.partition("/")
        if kind in {"", "revision"}:
            self._info(repo, self._commit(repo, more or "main"), query)
        elif kind == "tree":
            raw = urlsplit(self.path).path.partition("/tree/")[2].split("/", 1)
            self._tree(repo, self._commit(repo, unquote(raw[0])), unquote(raw[1]) if len(raw) > 1 else "", query)
        elif kind == "refs":
            named = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for n, c in sorted(repo.refs.items())]
            tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in sorted(repo.git_tags.items())]
            self.json(200, {"branches": named, "tags": tags, "converts": []})
        elif kind == "paths-info":
            files = repo.commits[self._commit(repo, more)]
            asked = parse_qs(self.rest.decode()).get("paths", [])
            self.json(200, [_entry(path, files[path]) for path in asked if path in files])
        else:
            raise _Refusal(404, "", "Sorry, we can't find the page you are looking for.")

    def _info(self, repo: Repository, commit: str, query: dict[str, list[str]]) -> None:
        value = _about(repo, commit, query.get("expand"))
        if "blobs" in query:
            files = repo.commits[commit]
            value["siblings"] = [
                {"rfilename": path, "size": file.size, "blobId": file.git_oid} | _lfs(file, "sha256")
                for path, file in files.items()
            ]
        self.json(200, value)

    def _tree(self, repo: Repository, commit: str, below: str, query: dict[str, list[str]]) -> None:
        files = repo.commits[commit]
        prefix = f"{below}/" if below else ""
        rows: dict[str, dict[str, Any]] = {}
        for path, file in files.items():
            if not path.startswith(prefix):
                continue
            parts = path.removeprefix(prefix).split("/")
            for depth in range(1, len(parts)):
                folder = prefix + "/".join(parts[:depth])
                rows[folder] = {"type": "directory", "oid": "0" * 40, "size": 0, "path": folder}
            rows[path] = _entry(path, file)
        if query.get("recursive", ["false"])[0] not in {"true", "True", "1"}:
            rows = {path: row for path, row in rows.items() if "/" not in path.removeprefix(prefix)}
        if prefix and not rows:
            raise _Refusal(404, "EntryNotFound", f"{below} does not exist on {commit}")
        ordered = [rows[path] for path in sorted(rows)]
        start = int(query.get("cursor", ["0"])[0])
        end = start + int(query.get("limit", [str(self.hub.page_size)])[0])
        self.json(200, ordered[start:end], self._next(end if end < len(ordered) else None))

    def _next(self, cursor: int | None) -> dict[str, str]:
        if cursor is None:
            return {}
        path, _, query = self.path.partition("?")
        kept = "&".join(part for part in query.split("&") if part and not part.startswith("cursor="))
        return {"Link": f'<{self.hub.endpoint}{path}?{kept}&cursor={cursor}>; rel="next"'}

    def _search(self, query: dict[str, list[str]]) -> None:
        def one(name: str) -> str:
            return query.get(name, [""])[0]

        found = [repo for repo in self.hub.repositories.values() if not repo.moved_to]
        found = [repo for repo in found if not repo.private or self._may_read(repo)]
        for word in one("search").lower().split():
            found = [repo for repo in found if word in repo.id.lower()]
        if author := one("author"):
            found = [repo for repo in found if repo.id.partition("/")[0] == author]
        for label in query.get("filter", []):
            found = [repo for repo in found if label in (*repo.tags, repo.pipeline_tag)]
        if pipeline := one("pipeline_tag"):
            found = [repo for repo in found if repo.pipeline_tag == pipeline]
        if gated := one("gated"):
            found = [repo for repo in found if bool(repo.gated) == (gated.lower() == "true")]
        key = _SORTS.get(one("sort"), "likes")
        found.sort(key=lambda repo: (getattr(repo, key), repo.id), reverse=one("direction") != "1")
        start, limit = int(one("cursor") or 0), int(one("limit") or self.hub.page_size)
        end = start + min(limit, self.hub.page_size)
        rows = [_about(repo, repo.refs.get("main", ""), query.get("expand")) for repo in found[start:end]]
        self.json(200, rows, self._next(end if end < len(found) else None))

    def _whoami(self) -> None:
        if self._token() not in self.hub.tokens:
            raise _Refusal(401, "", "Invalid username or password.")
        self.json(200, {"type": "user", "name": "tester", "auth": {"accessToken": {"role": "read"}}})

    def _moved(self, repo: Repository) -> None:
        onward = self.path.replace(quote(repo.id), quote(repo.moved_to))
        self.head(307, {"Location": onward, "Content-Length": "0"})

    def _resolve(self, repo: Repository, revision: str, path: str) -> None:
        if repo.moved_to:
            self._moved(repo)
            return
        if repo.gated and not self._may_read(repo):
            if not self._token():
                text = f"Access to model {repo.id} is restricted. You must be authenticated to access it."
                raise _Refusal(401, "GatedRepo", text)
            text = f"Access to model {repo.id} is restricted and you are not in the authorized list."
            raise _Refusal(403, "GatedRepo", text)
        commit = self._commit(repo, revision)
        file = repo.commits[commit].get(path)
        if file is None:
            raise _Refusal(404, "EntryNotFound", "Entry not found")
        named = {"X-Repo-Commit": commit, "ETag": f'"{file.git_oid}"'}
        if not file.lfs:
            self.file(file, named)
            return
        signed = f"{self.hub.cdn}/repos/{file.sha256}?X-Amz-Expires=3600&Signature=s{self.hub.links}"
        linked = {
            "X-Linked-Size": str(file.size),
            "X-Linked-ETag": f'"{file.sha256}"',
            "X-Xet-Hash": file.xet,
            "Link": f'<{self.hub.endpoint}/api/models/{repo.id}/xet-read-token/{commit}>; rel="xet-auth"',
            "Location": signed,
            "Accept-Ranges": "bytes",
            "Content-Length": "0",
        }
        self.head(302, named | linked | self.answer.headers)


class Cdn(_Handler):
    """Where large files are. It takes signed links only, and no other way of saying who asks."""

    def do_GET(self) -> None:
        path, query = self.note(self.hub.fetched)
        if self.faulty():
            return
        if self.headers.get("Authorization"):
            self.head(400, {"Content-Length": "0", "X-Error": "Only one auth mechanism allowed"})
        elif query.get("Signature") != [f"s{self.hub.links}"]:
            self.head(403, {"Content-Length": "0", "X-Error": "Request has expired"})
        elif (file := dict(self.hub.large()).get(path)) is None:
            self.head(404, {"Content-Length": "0"})
        else:
            self.file(file, {"ETag": f'"{file.xet[:32]}-12"'})

    do_HEAD = do_GET  # noqa: N815 - the library's name


def _lfs(file: File, key: str) -> dict[str, Any]:
    return {"lfs": {key: file.sha256, "size": file.size, "pointerSize": 134}} if file.lfs else {}


def _entry(path: str, file: File) -> dict[str, Any]:
    row = {"type": "file", "oid": file.git_oid, "size": file.size, "path": path} | _lfs(file, "oid")
    return row | ({"xetHash": file.xet} if file.xet else {})


def _about(repo: Repository, commit: str, expand: list[str] | None) -> dict[str, Any]:
    files = repo.commits.get(commit, {})
    card = {key: value for key, value in (("license", repo.license), ("base_model", repo.base_model)) if value}
    value: dict[str, Any] = {
        "author": repo.id.partition("/")[0],
        "sha": commit,
        "lastModified": repo.modified,
        "createdAt": repo.created,
        "private": repo.private,
        "gated": repo.gated,
        "disabled": repo.disabled,
        "downloads": repo.downloads,
        "likes": repo.likes,
        "tags": repo.tags,
        "pipeline_tag": repo.pipeline_tag,
        "cardData": card,
        "siblings": [{"rfilename": path} for path in files],
    }
    for name in ("gguf", "safetensors", "config"):
        if (said := getattr(repo, name)) is not None:
            value[name] = dict(said)
    if repo.base_model and repo.relation:
        value["baseModels"] = {"relation": repo.relation, "models": [{"id": repo.base_model}]}
    kept = value if expand is None else {key: value[key] for key in expand if key in value}
    return {"_id": "0" * 24, "id": repo.id, "modelId": repo.id, **kept}
