"""What a source was found to hold: said by whoever could look, a command or the mirror."""

from __future__ import annotations

from msgspec import Struct

Fact = bool | int | float | str
"""One figure of a header. Their names are planning's own."""


class ResolvedFile(Struct, frozen=True, omit_defaults=True, order=True):
    """One file, as its holder says it is."""

    path: str
    bytes: int | None = None
    """None: the holder does not say."""
    sha256: str | None = None
    """None: nobody but a reader of the whole file knows it."""


class Resolved(Struct, frozen=True, omit_defaults=True):
    """One source at one moment."""

    files: tuple[ResolvedFile, ...]
    """Sorted by path."""
    commit: str = ""
    """Of a repository: what its revision named."""
    license: str = ""
    gated: bool = False
    """Whether its owner decides who may have it."""
    base_model: str = ""
    facts: dict[str, Fact | list[Fact]] = {}
    """Of its header. Empty: not read, or not understood."""


class Ask(Struct, frozen=True, omit_defaults=True):
    """What `POST /v1/resolve` asks of the mirror."""

    source: dict[str, str | list[str]]
    """The fields of the source that say what is fetched, as they are written."""
    facts: bool = True
    """Whether its header is read too."""
