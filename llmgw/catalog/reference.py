"""The parts of docs/catalog.md that say what the types say: every field, default and effect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from llmgw.catalog import schema
from llmgw.catalog.canonical import number
from llmgw.catalog.fields import DURATION, Strict
from llmgw.catalog.fingerprint import EFFECTS, Effect
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.model import Model
from llmgw.catalog.profile import GpuNeed, Profile
from llmgw.catalog.server import Caller, MirrorEntry, NodeEntry, Policy, Server
from llmgw.catalog.source import Source
from llmgw.units import show_duration
from llmgw_agent.protocol import PORTS, REPORT_EVERY_S, SILENT_AFTER_S

_SECTIONS: tuple[tuple[str, type[Strict]], ...] = (
    ("A model", Model),
    ("`source` of a model", Source),
    ("One of the `profiles` of a model", Profile),
    ("`gpu` of a profile", GpuNeed),
    ("server.yaml", Server),
    ("One of the `nodes`", NodeEntry),
    ("One of the `gateways` or `operators`", Caller),
    ("`mirror` of the fleet", MirrorEntry),
    ("`policy` of the fleet", Policy),
    ("A client key", ClientKey),
)

_ABSENT = re.compile(r"\s*Absent: ([^.]+)\.")
"""How a description says what stands in for a field that is not written."""

_BLOCK = re.compile(r"(?<=<!-- generated: )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def fill(page: str) -> str:
    """The page, with what stands between its marks replaced by what the types say now."""
    parts = {"fields": _fields, "defaults": _defaults, "effects": _effects}
    return _BLOCK.sub(lambda mark: "\n".join((f"{mark[1]} -->", "", *parts[mark[1]](), "", "")), page)


def _fields() -> Iterator[str]:
    """Every field under a heading of its own."""
    for index, (heading, kind) in enumerate(_SECTIONS):
        whole = schema.of(kind)
        yield from ("",) if index else ()
        yield from (f"## {heading}", "", whole["description"])
        for key in whole["properties"]:
            part = schema.node(kind, (key,))
            wants = schema.expected(part, whole)
            yield from ("", f"### `{key}`", "", part["description"], "")
            required = key in whole.get("required", ())
            presence = "Required" if required else f"When absent: {_default(part)}"
            yield f"{wants[:1].upper()}{wants[1:]}. {presence}. When changed: {_effect(kind, key)}."


def _defaults() -> Iterator[str]:
    yield from ("| where | field | when absent | what it is |", "|---|---|---|---|")
    for heading, kind in _SECTIONS:
        for key in schema.of(kind)["properties"]:
            part = schema.node(kind, (key,))
            if key not in schema.of(kind).get("required", ()):
                yield f"| {heading} | `{key}` | {_default(part)} | {_ABSENT.sub('', part['description'])} |"
    fixed = (
        ("a report of a node", f"at least every {show_duration(REPORT_EVERY_S)}", "how old what is seen may be"),
        ("a node is silent", f"after {show_duration(SILENT_AFTER_S)}", "two reports are missing, and a little more"),
        ("an engine's port", f"{PORTS.start} to {PORTS.stop - 1}", "the agent chooses one that is free"),
    )
    for what, value, why in fixed:
        yield f"| fixed | {what} | {value} | {why} |"


def _effects() -> Iterator[str]:
    yield from ("| where | field | when changed |", "|---|---|---|")
    for heading, kind in _SECTIONS:
        for key in schema.of(kind)["properties"]:
            yield f"| {heading} | `{key}` | {_effect(kind, key)} |"


def _default(part: schema.Schema) -> str:
    value: Any = part.get("default")
    if value is None:
        said = _ABSENT.search(part["description"])
        return said[1] if said else "none"
    if any(choice.get("pattern") == DURATION for choice in part.get("anyOf", ())):
        return f"`{show_duration(value)}`"
    if value in ("", [], {}) or isinstance(value, dict):
        return "empty" if value in ("", [], {}) else "its own defaults"
    return f"`{json.dumps(number(value) if isinstance(value, float) else value).strip(chr(34))}`"


def _effect(kind: type[Strict], key: str) -> Effect:
    return EFFECTS[schema.of(kind)["title"]][key]
