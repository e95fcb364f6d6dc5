"""What does not fit the types, in our own words and where it stands in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

from llmgw.catalog import schema
from llmgw.catalog.defaults import OF_ONE_MODEL
from llmgw.catalog.document import Document
from llmgw.catalog.fields import Strict
from llmgw.catalog.forms import ALIAS, LIKE, NAME, SHA256, SIZE_SPAN, SPAN
from llmgw.catalog.model import Model
from llmgw.catalog.problem import Finding, Steps, label, shorten
from llmgw.catalog.scalars import resolve

_ELSEWHERE = {
    **dict.fromkeys(("port", "ports"), "ports are never in the catalog: the agent chooses one (7500 to 7999)"),
    **dict.fromkeys(("host", "hosts"), "engines listen on the `address` of their node in server.yaml"),
}
"""Keys that people look for, and why there are none."""

_OWN = {
    "defaults": frozenset(Model.model_fields[name].alias or name for name in OF_ONE_MODEL),
    "profile defaults": frozenset({"name"}),
}
"""Keys that are never defaults, since no two have the same: by the title of the type."""

# bool comes first: it is an int to Python, and not to YAML.
_SORTS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}
_TYPES = {
    "boolean": "true or false",
    "integer": "a number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
}

_RANGES = {SIZE_SPAN, SPAN}


def explain(kind: type[Strict], flaws: Sequence[ErrorDetails], document: Document, base: Steps) -> Iterator[Finding]:
    """Findings of what pydantic refused.

    Args:
        kind: the type that was asked for.
        flaws: what does not fit it.
        document: the file, for places and for what is written there.
        base: the way in the file to the value that was refused.
    """
    meant = {(*flaw["loc"][:-1], _meant(kind, flaw["loc"])) for flaw in flaws if flaw["type"] == "extra_forbidden"}
    for flaw in flaws:
        # pydantic marks a key that was refused itself, in a mapping of any keys, by a step of its own.
        misnamed = flaw["loc"][-1:] == ("[key]",)
        loc: Steps = flaw["loc"][:-1] if misnamed else flaw["loc"]
        at: Steps = (*base, *loc)
        # A default that is made of other fields is not made where one of them does not fit.
        if at in document.unsure or flaw["type"] == "default_factory_not_called":
            continue
        if flaw["type"] == "missing":
            # A key that is there under a wrong name is said once.
            if loc not in meant and at[:-1] not in document.unsure:
                yield _missing(kind, base, loc)
        elif flaw["type"] == "extra_forbidden":
            yield _unknown(kind, document, base, loc)
        elif misnamed:
            yield _misnamed(kind, document, base, loc)
        elif flaw["type"] in {"too_short", "too_long"}:
            # Also said of a list whose items were refused, where it means nothing.
            yield from _miscounted(flaw["input"], flaw["ctx"], at)
        else:
            yield _unfit(kind, document, base, loc, flaw["input"])


def _missing(kind: type[Strict], base: Steps, loc: Steps) -> Finding:
    part, owner = schema.node(kind, loc), schema.node(kind, loc[:-1])
    why = f"{schema.noun(owner)} needs it: {_clause(part.get('description', ''))}"
    do = f"add `{loc[-1]}:` with {schema.expected(part, schema.of(kind))}"
    return Finding((*base, *loc), f"`{label(loc)}` is missing", why, do)


def _meant(kind: type[Strict], loc: Steps) -> str:
    """The known key that an unknown one is closest to, or nothing."""
    close = get_close_matches(str(loc[-1])[:80], sorted(schema.node(kind, loc[:-1]).get("properties", {})), n=1)
    return close[0] if close else ""


def _unknown(kind: type[Strict], document: Document, base: Steps, loc: Steps) -> Finding:
    owner, key = schema.node(kind, loc[:-1]), str(loc[-1])
    parts = (schema.of(kind), *schema.of(kind).get("$defs", {}).values())
    others = sorted(schema.noun(part) for part in parts if key in part.get("properties", {}))
    why = f"the keys of {schema.noun(owner)} are {', '.join(sorted(owner.get('properties', {})))}"
    if key in _OWN.get(owner.get("title", ""), ()):
        whose = owner["title"].removesuffix("defaults").strip() or "model"
        why, do = f"each {whose} has its own", f"take it out, and write it in each {whose}"
    elif key in _ELSEWHERE:
        why, do = _ELSEWHERE[key], "take it out"
    elif others:
        do = f"move it to {' or '.join(others)}"
    else:
        close = _meant(kind, loc)
        do = f"write `{close}`" if close else "take it out"
    what = f"`{label(loc)}` is not a key of {schema.noun(owner)}"
    return Finding((*base, *loc), what, why, do, document.key_place((*base, *loc)))


def _misnamed(kind: type[Strict], document: Document, base: Steps, loc: Steps) -> Finding:
    """A key that is refused itself, in a mapping whose keys are anybody's to name."""
    key, form = str(loc[-1]), schema.node(kind, loc[:-1]).get("propertyNames", {})
    close, pattern = _closest(form, key), form.get("pattern", "")
    what = f"`{label(loc[:-1])}` cannot have {f'the key `{shorten(key)}`' if key else 'an empty key'}"
    why = f"its keys are each {schema.expected(form, schema.of(kind))}"
    do = f"write `{close or LIKE[pattern]}`" if close or pattern in LIKE else "rename it"
    return Finding((*base, *loc), what, why, do, document.key_place((*base, *loc)))


