"""What a source may be: where from, and what belongs beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from llmgw.catalog.origin import origin
from llmgw.catalog.problem import Finding, shorten
from llmgw.catalog.source import Source

_REPOSITORY = r"[\w.-]+/[\w.-]+(@[^/@]+)?(/.+)?"
_BUCKET = r"[a-z0-9][a-z0-9._-]+/.+"

FORMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "modelscope": (_REPOSITORY, "modelscope://OWNER/NAME@REVISION/FILE"),
        "s3": (_BUCKET, "s3://BUCKET/FILE"),
        "gs": (_BUCKET, "gs://BUCKET/FILE"),
        "oci": (r"[^/\s]+/[^\s@]+(@sha256:[0-9a-f]{64})?", "oci://REGISTRY/NAME:TAG"),
    }
)
"""By scheme: what stands after `//`, and the same for people."""

_SECRET = re.compile(r"(?i)(^|[-_.])(token|key|sig|signature|secret|password|passwd|credential|auth|apikey)$")
"""The end of a query's key whose value opens something, `access_token` and `X-Amz-Signature` among them."""

_HELD = r"mirror:[a-z0-9][a-z0-9._-]{0,62}/[a-z0-9][a-z0-9._-]{0,62}/?"
_EVERY = "https, http, file, hf, modelscope, s3, gs, oci and mirror"

_AT = ("from",)
_FETCHED = ("version", "sha256", "checksums", "revision", "files", "ignore", "token_ref", "prefetch", "retain")
"""What only weights that are fetched have."""


def problems(source: Source) -> Iterator[Finding]:
    """What is wrong with a source that fits the types. Ways begin at the model."""
    for found in (*_from(source.from_, _AT), *_beside(source), *_selecting(source)):
        yield found._replace(at=("source", *found.at))
    for index, adapter in enumerate(source.adapters):
        for found in _from(adapter.source, ("adapters", index, "source")):
            yield found._replace(at=("source", *found.at))


def _beside(source: Source) -> Iterator[Finding]:
    if source.is_path:
        for key in _FETCHED:
            if getattr(source, key):
                why = "a path is read in place, so nothing is kept under a version and nothing is checked on arrival"
                yield Finding((key,), f"`{key}` is beside a path", why, "take it out, or write `from: file://…`")
    elif source.from_.startswith("mirror:"):
        if source.version is not None:
            why = "`from` names the version already"
            yield Finding(("version",), "`version` is beside a version the mirror holds", why, "take it out")
    elif source.version is None:
        why = "the mirror keeps the weights as name/version/, and a new build is told from an old one by it"
        yield Finding(("version",), "the source has no `version`", why, "add `version:`, the build or its date")


def _selecting(source: Source) -> Iterator[Finding]:
    """What says which files are fetched, and how they are known again."""
    if source.sha256 and source.checksums:
        why = "`sha256` is of one file, and `checksums` of several"
        yield Finding(("checksums",), "`sha256` and `checksums` are both there", why, "take one of them out")
    repository = re.match(r"(hf|modelscope)://", source.from_)
    for key in ("revision", "files", "ignore"):
        if getattr(source, key) and not repository and not (key != "revision" and source.from_.endswith("/")):
            why = "only a repository of models has it: hf:// or modelscope://"
            yield Finding((key,), f"`{key}` is beside one file", why, "take it out, or name a repository in `from`")
    for key in ("files", "ignore"):
        for index, pattern in enumerate(getattr(source, key)):
            if pattern.startswith("/") or ".." in pattern.split("/"):
                why = "it is looked for below the source"
                yield Finding((key, index), f"`{key}` has a path that leads away", why, "write it from the source on")


def _from(written: str, at: tuple[str | int, ...]) -> Iterator[Finding]:
    for found in _form(written):
        what = found.what if at == _AT else found.what.replace("`from`", "`source` of the adapter")
        yield found._replace(at=at, what=what)


