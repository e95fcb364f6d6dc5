"""What `llmgw model add` is told to add: read as a source, looked at, and pinned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import msgspec

from llmgw.catalog.origin import Origin, Place, origin
from llmgw.cli.updates import SHORT
from llmgw.core.resolved import Resolved, ResolvedFile
from llmgw.errors import Misused, Refused
from llmgw.sources.hub import ENDPOINT
from llmgw.sources.locking import Look
from llmgw.sources.selecting import PART, Several, projector, weights

_FORMS = "OWNER/NAME, OWNER/NAME/FILE, hf://…, https://…, mirror:NAME/VERSION, or the absolute path of a file"
_QUANT = re.compile(r"[-._](i?q\d[a-z0-9_]*|bf16|f16|f32|fp16|mxfp4|ud-i?q\d[a-z0-9_]*)$")


@dataclass(frozen=True, slots=True)
class Picked:
    """One model of a source, as it is there now."""

    source: Mapping[str, Any]
    """The fields that its file will write, pinned as far as they can be."""
    found: Resolved
    name: str
    """What it would be called; empty: nothing that could be a name is in it."""

    @property
    def gguf(self) -> bool:
        return any(file.path.endswith(".gguf") for file in self.found.files)


def pick(text: str, look: Look, endpoint: str) -> Picked:
    """The one model that is meant.

    Args:
        text: as a person writes it.
        look: finds what a source holds.
        endpoint: of the hub.

    Raises:
        OperatorError: it is none, or several, or cannot be had.
    """
    words = {"from": _from(text, endpoint)}
    read = origin(words)
    if read is None or read.place is Place.OTHER:
        raise Misused(f"{text[:200]!a} is no source", why="it is written like none", do=f"write {_FORMS}")
    if read.place is Place.PATH and PART.fullmatch(PurePosixPath(read.at).name):
        raise Refused(
            f"{read.at} was not added",
            why="it is one of several parts, and a path names one file",
            do="merge them with llama-gguf-split --merge, or add them from a hub",
        )
    try:
        found = look(words)
    except Several as e:
        each = ", ".join(e.models[:40]) + (f" and {len(e.models) - 40} more" if len(e.models) > 40 else "")
        one = next((m for m in e.models if "q4_k_m" in m.lower()), e.models[0])
        raise Refused(
            f"{read.at} has {len(e.models)} models",
            why=f"each of these is one: {each}",
            do=f"name one: llmgw model add {read.at}/{one}",
        ) from None
    _one_model(text, [file.path for file in found.files])
    if read.place is Place.HUB:
        return _of_hub(read, found)
    return Picked(_other(read, found), found, named(PurePosixPath(read.at.split("?")[0]).name, read))


def _one_model(text: str, paths: list[str]) -> None:
    """Whether the files are one model that an engine of ours reads.

    Raises:
        Refused: they are none, a part of one, or several.
    """
    held = [path for path in paths if weights(path)]
    if not held:
        raise Refused(
            f"{text} was not added",
            why=f"it is no GGUF or safetensors file, but {paths[0]}" if paths else "it has no files",
            do="name the weights themselves; for another engine write the file by hand, with engine: command",
        )
    if all(projector(path) for path in held):
        raise Refused(
            f"{text} was not added",
            why=f"{held[0]} is the part of a model that sees or hears, and runs with one only",
            do="name the model, which is in the same repository as a rule",
        )
    whole = [path for path in held if path.endswith(".gguf") and not projector(path)]
    if len({part[1] if (part := PART.fullmatch(path)) else path for path in whole}) > 1:
        raise Refused(
            f"{text} has several models", why=f"each of these is one: {', '.join(whole[:40])}", do="name one of them"
        )


def _from(text: str, endpoint: str) -> str:
    """A source's `from`, of the short forms and of what is copied from a browser."""
    for base in (endpoint.rstrip("/"), ENDPOINT):
        if text.startswith(f"{base}/"):
            # The page of a repository, or of one of its files.
            parts = urlsplit(text).path.strip("/").split("/")
            if len(parts) == 2:
                return f"hf://{parts[0]}/{parts[1]}"
            if len(parts) > 4 and parts[2] in {"blob", "resolve", "tree"}:
                return f"hf://{parts[0]}/{parts[1]}@{parts[3]}/{'/'.join(parts[4:])}"
    if text.startswith("mirror:"):
        return text.rstrip("/") + "/"
    if re.match(r"[a-z0-9]+:|/", text):
        return text
    if text.startswith((".", "~")):
        raise Misused(
            f"{text!a} is no absolute path", why="nodes read it in place, from where they are", do="write it from /"
        )
    head, _, rest = text.partition("@")
    parts = (rest or head).split("/", 1 if rest else 2)
    if len(parts) > (1 if rest else 2) and not re.search(r"[*?\[]|\.(gguf|safetensors)$", parts[-1]):
        # A quantisation stands for its file.
        return f"hf://{text.removesuffix(parts[-1])}*{parts[-1]}*.gguf"
    return f"hf://{text}"


def _of_hub(read: Origin, found: Resolved) -> Picked:
    """Pinned to the commit, and to the one file where it is one."""
    kept = [file for file in found.files if weights(file.path)]
    main = next(file for file in kept if not projector(file.path))
    patterns = read.patterns
    if main.path.endswith(".gguf") and not any(projector(file.path) for file in kept):
        part = PART.fullmatch(main.path)
        patterns = (f"{part[1]}-*-of-{part[3]}{part[4]}",) if part else (main.path,)
        found = msgspec.structs.replace(found, files=tuple(kept))
    name = named(read.at.partition("/")[2], read)
    at = f"hf://{read.at}@{found.commit}"
    source: dict[str, Any] = {"from": f"{at}/{patterns[0]}" if len(patterns) == 1 else at}
    return Picked({**source, "version": found.commit[:SHORT], **_sum(found.files)}, found, name)


def _other(read: Origin, found: Resolved) -> dict[str, Any]:
    match read.place:
        case Place.PATH:
            return {"from": read.at}
        case Place.MIRROR:
            return {"from": f"mirror:{read.at}/"}
        case Place.FILE:
            written = f"file://{read.at}"
        case _:
            written = read.at
    return {"from": written, "version": datetime.now(UTC).date().isoformat(), **_sum(found.files)}


def _sum(files: tuple[ResolvedFile, ...]) -> dict[str, str]:
    """What a model of one file writes of it. Of several the lock has the sums."""
    return {"sha256": files[0].sha256} if len(files) == 1 and files[0].sha256 else {}


def named(text: str, read: Origin) -> str:
    """A name made of a repository's or a file's: in small letters, without what says how it is packed."""
    if read.place is Place.MIRROR:
        text = read.at.partition("/")[0]
    low = text.lower().removesuffix(".gguf").removesuffix(".safetensors").removesuffix("-gguf")
    low = re.sub(r"[^a-z0-9._-]+", "-", _QUANT.sub("", low)).lstrip("._-")
    return low[:63].rstrip("._-")
