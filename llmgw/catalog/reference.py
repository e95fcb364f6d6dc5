"""The parts of docs/catalog.md that say what the types say: every field, default and effect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from llmgw.catalog import schema
from llmgw.catalog.canonical import number
from llmgw.catalog.fields import Strict
from llmgw.catalog.fingerprint import EFFECTS
from llmgw.catalog.forms import AUTO, DURATION, SIZE
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.model import Model
from llmgw.catalog.pieces import EXAMPLES, HEADINGS
from llmgw.catalog.planned import mark_of, types_in
from llmgw.catalog.server import Server
from llmgw.units import GIB, show_duration
from llmgw_agent.protocol import PORTS, REPORT_EVERY_S, SILENT_AFTER_S

_ABSENT = re.compile(r"\s*Absent: ([^.]+(?:\.(?! |$)[^.]+)*)\.")
"""How a description says what stands in for a field that is not written."""

_PLANNED = re.compile(r"\s*\*Planned\*: .*$")

_BLOCK = re.compile(r"(?<=<!-- generated: )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


class Section(NamedTuple):
    """One type, and where it stands."""

    title: str
    kind: type[Strict]
    planned: bool
    """Whether nothing of it acts yet."""

    @property
    def heading(self) -> str:
        return HEADINGS[self.title]

    def marked(self, key: str) -> bool:
        """Whether one of its fields does not act yet, by its key in a file."""
        name = next(n for n, field in self.kind.model_fields.items() if (field.alias or n) == key)
        mark = mark_of(self.kind, name)
        return self.planned or (mark is not None and not mark.values)


def sections() -> list[Section]:
    """Every type of the catalog's files, in the order of the page."""
    found: dict[str, Section] = {}
    for kind in (Model, Server, ClientKey):
        _walk(kind, found, planned=False)
    return [found[title] for title in HEADINGS]


def _walk(kind: type[Strict], found: dict[str, Section], *, planned: bool) -> None:
    title = str(kind.model_config["title"])
    if title in found or title not in HEADINGS:
        # What may be in `defaults` is what may be in a model, and is told there.
        return
    found[title] = Section(title, kind, planned)
    for name, field in kind.model_fields.items():
        mark = mark_of(kind, name)
        for inner in types_in(field.annotation):
            assert issubclass(inner, Strict), "the catalog is made of its own types"
            _walk(inner, found, planned=planned or (mark is not None and not mark.values))


def fill(page: str) -> str:
    """The page, with what stands between its marks replaced by what the types say now."""
    parts = {"fields": _fields, "defaults": _defaults, "effects": _effects}
    return _BLOCK.sub(lambda mark: "\n".join((f"{mark[1]} -->", "", *parts[mark[1]](), "", "")), page)


def _fields() -> Iterator[str]:
    """Every field under a heading of its own."""
    for index, section in enumerate(sections()):
        whole = schema.of(section.kind)
        yield from ("",) if index else ()
        yield from (f"## {section.heading}", "", whole["description"])
        yield from ("", "*Planned*: nothing of this acts yet.") if section.planned else ()
        yield from ("", "```yaml", EXAMPLES[section.title], "```")
        for key in whole["properties"]:
            part = schema.node(section.kind, (key,))
            wants = schema.expected(part, whole)
            yield from ("", f"### `{key}`", "", _text(part), "")
            required = key in whole.get("required", ())
            presence = "Required" if required else f"When absent: {_default(part)}"
            planned = " *Planned*." if section.marked(key) else ""
            yield f"{wants[:1].upper()}{wants[1:]}. {presence}. When changed: {_effect(section, key)}.{planned}"


def _text(part: schema.Schema) -> str:
    """What a field is, without the mark of one that does not act at all: that has a word of its own."""
    text: str = part["description"]
    return text.replace(f" {schema.planned('')}", "")


def _defaults() -> Iterator[str]:
    yield from ("| where | field | when absent | what it is, and why so |", "|---|---|---|---|")
    for section in sections():
        for key in schema.of(section.kind)["properties"]:
            part = schema.node(section.kind, (key,))
            if key not in schema.of(section.kind).get("required", ()):
                text = _ABSENT.sub("", _PLANNED.sub("", part["description"]))
                yield f"| {section.heading} | `{key}` | {_default(part)} | {text} |"
    fixed = (
        ("a report of a node", f"at least every {show_duration(REPORT_EVERY_S)}", "how old what is seen may be"),
        ("a node is silent", f"after {show_duration(SILENT_AFTER_S)}", "two reports are missing, and a little more"),
        ("an engine's port", f"{PORTS.start} to {PORTS.stop - 1}", "the agent chooses one that is free"),
    )
    for what, value, why in fixed:
        yield f"| fixed | {what} | {value} | {why} |"


def _effects() -> Iterator[str]:
    yield from ("| where | field | when changed | |", "|---|---|---|---|")
    for section in sections():
        for key in schema.of(section.kind)["properties"]:
            planned = "*planned*" if section.marked(key) else ""
            yield f"| {section.heading} | `{key}` | {_effect(section, key)} | {planned} |"


def _default(part: schema.Schema) -> str:
    value: Any = part.get("default")
    if value is None:
        said = _ABSENT.search(part["description"])
        return said[1] if said else "none"
    patterns = {choice.get("pattern") for choice in part.get("anyOf", ())}
    if patterns & {DURATION, AUTO} and isinstance(value, int | float):
        return f"`{show_duration(value)}`"
    if SIZE in patterns:
        return f"`{value / GIB:g}GiB`"
    if value in ("", [], {}):
        said = _ABSENT.search(part["description"])
        return said[1] if said else "empty"
    if isinstance(value, dict):
        return "its own defaults"
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{json.dumps(number(value) if isinstance(value, float) else value).strip(chr(34))}`"


def _effect(section: Section, key: str) -> str:
    return EFFECTS[section.title][key]
