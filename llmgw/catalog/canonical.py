"""One form for all ways to write the same: what the status branch keeps of a model.

Order of keys, quotes, the spelling of a number, units, and a default written
out or left out make no difference to it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from llmgw.catalog.fields import Strict
from llmgw.catalog.model import Model
from llmgw.catalog.planned import mark_of, types_in


def spec(value: Strict) -> dict[str, Any]:
    """A model, or the server, as plain values that JSON and YAML can hold.

    Every default that says something is written out, so that a later version
    with other defaults reads what was meant. What is absent or an empty list is left
    out, and so is what does not act yet and is not set. What has no order of its
    own is sorted: aliases by themselves, profiles and entries by name.
    """
    whole = value.model_dump(mode="json", by_alias=True)
    written = {key for key in _AS_WRITTEN if key in whole}
    plain: dict[str, Any] = _pruned({k: v for k, v in whole.items() if k not in written}, type(value))
    if written:
        # Of these only what is written is there: what is not is a default of another type.
        brought = value.model_dump(mode="json", by_alias=True, include=written, exclude_unset=True)
        plain |= {key: _pruned(part, None) for key, part in brought.items() if part}
    for key in _BY_NAME:
        if key in plain:
            plain[key] = sorted(plain[key], key=lambda part: str(part["name"]))
    if "aliases" in plain:
        plain["aliases"] = sorted(plain["aliases"])
    return plain


_BY_NAME = ("profiles", "nodes", "gateways", "operators", "cards", "notifications")
_AS_WRITTEN = ("defaults", "blocks")
"""What server.yaml brings into models."""


def from_spec(plain: dict[str, Any]) -> Model:
    """The model of its canonical form.

    Raises:
        pydantic.ValidationError: it is not one, or one of a later version.
    """
    return Model.model_validate(plain, by_name=False)


def _pruned(value: Any, kind: type[BaseModel] | None) -> Any:
    """A value as it was written down, without what says nothing."""
    if isinstance(value, dict):
        if kind is None:
            return {key: _pruned(part, None) for key, part in value.items()}
        shape, plain = _shape(kind), {}
        for key, part in value.items():
            default, inner = shape[key]
            if part != default:
                plain[key] = _pruned(part, inner) if isinstance(part, dict | list | float) else part
        return plain
    if isinstance(value, list):
        return [_pruned(part, kind) for part in value]
    return number(value) if isinstance(value, float) else value


@cache
def _shape(kind: type[BaseModel]) -> dict[str, tuple[Any, type[BaseModel] | None]]:
    """For each key of a type: the value that says nothing there, if there is one, and the type of what is inside."""
    shape: dict[str, tuple[Any, type[BaseModel] | None]] = {}
    for name, field in kind.model_fields.items():
        default: Any = _SAYS_SOMETHING
        if not field.is_required() and field.default_factory is None:
            mark = mark_of(kind, name)
            if field.default is None or field.default in ((), {}) or (mark is not None and not mark.values):
                default = to_jsonable_python(field.default, by_alias=True)
        shape[field.alias or name] = default, next(types_in(field.annotation), None)
    return shape


_SAYS_SOMETHING = object()


def number(value: float) -> int | float:
    """24.0 and 24 are one number, and are written as one."""
    return int(value) if value.is_integer() else value
