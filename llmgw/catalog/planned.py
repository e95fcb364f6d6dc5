"""Fields that are accepted and checked and do not act yet: one marker, and what a fleet sets of them.

No field is ever ignored in silence. One that is marked says so in the schema and
in the reference; `llmgw validate` prints a note for each that is set, and control
warns of it once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from llmgw.catalog.problem import Steps

KEYWORD = "planned"
"""How the marker travels through the types' own schema. `schema.py` makes words of it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Beside a type in `Annotated`: the field does not act yet, with everything below it.

    Moved or taken out by whoever makes the field act.
    """

    values: str = ""
    """A pattern of the only values that do not act yet. Empty: the whole field does not."""
    words: str = ""
    """The same for people."""

    def marks(self, value: Any) -> bool:
        """Whether a value that was written does not act yet."""
        return not self.values or re.match(self.values, str(value)) is not None

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), KEYWORD: self.words}


class Note(NamedTuple):
    """A field that is set and does not act yet. Sorted by where it is."""

    path: str
    """Of the file, from the top of the repository."""
    line: int
    column: int
    field: str
    """`scaling.min`."""

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.line}:{self.column}: note: `{self.field}` is planned: "
            "it is checked, and does not act yet"
        )


def set_in(value: BaseModel, at: Steps = ()) -> Iterator[Steps]:
    """The ways to what was written into a value and does not act yet.

    What is written as it would be anyway is not among them: it makes no difference.
    """
    marks, nested, names = _of(type(value))
    for name in value.model_fields_set:
        here = (*at, names[name])
        mark, field = marks.get(name), getattr(value, name)
        if mark is not None:
            if field != type(value).model_fields[name].get_default() and mark.marks(field):
                yield here
        elif name in nested:
            yield from _inside(field, here)


def _inside(field: Any, at: Steps) -> Iterator[Steps]:
    if isinstance(field, BaseModel):
        yield from set_in(field, at)
    elif isinstance(field, tuple):
        for index, part in enumerate(field):
            yield from _inside(part, (*at, index))
    elif isinstance(field, dict):
        for key, part in field.items():
            yield from _inside(part, (*at, key))


def mark_of(kind: type[BaseModel], name: str) -> Planned | None:
    """The marker of a field, by its name in Python."""
    return _of(kind)[0].get(name)


@cache
def _of(kind: type[BaseModel]) -> tuple[dict[str, Planned], frozenset[str], dict[str, str]]:
    """The marked fields of a type, those with values of types inside, and every field's key in a file."""
    fields = kind.model_fields
    marks = {name: mark for name, field in fields.items() for mark in field.metadata if isinstance(mark, Planned)}
    nested = frozenset(name for name, field in fields.items() if any(types_in(field.annotation)))
    return marks, nested, {name: field.alias or name for name, field in fields.items()}


def types_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The types of ours that values of a field are made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from types_in(part)
