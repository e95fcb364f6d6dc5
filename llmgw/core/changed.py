"""Which fields a commit changes, where they are written, and what each does to what runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from llmgw.catalog import canonical
from llmgw.catalog.fields import Strict
from llmgw.catalog.fingerprint import Effect, effect_of
from llmgw.catalog.lines import Line, Lines
from llmgw.catalog.model import Model
from llmgw.catalog.printable import shown
from llmgw.catalog.server import Server
from llmgw.core.wanted import WantedModel


class FieldChange(Struct, frozen=True):
    """One field of the catalog or of server.yaml that differs."""

    field: str
    """`profiles.cpu.replicas`."""
    before: Any
    """None: it was not there, or is not to be shown."""
    after: Any
    effect: str
    path: str = ""
    """The file it is written in. Empty: that is not known."""
    line: int = 0
    """0: not known."""
    hidden: bool = False
    """Whether its values are not shown, since they may be secret."""


Way = tuple[str, ...]
"""The way to a value. Names of profiles may have dots in them."""


def model_changes(before: WantedModel, after: WantedModel, lines: Lines | None) -> Iterator[FieldChange]:
    """What differs of one model, by field.

    Args:
        before: as it is carried out now.
        after: as the change asks for it.
        lines: of the change's files. None: they are not known.
    """
    for at, was, will in _differences(before.model, after.model):
        where = lines.of_model(after.path, after.model.name, at) if lines else None
        path = at == ("source", "from") and after.model.source.is_path
        effect = Effect.RESTARTS if path else effect_of(at)
        yield _change(at, was, will, str(effect), where, Model)


def server_changes(before: Server, after: Server, lines: Lines | None) -> Iterator[FieldChange]:
    """What differs of server.yaml, by field."""
    for at, was, will in _differences(before, after):
        where = lines.of_server(at) if lines else None
        yield _change(at, was, will, str(effect_of(at, Server)), where, Server)


def _change(at: Way, was: Any, will: Any, effect: str, where: Line | None, kind: type[BaseModel]) -> FieldChange:
    (before, may), (after, may_too) = shown(at, was, kind), shown(at, will, kind)
    hidden = not (may and may_too)
    if hidden:
        before = after = None
    path, line = where or ("", 0)
    return FieldChange(".".join(at), before, after, effect, path, line, hidden)


def _differences(before: Strict, after: Strict) -> Iterator[tuple[Way, Any, Any]]:
    was, will = _flat(canonical.spec(before)), _flat(canonical.spec(after))
    for at in sorted({*was, *will}):
        if was.get(at) != will.get(at):
            yield at, was.get(at), will.get(at)


def _flat(value: Any, at: Way = ()) -> dict[Way, Any]:
    """Every leaf by its way: `profiles`, `cpu`, `replicas`. Named parts go by their name."""
    if isinstance(value, dict):
        parts = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, list) and value and all(isinstance(v, dict) and "name" in v for v in value):
        parts = [(str(v["name"]), v) for v in value]
    else:
        return {at: value}
    return {k: v for key, part in parts for k, v in _flat(part, (*at, key)).items()}
