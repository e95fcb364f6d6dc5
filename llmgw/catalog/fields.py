"""The kinds of field that the catalog's types are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic import Strict as Exactly

from llmgw import units

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
"""Names of models, profiles and nodes: they are parts of paths, ids and URLs."""

ALIAS = r"^[a-z0-9][a-z0-9._:/-]{0,126}$"
SHA256 = r"^[0-9a-f]{64}$"
URL = r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$"
ADDRESS = r"^[A-Za-z0-9.:-]+$"
DURATION = r"^(\d+(\.\d+)?(ms|[smhdw]))+$"

FORMS = {
    NAME: "a name of at most 63 lower-case letters, digits, `.`, `_` and `-`, the first a letter or digit",
    ALIAS: "an alias of at most 127 characters: those of a name, and `/` and `:`",
    SHA256: "a sha256 of 64 hexadecimal digits in lower case",
    URL: "an http or https URL without user, query or fragment",
    ADDRESS: "an IP address or a host name, without a port",
    DURATION: "a duration like `90s`, `15m` or `1h30m`, or a number of seconds, at most a year",
}
"""What a pattern asks for, in words: for problems and for the reference."""

LIKE = {NAME: "qwen3-8b", ALIAS: "org/qwen3:8b", URL: "http://10.0.0.2:8081", ADDRESS: "10.0.0.5", DURATION: "15m"}
"""An example of each form that has one worth showing."""


class Strict(BaseModel):
    """A value of the catalog: frozen, and a key it does not know is an error."""

    # The docstring below a field is its text in the schema, in the reference and in problems.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True)


def whole(value: object) -> object:
    """`3.0` and `1e3` are whole numbers too, as they are to JSON Schema, and `true` is not 1."""
    if isinstance(value, bool):
        raise ValueError("it is true or false")  # noqa: TRY004 - pydantic makes a problem of a ValueError only
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    # units forgives spaces around a duration; an editor with the schema does not.
    if value != value.strip():
        raise ValueError("there are spaces around it")
    return units.parse_duration(value)


# Exact types: pydantic would else take "3" for 3 and "yes" for true, and an
# editor with the schema would not.
Text = Annotated[str, Exactly()]
Flag = Annotated[bool, Exactly()]
Whole = Annotated[int, Exactly(), BeforeValidator(whole)]
Number = Annotated[float, Exactly(), Field(allow_inf_nan=False)]

Name = Annotated[Text, Field(pattern=NAME, max_length=63)]
Alias = Annotated[Text, Field(pattern=ALIAS, max_length=127)]
Sha256 = Annotated[Text, Field(pattern=SHA256)]
Url = Annotated[Text, Field(pattern=URL, max_length=500)]
Labels = Annotated[
    dict[Annotated[Text, Field(max_length=127)], Annotated[Text, Field(max_length=255)]],
    Field(max_length=64),
    # Their order means nothing, and a fixed one makes equal values equal texts.
    AfterValidator(lambda labels: dict(sorted(labels.items()))),
]
Seconds = Annotated[
    Number,
    BeforeValidator(_seconds),
    Field(ge=0, le=31_536_000),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": 31_536_000}, {"type": "string", "pattern": DURATION}]}
    ),
]
"""Written `15m` or as a number of seconds."""
