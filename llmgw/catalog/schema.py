"""JSON Schemas of the repository's files, from the types: what an editor is told.

Draft 2020-12. Problems and the reference take their words from the same
schemas, so that a field is described in one place. The two functions at the
end are the only ones of the catalog that touch files.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TypeAlias

from llmgw.catalog.fields import Strict
from llmgw.catalog.forms import FORMS
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.model import Model
from llmgw.catalog.planned import KEYWORD
from llmgw.catalog.problem import Steps
from llmgw.catalog.server import Server

Schema: TypeAlias = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
WORDS = "words"
"""A keyword of our own: what a type takes, where no other keyword is put into words."""
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum")
_KEYWORDS = {"ge": "minimum", "le": "maximum"}
"""pydantic leaves a bound that stands after a validator of ours under its own name."""


@cache
def of(kind: type[Strict]) -> Schema:
    """The schema of one type, its parts under `$defs`."""
    tidy: Schema = _tidy(kind.model_json_schema(by_alias=True))
    return tidy


def _tidy(part: Any, *, named: bool = False) -> Any:
    """The schema as it is published: texts on one line, no titles made up from names of fields.

    Args:
        part: of the schema.
        named: whether its keys are names of fields or types, rather than keywords.
    """
    if isinstance(part, list):
        return [_tidy(item) for item in part]
    if not isinstance(part, dict):
        return part
    if named:
        return {name: _tidy(inner) for name, inner in part.items()}
    tidy = {
        _KEYWORDS.get(key, key): _tidy(inner, named=key in {"properties", "$defs"})
        for key, inner in part.items()
        # A default of null says that a key may be absent, which the schema says anyway.
        if not (key == "title" and "properties" not in part) and not (key == "default" and inner is None)
    }
    if "description" in tidy:
        tidy["description"] = " ".join(tidy["description"].split())
    if (words := tidy.pop(KEYWORD, None)) is not None:
        tidy["description"] = f"{tidy.get('description', '')} {planned(words)}".strip()
    for pattern, inner in tidy.pop("patternProperties", {}).items():
        # pydantic would let a key pass that is not of the form.
        tidy["additionalProperties"] = inner
        tidy["propertyNames"] = {**tidy.get("propertyNames", {}), "pattern": pattern}
    return tidy


def planned(words: str) -> str:
    """The sentence about a field that does not act yet, or whose values in `words` do not."""
    verb = ("do" if " and " in words else "does") if words else "it does"
    return f"*Planned*: {words} {verb} not act yet.".replace("  ", " ")


def node(kind: type[Strict], at: Steps) -> Schema:
    """What the schema of `kind` says of the value at `at`; empty where it says nothing."""
    whole = of(kind)
    here = _follow(whole, whole)
    for step in at:
        if isinstance(step, int):
            here = here.get("items", {})
        else:
            here = here.get("properties", {}).get(step) or here.get("additionalProperties") or {}
        here = _follow(whole, here)
    return here


def _follow(whole: Schema, part: Schema) -> Schema:
    """The schema that is meant: a reference resolved, `or null` taken away, the field's own text kept."""
    choices = [choice for choice in part.get("anyOf", ()) if choice != {"type": "null"}]
    meant = choices[0] if len(choices) == 1 else part
    if "$ref" in meant:
        meant = whole["$defs"][meant["$ref"].removeprefix("#/$defs/")]
    return {**meant, **{key: part[key] for key in ("description", "default") if key in part}}


def types(part: Schema) -> tuple[str, ...]:
    """The types that a part of a schema names: one, several, or none."""
    named = part.get("type", ())
    return (named,) if isinstance(named, str) else tuple(named)


def expected(part: Schema, whole: Schema) -> str:
    """What a value should be, in words: `a whole number from 1 to 64`."""
    part = _follow(whole, part)
    for form in (part, *part.get("anyOf", ())):
        if form.get("pattern") in FORMS:
            return FORMS[form["pattern"]]
    if "enum" in part:
        return "one of " + ", ".join(f"`{choice}`" for choice in part["enum"])
    if "const" in part:
        return f"`{part['const']}`"
    match part.get("type"):
        case "integer":
            return f"a whole number{limits(part)}"
        case "number":
            return f"a number{limits(part)}"
        case "boolean":
            return "`true` or `false`"
        case "array":
            item = _follow(whole, part["items"])
            return f"a list of {item['title']}s" if "title" in item else f"a list, each item {expected(item, whole)}"
        case "object":
            return f"a mapping with the keys of {noun(part)}" if "title" in part else "a mapping of text to text"
        case _:
            limit = part.get("maxLength")
            words: str = part.get(WORDS, f"text of at most {limit} characters" if limit else "text")
            return words


def noun(part: Schema) -> str:
    """What a value of a type is called: `a model`, `an adapter`, `the limits`."""
    title: str = part.get("title", "mapping")
    if "." in title:
        return title
    return f"the {title}" if title.endswith("s") else f"{'an' if title[0] in 'aeiou' else 'a'} {title}"


def limits(part: Schema) -> str:
    """Between what a number has to be, to go on with: ` from 1 to 64`. Empty: anywhere."""
    low, above, high = (part.get(bound) for bound in _BOUNDS)
    if above is not None:
        return f" above {above}" + (f", at most {high}" if high is not None else "")
    if low is None:
        return ""
    return f" from {low} to {high}" if high is not None else f" of at least {low}"


def documents() -> dict[str, str]:
    """Every schema file's name and text."""
    found = {
        "model.schema.json": _one_or_several(of(Model), "One model, or a list of models."),
        "keys.schema.json": _one_or_several(of(ClientKey), "One client key, or a list of keys."),
        "server.schema.json": {"$schema": DRAFT, **of(Server)},
    }
    return {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in sorted(found.items())}


def _one_or_several(one: Schema, description: str) -> Schema:
    # `if` rather than `anyOf`: an editor then says what is wrong with the model,
    # and not that the file is neither of two things.
    single = {key: part for key, part in one.items() if key != "$defs"}
    name = "".join(word.title() for word in one["title"].split())
    reference = {"$ref": f"#/$defs/{name}"}
    return {
        "$schema": DRAFT,
        "title": one["title"],
        "description": description,
        "if": {"type": "array"},
        "then": {"items": reference, "minItems": 1},
        "else": reference,
        "$defs": {**one.get("$defs", {}), name: single},
    }
