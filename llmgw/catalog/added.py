"""The file of a model that a command adds: written once, and a person's from then on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from llmgw.catalog import scalars

HEAD = "# Added by `llmgw model add`. Figures that are estimates say so; change what you know better.\n"


def added_file(fields: Mapping[str, Any], notes: Mapping[str, str]) -> bytes:
    """A model's file: every field on its line, with a comment beside those that a note is of.

    Args:
        fields: of the model, as its file has them. Its profiles are lists of fields.
        notes: by the name of a field, of the model or of its profile.
    """
    lines: list[str] = []
    for key, value in fields.items():
        if key == "profiles":
            lines.append("profiles:")
            for profile in value:
                first, *rest = _mapping(profile, notes)
                lines += [f"  - {first}", *(f"    {line}" for line in rest)]
        elif isinstance(value, Mapping):
            lines += [f"{key}:", *(f"  {line}" for line in _mapping(value, notes))]
        else:
            lines += _mapping({key: value}, notes)
    return (HEAD + "\n".join(lines) + "\n").encode()


def _mapping(fields: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    for key, value in fields.items():
        note = f"   # {notes[key]}" if key in notes else ""
        yield f"{key}: {_value(value)}{note}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9._/+-]*", value) is not None and scalars.resolve(value) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)
