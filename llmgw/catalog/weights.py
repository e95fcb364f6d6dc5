"""What a source may be: where from, and what belongs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult, unquote, urlsplit

from llmgw.catalog.origin import origin
from llmgw.catalog.problem import Finding, shorten
from llmgw.catalog.source import Source

_LATER = {
    "modelscope": "https://www.modelscope.cn/models/OWNER/NAME/resolve/REVISION/FILE",
    "s3": "https://BUCKET.s3.REGION.amazonaws.com/FILE",
    "gs": "https://storage.googleapis.com/BUCKET/FILE",
    "oci": "https://… of the file itself",
    "mirror": "the URL that the version was fetched from",
}
"""Schemes that are not there yet, and what to write until they are."""

_AT = ("from",)


def problems(source: Source) -> Iterator[Finding]:
    """What is wrong with a source that fits the types. Ways begin at the model."""
    for found in (*_from(source), *_beside(source)):
        yield found._replace(at=("source", *found.at))


def _beside(source: Source) -> Iterator[Finding]:
    if source.is_path:
        for key in ("version", "sha256"):
            if getattr(source, key) is not None:
                why = "a path is read in place, so nothing is kept under a version and nothing is checked on arrival"
                yield Finding((key,), f"`{key}` is beside a path", why, "take it out, or write `from: file://…`")
    elif source.version is None:
        why = "the mirror keeps the weights as name/version/, and a new build is told from an old one by it"
        yield Finding(("version",), "the source has no `version`", why, "add `version:`, the build or its date")


def _from(source: Source) -> Iterator[Finding]:
    written = source.from_
    if not written.isprintable() or " " in written:
        why = "there is a space or an invisible character in it"
        yield Finding(_AT, "`from` is neither a URL nor a path", why, "write a space in a URL as %20")
    elif source.is_path:
        if ".." in written.split("/"):
            yield _upward(written)
    else:
        yield from _url(written)


def _url(written: str) -> Iterator[Finding]:
    try:
        url = urlsplit(written)
        has_user, host, _ = "@" in url.netloc, url.hostname, url.port
    except ValueError:
        # The standard library's text would quote the URL, which may have a password in it.
        yield Finding(_AT, "`from` is no URL", "its host or port cannot be read", "write https://HOST/PATH")
        return
    if has_user:
        why = "a user or password is in it, and the repository holds no secrets"
        yield Finding(_AT, "`from` has credentials", why, "take them out, and let the mirror's own file hold them")
    elif url.scheme == "hf":
        if origin({"from": written}) is None:
            why = "it is hf://OWNER/NAME, then @REVISION and /PATTERN where they are wanted"
            do = "write it like hf://Qwen/Qwen3-8B-GGUF@main/*Q4_K_M*.gguf"
            yield Finding(_AT, "`from` names no repository", why, do)
    elif url.scheme in _LATER:
        why = f"not yet: {url.scheme}: is planned, and the mirror reads hf, https, http and file now"
        yield Finding(_AT, f"`from` cannot begin with {url.scheme}:", why, f"write {_LATER[url.scheme]}")
    elif url.scheme not in {"http", "https", "file"}:
        shown = shorten(written.partition("?")[0])
        why = "the mirror reads hf, https, http and file, and nodes read absolute paths"
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


def _file(url: SplitResult) -> Iterator[Finding]:
    name = unquote(url.path.rpartition("/")[2])
    if ".." in unquote(url.path).split("/"):
        yield _upward(url.path)
    elif not name:
        why = "not yet: several files as one version are planned, and one file is fetched now"
        yield Finding(_AT, "`from` names no file", why, "write the URL of the one file")
    elif "*" in name:
        why = "not yet: patterns are planned, and one file is fetched now"
        yield Finding(_AT, "`from` is a pattern", why, "write the URL of the one file")


def _upward(path: str) -> Finding:
    return Finding(_AT, f"`from` has `..` in it: {shorten(path)}", "it could lead anywhere", "write the path itself")
