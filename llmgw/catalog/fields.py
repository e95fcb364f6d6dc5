"""The kinds of field that the catalog's types are made of."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic import Strict as Exactly
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from llmgw import units
from llmgw.catalog.forms import (
    ALIAS,
    AUTO,
    CRON,
    DAY,
    DURATION,
    GIB_SIZE,
    NAME,
    SHA256,
    SIZE,
    SIZE_SPAN,
    SPAN,
    URL,
    ZONE,
)
from llmgw.units import GIB, Span

YEAR_S = 31_536_000
MOST_GIB = 1_000_000
MOST_BYTES = 1 << 60
NEARLY = 0.08
"""How far from one size a card's memory may be: an L40S of 48 GiB reports 6.3 % less with its memory corrected, and
an A100 of 80 GB has 80 GiB, 7.4 % more. Cards that differ in size differ by more."""


class Strict(BaseModel):
    """A value of the catalog: frozen, and a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)

    fields_of: ClassVar[type[Strict] | None] = None
    """The type that has the texts of its fields, where it was made from another."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema, where the docstring below a field is its text: in the reference and in problems too."""
        # pydantic can do this, for every type as it is loaded: a third of what loading the catalog took.
        made = handler(core)
        properties = handler.resolve_ref_schema(made)["properties"]
        for name, text in _texts(cls.fields_of or cls).items():
            if field := cls.model_fields.get(name):
                properties[field.alias or name].setdefault("description", text)
        return made


def _texts(kind: type[Strict]) -> dict[str, str]:
    """The docstrings below the fields of a type, by the field's name."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__[: kind.__mro__.index(Strict)]):
        # A class is not indented where it stands, at the top of a module.
        match ast.parse(inspect.getsource(owner)).body:
            case [ast.ClassDef(body=body)]:
                for pair in pairwise(body):
                    match pair:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            found[name] = inspect.cleandoc(text)
    return found


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


def _seconds_or_auto(value: object) -> object:
    if value == "auto":
        return value
    found = _seconds(value)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= YEAR_S:
        raise ValueError("it is no duration")
    return float(found)


def _gib(value: object) -> object:
    return units.parse_bytes(value) / GIB if isinstance(value, str) and re.fullmatch(SIZE, value) else value


def _bytes(value: object) -> object:
    return units.parse_bytes(value) if isinstance(value, str) and re.fullmatch(SIZE, value) else whole(value)


def _span(pattern: str, span: Callable[[str], Span]) -> PlainValidator:
    def read(value: object) -> Span:
        if isinstance(value, Span):
            return value
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError("it is no range")
        return span(value)

    return PlainValidator(read)


def _size_span(text: str) -> Span:
    if ".." in text:
        return units.parse_span(text, units.parse_bytes)
    size = units.parse_bytes(text)
    return Span(round(size * (1 - NEARLY)), round(size * (1 + NEARLY)))


def _in_order(values: tuple[str, ...]) -> tuple[str, ...]:
    # Their order means nothing, and a fixed one makes equal values equal texts.
    return tuple(sorted(values)) if len(values) > 1 else values


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
Cron = Annotated[Text, Field(pattern=CRON, max_length=200)]
Zone = Annotated[Text, Field(pattern=ZONE, max_length=64)]
Day = Annotated[Text, Field(pattern=DAY)]
Word = Annotated[Text, Field(min_length=1, max_length=200)]
"""Free text of at most a line."""
Path = Annotated[Text, Field(min_length=1, max_length=1024)]
"""A file by its path, or a pattern of such."""
Share = Annotated[Number, Field(gt=0, le=1)]
"""A part of a whole: 0.8."""
Tokens = Annotated[Whole, Field(ge=1, le=100_000_000)]
Names = Annotated[tuple[Name, ...], Field(max_length=1000), AfterValidator(_in_order)]
"""Names whose order means nothing."""
Aliases = Annotated[tuple[Alias, ...], Field(max_length=1000), AfterValidator(_in_order)]
Paths = Annotated[tuple[Path, ...], Field(max_length=256), AfterValidator(_in_order)]
Labels = Annotated[
    dict[Annotated[Text, Field(max_length=127)], Annotated[Text, Field(max_length=255)]],
    Field(max_length=64),
    AfterValidator(lambda labels: dict(sorted(labels.items()))),
]
Variables = Annotated[
    dict[Annotated[Text, Field(max_length=127)], Annotated[Text, Field(max_length=4096)]],
    Field(max_length=128),
    AfterValidator(lambda variables: dict(sorted(variables.items()))),
]
"""Of an environment. A rule looks at their names."""
Seconds = Annotated[
    Number,
    BeforeValidator(_seconds),
    Field(ge=0, le=YEAR_S),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": YEAR_S}, {"type": "string", "pattern": DURATION}]}
    ),
]
"""Written `15m` or as a number of seconds."""
SecondsOrAuto = Annotated[
    float | str,
    PlainValidator(_seconds_or_auto),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": YEAR_S}, {"type": "string", "pattern": AUTO}]}
    ),
]
Gib = Annotated[
    Number,
    BeforeValidator(_gib),
    Field(gt=0, le=MOST_GIB),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_GIB},
                {"type": "string", "pattern": GIB_SIZE},
            ]
        }
    ),
]
"""Written `24` or `24GiB`."""
Bytes = Annotated[
    int,
    Exactly(),
    BeforeValidator(_bytes),
    Field(ge=0, le=MOST_BYTES),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST_BYTES}, {"type": "string", "pattern": SIZE}]}
    ),
]
"""Written `50GiB`, or as a number of bytes."""
SizeSpan = Annotated[
    Span,
    _span(SIZE_SPAN, _size_span),
    PlainSerializer(units.show_size_span, return_type=str),
    WithJsonSchema({"type": "string", "pattern": SIZE_SPAN}),
]
"""Written `80GB..`, or `80GB` for what is nearly that."""
NumberSpan = Annotated[
    Span,
    _span(SPAN, lambda text: units.parse_span(text, float)),
    PlainSerializer(units.show_span, return_type=str),
    WithJsonSchema({"type": "string", "pattern": SPAN}),
]
"""Written `8.0..`."""
