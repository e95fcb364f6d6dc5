"""The kinds of field that the catalog's types are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from llmgw import units

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
"""Names of models, profiles and nodes: they are parts of paths, ids and URLs."""

ALIAS = r"^[a-z0-9][a-z0-9._:/-]{0,126}$"


class Strict(BaseModel):
    """A value of the catalog: frozen, and a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _bytes(value: object) -> object:
    return units.parse_bytes(value) if isinstance(value, str) else value


def _seconds(value: object) -> object:
    return units.parse_duration(value) if isinstance(value, str) else value


Name = Annotated[str, Field(pattern=NAME, max_length=63)]
Alias = Annotated[str, Field(pattern=ALIAS, max_length=127)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(ge=0, le=31_536_000),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|[smhdw]))+$"}]}
    ),
]
"""Written `15m` or as a number of seconds."""
Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    Field(ge=0),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([KMGT]?i?B)?$"}]}
    ),
]
"""Written `24GiB`, `80GB` or as a number of bytes."""
