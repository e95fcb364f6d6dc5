"""One form for all ways to write the same: what the status branch keeps of a model.

Order of keys, quotes, the spelling of a number, units, and a default written
out or left out make no difference to it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from llmgw.catalog.fields import Strict
from llmgw.catalog.model import Model
from llmgw.catalog.planned import holds_types, mark_of


def spec(value: Strict) -> dict[str, Any]:
    """A model, or the server, as plain values that JSON and YAML can hold.

    Every default that says something is written out, so that a later version
    with other defaults reads what was meant. What is absent or an empty list is left
    out, and so is what does not act yet and is not set. What has no order of its
    own is sorted: aliases by themselves, profiles and entries by name.
    """
    plain: dict[str, Any] = _plain(value)
    for key in _BY_NAME:
        if key in plain:
            plain[key] = sorted(plain[key], key=lambda part: str(part["name"]))
    if "aliases" in plain:
        plain["aliases"] = sorted(plain["aliases"])
    return plain


_BY_NAME = ("profiles", "nodes", "gateways", "operators", "cards", "notifications")
_AS_WRITTEN = ("defaults", "blocks")
"""Of these only what is written is there: what is not is a default of another type."""


def from_spec(plain: dict[str, Any]) -> Model:
    """The model of its canonical form.

    Raises:
        pydantic.ValidationError: it is not one, or one of a later version.
    """
    return Model.model_validate(plain, by_name=False)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        kind, dumped = type(value), value.model_dump(mode="json", by_alias=True, include=_simple(type(value)))
        plain: dict[str, Any] = {}
        for name, field in kind.model_fields.items():
            part, key = getattr(value, name), field.alias or name
            mark = mark_of(kind, name)
            says_nothing = part is None or part in ((), {}) or (mark is not None and not mark.values)
            if says_nothing and part == field.get_default():
                continue
            if name in _AS_WRITTEN:
                plain[key] = _numbers(
                    value.model_dump(mode="json", by_alias=True, include={name}, exclude_unset=True)[key]
                )
            else:
                plain[key] = _numbers(dumped[key]) if key in dumped else _plain(part)
        return plain
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value


@cache
def _simple(kind: type[BaseModel]) -> set[str]:
    """The fields with no type of ours inside, which are written down in one go."""
    return {name for name, field in kind.model_fields.items() if not holds_types(field.annotation)}


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return number(value) if isinstance(value, float) else value


def number(value: float) -> int | float:
    """24.0 and 24 are one number, and are written as one."""
    return int(value) if value.is_integer() else value