def _form(written: str) -> Iterator[Finding]:
    if not written.isprintable() or (" " in written and not written.startswith("/")) or written != written.strip():
        why = "there is a space or an invisible character in it"
        yield Finding(_AT, "`from` is neither a URL nor a path", why, "write a space in a URL as %20")
    elif written.startswith("/"):
        if ".." in written.split("/"):
            yield _upward(written)
    elif written.startswith("mirror:"):
        if not re.fullmatch(_HELD, written):
            why = "it is a name and a version that the mirror holds"
            yield Finding(_AT, "`from` names no version", why, "write mirror:NAME/VERSION/")
    else:
        yield from _url(written)


def _url(written: str) -> Iterator[Finding]:
    scheme, there, rest = written.partition("://")
    if there and scheme in {"hf", *FORMS}:
        yield from _elsewhere(scheme, rest)
        return
    try:
        url = urlsplit(written)
        has_user, host, _ = "@" in url.netloc, url.hostname, url.port
        secret = next((key for key, _ in parse_qsl(url.query, keep_blank_values=True) if _SECRET.search(key)), "")
    except ValueError:
        # The standard library's text would quote the URL, which may have a password in it.
        yield Finding(_AT, "`from` is no URL", "its host or port cannot be read", "write https://HOST/PATH")
        return
    if has_user:
        why = "a user or password is in it, and the repository holds no secrets"
        yield Finding(_AT, "`from` has credentials", why, "take them out, and let the mirror's own file hold them")
    elif secret:
        why = f"`{shorten(secret, 30)}` is in its query, and the repository holds no secrets"
        yield Finding(_AT, "`from` has credentials", why, "take it out, and let the mirror's own file hold it")
    elif url.scheme not in {"http", "https", "file"}:
        shown = shorten(written.partition("?")[0])
        why = f"weights come by {_EVERY}, and nodes read absolute paths"
        yield Finding(
            _AT, f"`from` cannot be `{shown}`", why, "write https://…, file:///… or a path that begins with /"
        )
    elif url.scheme == "file" and (host not in {None, "localhost"} or not url.path.startswith("/")):
        why = "a file is on the mirror's own machine, and its path begins at the root"
        yield Finding(_AT, "`from` is not a file's URL", why, "write three slashes: file:///PATH")
    elif url.scheme != "file" and not host:
        yield Finding(_AT, "`from` has no host", "nothing says whom to ask", f"write {url.scheme}://HOST/PATH")
    else:
        yield from _file(url)


def _elsewhere(scheme: str, rest: str) -> Iterator[Finding]:
    if "@" in rest.partition("/")[0]:
        why = "a user or password is in it, and the repository holds no secrets"
        yield Finding(_AT, "`from` has credentials", why, "take them out, and write `token_ref`")
    elif ".." in rest.split("/"):
        yield _upward(rest)
    elif scheme == "hf":
        if origin({"from": f"hf://{rest}"}) is None:
            why = "it is hf://OWNER/NAME, then @REVISION and /PATTERN where they are wanted"
            do = "write it like hf://Qwen/Qwen3-8B-GGUF@main/*Q4_K_M*.gguf"
            yield Finding(_AT, "`from` names no repository", why, do)
    elif not re.fullmatch(FORMS[scheme][0], rest):
        like = FORMS[scheme][1]
        yield Finding(_AT, f"`from` is no {scheme} source", f"it is not of the form {like}", f"write {like}")


def _file(url: SplitResult) -> Iterator[Finding]:
    if ".." in unquote(url.path).split("/"):
        yield _upward(url.path)
    elif not url.path:
        yield Finding(_AT, "`from` names no file", "it ends after its host", "write the path of a file or a folder too")


def _upward(path: str) -> Finding:
    return Finding(_AT, f"`from` has `..` in it: {shorten(path)}", "it could lead anywhere", "write the path itself")
