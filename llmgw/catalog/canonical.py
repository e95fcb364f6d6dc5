"""One form for all ways to write the same: what the status branch keeps of a model.

Order of keys, quotes, the spelling of a number, units, and a default written
out or left out make no difference to it.
"""

from __future__ import annotations

from typing import Any

from llmgw.catalog.fields import Strict
from llmgw.catalog.model import Model


def spec(value: Strict) -> dict[str, Any]:
    """A model, or the server, as plain values that JSON and YAML can hold.

    Every default is written out, so that a later version with other defaults
    reads what was meant. What has no order of its own is sorted: aliases by
    themselves, and profiles, nodes and callers by name.
    """
    plain: dict[str, Any] = _plain(value.model_dump(mode="json", by_alias=True))
    for key in ("profiles", "nodes", "gateways", "operators"):
        if key in plain:
            plain[key] = sorted(plain[key], key=lambda part: str(part["name"]))
    if "aliases" in plain:
        plain["aliases"] = sorted(plain["aliases"])
    return plain


def from_spec(plain: dict[str, Any]) -> Model:
    """The model of its canonical form.

    Raises:
        pydantic.ValidationError: it is not one, or one of a later version.
    """
    return Model.model_validate(plain, by_name=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return number(value) if isinstance(value, float) else value


def number(value: float) -> int | float:
    """24.0 and 24 are one number, and are written as one."""
    return int(value) if value.is_integer() else value
