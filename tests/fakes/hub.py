"""A server that speaks the Hugging Face API, with faults on demand.

    with Hub() as hub:
        commit = hub.put("org/model-GGUF", {"model-Q4_K_M.gguf": Sized(gguf_header(), 5_000_000_000)})
        hub.answers[r"/resolve/"] = [Answer(status=503), Answer()]

Two servers, as there: the hub's API and small files on one host, and what is
kept in LFS on another, to which signed links lead. Plain http, so every error
says its X-Error-Code, as a client needs it there.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any, Self

from fakes.hub_http import Cdn, Front
from fakes.upstream import Answer, Asked

__all__ = ["Answer", "Asked", "Hub", "Repository", "Sized"]

TOKEN = "hf_llmgw_test_token"
"""What the hub takes for a reader with every right, unless `tokens` says otherwise."""

_LFS = (".gguf", ".safetensors", ".bin", ".pt", ".onnx")
_TRUE_SUM_BYTES = 64 << 20
"""Above this a sum would take seconds to find, so one is made up."""


@dataclass(frozen=True)
class Sized:
    """A file of any size that takes no memory: its head, and zeros after it."""

    head: bytes
    size: int

    def part(self, start: int, end: int) -> bytes:
        """The bytes from start up to, and without, end."""
        end = min(end, self.size)
        data = self.head[start:end]
        return data + bytes(max(end - start - len(data), 0))


Content = bytes | Sized


@dataclass(frozen=True)
class File:
    """One file of one commit."""

    content: Content
    lfs: bool
    sha256: str
    git_oid: str
    """Of the file, or of the pointer that stands for it in git."""
    xet: str = ""

    @classmethod
    def of(cls, path: str, content: Content) -> Self:
        lfs = path.endswith(_LFS)
        whole = (
            content.part(0, content.size) if isinstance(content, Sized) and content.size <= _TRUE_SUM_BYTES else None
        )
        data = content if isinstance(content, bytes) else whole
        seed = (
            data if data is not None else b"%b%d" % (content.head, content.size) if isinstance(content, Sized) else b""
        )
        sha256 = hashlib.sha256(seed).hexdigest()
        size = len(content) if isinstance(content, bytes) else content.size
        blob = _pointer(sha256, size) if lfs else (data or b"")
        git_oid = hashlib.sha1(b"blob %d\0%b" % (len(blob), blob)).hexdigest()
        return cls(content, lfs, sha256, git_oid, hashlib.sha256(seed + b"xet").hexdigest() if lfs else "")

    @property
    def size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.size

    def part(self, start: int, end: int) -> bytes:
        return self.content[start:end] if isinstance(self.content, bytes) else self.content.part(start, end)


def _pointer(sha256: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


@dataclass
class Repository:
    """One model repository and what its page says of it."""

    id: str
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    """Branches, by name."""
    git_tags: dict[str, str] = field(default_factory=dict)
    """By name."""
    gated: bool | str = False
    private: bool = False
    disabled: bool = False
    license: str = ""
    base_model: str = ""
    relation: str = ""
    """To its base model: quantized, adapter, finetune or merge."""
    pipeline_tag: str = "text-generation"
    labels: tuple[str, ...] = ()
    """What is searched by as `filter`: gguf, safetensors, a language."""
    downloads: int = 0
    likes: int = 0
    created: str = "2026-01-01T00:00:00.000Z"
    modified: str = "2026-06-01T00:00:00.000Z"
    gguf: Mapping[str, Any] | None = None
    """{total: parameters, architecture, context_length}, as the hub reads them out of a header."""
    safetensors: Mapping[str, Any] | None = None
    """{parameters: {dtype: n}, total}, likewise."""
    config: Mapping[str, Any] | None = None
    moved_to: str = ""

    @property
    def tags(self) -> list[str]:
        """What it is found by as `filter`."""
        tags = [*self.labels, *([f"license:{self.license}"] if self.license else [])]
        if self.base_model:
            tags.append(f"base_model:{self.base_model}")
        if self.base_model and self.relation:
            tags.append(f"base_model:{self.relation}:{self.base_model}")
        return tags

    def commit_of(self, revision: str) -> str | None:
        """The commit that a branch, a tag or a commit's id names."""
        if revision in self.commits:
            return revision
        return self.refs.get(revision) or self.git_tags.get(revision)


