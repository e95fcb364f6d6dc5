"""A lock: what one model's source was found to be, as `locks/NAME.yaml` keeps it.

`llmgw lock` writes it and people read it in pull requests. One file a model, so
two pull requests that add two models merge in either order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from llmgw.catalog import scalars
from llmgw.catalog.fields import Flag, Name, Sha256, Strict, Text, Whole
from llmgw.catalog.forms import COMMIT, FACT, FILE_PATH
from llmgw.catalog.origin import origin, selection, url_of
from llmgw.catalog.source import Source

MOST_FILES = 1000
"""Of one version: a lock is read with every commit."""

_SCALAR = {"type": ["boolean", "number", "string"]}
_FIGURES: dict[str, Any] = {
    "anyOf": [_SCALAR, {"type": "array", "items": _SCALAR, "maxItems": 4096}],
    "words": "a finite number, a text, true or false, or a list of these",
}
_WORDS: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    "words": "text, or a list of texts",
}

HEAD = "# Written by `llmgw lock`. Change the model and lock it again rather than this file.\n"


def _words(value: object) -> object:
    """Text, or a list of it."""
    for part in value if isinstance(value, list) else [value]:
        if not isinstance(part, str) or len(part) > 2048:
            raise ValueError("text or a list of texts belongs here")
    return value


def _figures(value: object) -> object:
    """A number, a text, true or false, or a list of these."""
    parts = value if isinstance(value, list) else [value]
    if len(parts) > 4096 or not all(isinstance(part, bool | int | float | str) for part in parts):
        raise ValueError("a number, a text, true or false, or a list of these belongs here")
    if any(isinstance(part, float) and not isfinite(part) for part in parts):
        raise ValueError("it is not finite")
    return value


class LockedFile(Strict):
    """One file of the version."""

    model_config = ConfigDict(title="file")

    path: Annotated[Text, Field(pattern=FILE_PATH, max_length=200)]
    """Within the version."""
    bytes: Annotated[Whole, Field(ge=0, le=1 << 53)] | None = None
    """Its size. Absent: its holder did not say."""
    sha256: Sha256 | None = None
    """What arrives with another is refused. Absent: nobody published one."""


class Lock(Strict):
    """What one model's source was found to be."""

    model_config = ConfigDict(title="lock")

    model: Name
    """Whose it is. The file is called after it."""
    source: Annotated[
        dict[Annotated[Text, Field(max_length=32)], Annotated[Any, BeforeValidator(_words), WithJsonSchema(_WORDS)]],
        Field(max_length=16),
    ]
    """The fields of its source that say what is fetched, as they were when it was locked."""
    commit: Annotated[Text, Field(pattern=COMMIT)] | None = None
    """What the revision named. Absent: the source is no repository."""
    license: Annotated[Text, Field(max_length=200)] = ""
    """As its publisher says it."""
    gated: Flag = False
    """Whether its publisher decides who may have it."""
    base_model: Annotated[Text, Field(max_length=200)] = ""
    """What it was made from, as its publisher says it."""
    files: Annotated[tuple[LockedFile, ...], Field(min_length=1, max_length=MOST_FILES)]
    """Every file of the version."""
    facts: Annotated[
        dict[
            Annotated[Text, Field(pattern=FACT)],
            Annotated[Any, BeforeValidator(_figures), WithJsonSchema(_FIGURES)],
        ],
        Field(max_length=256),
    ] = {}
    """What planning needs of its header. One that is as in most models is left out; without any, no header was
    understood, and the model's profiles write their memory."""

    def belongs(self, source: Source) -> bool:
        """Whether the source still says what it said when it was locked."""
        return self.source == asked(source)

    def urls(self) -> tuple[str, ...]:
        """Where each file is had from, in their order. Empty texts: nothing is fetched, or nobody knows how."""
        found = origin(self.source)
        return tuple(url_of(found, self.commit, file.path) if found else "" for file in self.files)

    @property
    def total_bytes(self) -> int | None:
        """Of all files. None where the size of one is unknown."""
        sizes = [file.bytes for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def asked(source: Source) -> dict[str, Any]:
    """The fields of a source that say what is fetched, as a lock keeps them."""
    return selection(
        {
            "from": source.from_,
            "version": source.version,
            "revision": source.revision,
            "files": list(source.files),
            "ignore": list(source.ignore),
        }
    )


def written_sum(source: Source, path: str, files: int) -> str | None:
    """The sha256 that a model writes of one file itself.

    Args:
        source: as it is written.
        path: of the file.
        files: how many the source has: `sha256` is of the only one.
    """
    return source.checksums.get(path) or (source.sha256 if files == 1 else None)


def lock_path(model: str) -> str:
    """Where the lock of a model is, from the top of the repository."""
    return f"locks/{model}.yaml"


def write(lock: Lock) -> bytes:
    """The one form of a lock: equal locks are equal bytes, and a changed file is a changed line or two."""
    plain = lock.model_dump(mode="json", exclude_defaults=True)
    plain["files"] = sorted(plain["files"], key=lambda file: str(file["path"]))
    plain["facts"] = dict(sorted(plain.get("facts", {}).items()))
    return (HEAD + "\n".join(_mapping(plain, "")) + "\n").encode()


def _mapping(value: dict[str, Any], indent: str) -> Iterator[str]:
    for key, part in value.items():
        if isinstance(part, dict) and part:
            yield f"{indent}{key}:"
            yield from _mapping(part, indent + "  ")
        elif isinstance(part, list) and part and isinstance(part[0], dict):
            yield f"{indent}{key}:"
            for item in part:
                first, *rest = _mapping(item, "")
                yield f"{indent}  - {first}"
                yield from (f"{indent}    {line}" for line in rest)
        elif part != {}:
            yield f"{indent}{key}: {_scalar(part)}"


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_scalar(part) for part in value)}]"
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/+-]*", value) is not None and scalars.resolve(value) == value
    return value if plain else json.dumps(value, ensure_ascii=False)