def _miscounted(found: Any, limits: dict[str, Any], at: Steps) -> Iterator[Finding]:
    least, most, count = limits.get("min_length", 0), limits.get("max_length"), len(found)
    if count < least:
        yield Finding(at, f"`{label(at)}` is empty", f"it has at least {least}", "add one")
    if most is not None and count > most:
        yield Finding(at, f"`{label(at)}` is too long", f"it has {count}, and at most {most} are read", "shorten it")


def _unfit(kind: type[Strict], document: Document, base: Steps, loc: Steps, found: Any) -> Finding:
    at: Steps = (*base, *loc)
    part, raw = schema.node(kind, loc), document.raw(at)
    wants = schema.expected(part, schema.of(kind))
    what = (
        f"`{label(loc)}` cannot be {_shown(found, raw)}"
        if loc
        else f"{schema.noun(part)} cannot be {_shown(found, raw)}"
    )
    sort = _SORTS[type(found)]
    right_sort = sort in {_TYPES.get(name) for choice in part.get("anyOf", (part,)) for name in schema.types(choice)}
    # Where the sort is right and the value is not, saying the sort would only distract.
    why = f"{wants} belongs here" if right_sort else f"it is {sort}, and {wants} belongs here"
    if isinstance(found, str) and any(re.fullmatch(pattern, found) for pattern in _patterns(part) & _RANGES):
        begin, _, end = found.partition("..")
        return Finding(at, what, "it ends before it begins", f"write `{end}..{begin}`")
    if found is None and loc and isinstance(loc[-1], str):
        needed = loc[-1] in schema.node(kind, loc[:-1]).get("required", ())
        return Finding(at, what, why, "write one" if needed else "write one, or take the key out")
    return Finding(at, what, why, _advice(part, found, raw, wants, right_sort=right_sort))


def _patterns(part: schema.Schema) -> set[str]:
    return {choice["pattern"] for choice in part.get("anyOf", (part,)) if "pattern" in choice}


def _shown(found: Any, raw: str | None) -> str:
    if isinstance(found, list | dict):
        return _SORTS[type(found)]
    # A password in a URL is not repeated in a log.
    text = re.sub(r"(?s)//.*@", "//…@", raw if raw is not None else str(found))
    return f"`{shorten(text)}`" if text else "empty"


def _advice(part: schema.Schema, found: Any, raw: str | None, wants: str, *, right_sort: bool) -> str:
    """What to write instead."""
    sort = part.get("type")
    patterns = [choice["pattern"] for choice in part.get("anyOf", (part,)) if "pattern" in choice]
    if isinstance(found, str) and (close := _closest(part, found)):
        return f"write `{close}`"
    if "enum" in part:
        return "write one of these"
    if sort == "string" and raw and not isinstance(found, str):
        return f'write it in quotes: "{shorten(raw)}"'
    if sort == "array" and raw:
        return f"write it as a list: [{shorten(raw)}]"
    if sort == "object":
        return "write its keys on lines of their own, indented"
    if isinstance(sort, str) and sort in {"integer", "number", "boolean"}:
        if isinstance(found, str) and _SORTS[type(_resolved(found))] == _TYPES[sort]:
            return f"write it without quotes: {shorten(found)}"
        if isinstance(found, str) and re.fullmatch(SPAN, found):
            return "write one number: no range is taken here"
        return _within(part, wants) if right_sort else "write one"
    if right_sort and isinstance(found, int | float):
        return _within(part, wants)
    return f"write one like `{LIKE[patterns[0]]}`" if patterns and patterns[0] in LIKE else "write that"


def _within(part: schema.Schema, wants: str) -> str:
    """What to write in place of a number that is not one of those that are taken."""
    if "const" in part:
        return f"write {part['const']}"
    limits = next(filter(None, map(schema.limits, part.get("anyOf", (part,)))), "")
    return "write one in that range" if limits in wants else f"write a number{limits}"


def _resolved(text: str) -> Any:
    try:
        return resolve(text)
    except ValueError:
        return text


def _closest(part: schema.Schema, found: str) -> str:
    """The value that was probably meant, or nothing."""
    if "enum" in part:
        close = get_close_matches(found.lower()[:60], part["enum"], n=1)
        return close[0] if close else ""
    if part.get("pattern") == SHA256 and re.fullmatch(r"[0-9a-fA-F]{64}", found):
        return found.lower()
    if part.get("pattern") in {NAME, ALIAS}:
        allowed = r"[^a-z0-9._/:-]+" if part["pattern"] == ALIAS else r"[^a-z0-9._-]+"
        return re.sub(allowed, "-", found.lower()[:63]).strip("._-/:")
    return ""


def _clause(sentence: str) -> str:
    """The first sentence of a description, to go on with after a colon."""
    first = sentence.partition(". ")[0].rstrip(".")
    # `GiB of memory` keeps its capital.
    return first[:1].lower() + first[1:] if first[1:2].islower() and first[1:3].islower() else first