class Hub:
    """Repositories, and for paths that match a pattern the answers of the next requests; the last is repeated."""

    def __init__(self, *, page_size: int = 1000) -> None:
        """Nothing is served before it is entered.

        Args:
            page_size: entries of one page of a tree.
        """
        self.page_size = page_size
        self.repositories: dict[str, Repository] = {}
        self.answers: dict[str, list[Answer]] = {}
        self.asked: list[Asked] = []
        """What the API's host was asked."""
        self.fetched: list[Asked] = []
        """What the host of large files was asked."""
        self.tokens: dict[str, frozenset[str] | None] = {TOKEN: None}
        """By token, the gated and private repositories it may read; None: all."""
        self.links = 0
        """The generation of signed links that is good."""
        self.sent_bytes = 0
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._front = _server("127.0.0.1", Front, self)
        self._cdn = _server("127.0.0.2", Cdn, self)
        self._threads = [
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
            for server in (self._front, self._cdn)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for server in (self._front, self._cdn):
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join()

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT would be."""
        return _base(self._front)

    @property
    def cdn(self) -> str:
        """Where large files are."""
        return _base(self._cdn)

    def put(self, repo: str, files: Mapping[str, Content], *, branch: str = "main", tag: str = "", **about: Any) -> str:
        """Make a commit of exactly these files, and the repository where there is none; the commit's id.

        Args:
            repo: OWNER/NAME.
            files: by path, each its bytes or a `Sized`.
            branch: that moves to the commit.
            tag: of git, that names it.
            about: fields of `Repository` that change: gated, private, license, base_model, downloads and so on.
        """
        kept = self.repositories.setdefault(repo, Repository(repo))
        for name, value in about.items():
            assert hasattr(kept, name), name
            setattr(kept, name, value)
        made = {path: File.of(path, content) for path, content in sorted(files.items())}
        text = f"{repo} {len(kept.commits)} " + " ".join(f"{path}={file.git_oid}" for path, file in made.items())
        commit = hashlib.sha1(text.encode()).hexdigest()
        kept.commits[commit] = made
        kept.refs[branch] = commit
        if tag:
            kept.git_tags[tag] = commit
        return commit

    def rename(self, old: str, new: str) -> None:
        """The repository answers under its new name, and the old one redirects."""
        kept = self.repositories[old]
        self.repositories[new] = kept
        kept.id = new
        self.repositories[old] = Repository(old, moved_to=new)

    def forget(self, repo: str, commit: str) -> None:
        """History was rewritten: the commit is gone."""
        del self.repositories[repo].commits[commit]

    def expire_links(self) -> None:
        """Signed links handed out so far are refused from now on."""
        self.links += 1

    def url(self, repo: str, path: str, revision: str = "main") -> str:
        """Of one file, as a person copies it."""
        return f"{self.endpoint}/{repo}/resolve/{revision}/{path}"

    def next_answer(self, path: str) -> Answer:
        """How this request is answered."""
        with self._lock:
            for pattern, queue in self.answers.items():
                if queue and re.search(pattern, path):
                    return queue.pop(0) if len(queue) > 1 else queue[0]
        return Answer()

    def ranges(self) -> list[str]:
        """The Range of every request for a file's bytes so far, at either host."""
        return [asked.range for asked in (*self.asked, *self.fetched) if asked.range]

    def large(self) -> Iterator[tuple[str, File]]:
        """Every file kept on the other host, by the path of its link."""
        for repo in self.repositories.values():
            for files in repo.commits.values():
                yield from ((f"/repos/{file.sha256}", file) for file in files.values() if file.lfs)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no error of the hub's."""


def _server(host: str, handler: type[Any], hub: Hub) -> _Server:
    return _Server((host, 0), type(handler.__name__, (handler,), {"hub": hub}))


def _base(server: ThreadingHTTPServer) -> str:
    host, port = server.server_address[:2]
    return f"http://{host!s}:{port}"
