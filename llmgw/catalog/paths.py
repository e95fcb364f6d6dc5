"""The fields of a model as people name them on a command line: `profiles.gpu.parallel`."""

from __future__ import annotations

import re
from typing import Any

from llmgw.catalog import schema
from llmgw.catalog.document import Value
from llmgw.catalog.model import Model
from llmgw.catalog.parse import parse
from llmgw.catalog.problem import Steps, shorten
from llmgw.catalog.written import unknown
from llmgw.errors import Misused, Refused


def steps(model: Any, path: str) -> Steps:
    """The way that `profiles.gpu.parallel` or `profiles[0].parallel` names in a model.

    Raises:
        Refused: an item on it is not there.
        Misused: it is no path.
    """
    at: list[str | int] = []
    here = model
    rest = path
    while rest:
        if isinstance(here, list):
            index, rest = _item(here, rest, path)
            at.append(index)
            here = here[index]
        else:
            key = re.split(r"[.\[]", rest, maxsplit=1)[0]
            rest = rest[len(key) :]
            if not key:
                raise Misused(
                    f"{path} is no path",
                    why="a key in it is empty",
                    do="write one like profiles.gpu.parallel",
                )
            at.append(key)
            here = here.get(key) if isinstance(here, dict) else None
        rest = rest.removeprefix(".")
    if not at:
        raise Misused(
            "the path is empty",
            why="it names no field",
            do="write one like profiles.gpu.parallel",
        )
    return tuple(at)


def _item(here: list[Any], rest: str, path: str) -> tuple[int, str]:
    """An item by its number in brackets or by its name, which may have dots in it."""
    if found := re.match(r"\[(\d{1,6})\]", rest):
        if int(found[1]) < len(here):
            return int(found[1]), rest[found.end() :]
        raise Refused(
            f"{path} is not there",
            why=f"the list has {len(here)} items, the first is [0]"
            if len(here) > 1
            else "the list has one item, [0]"
            if here
            else "the list is empty",
            do="name another",
        )
    names = {str(one.get("name", "")): index for index, one in enumerate(here) if isinstance(one, dict)}
    fits = [name for name in names if name and (rest == name or rest.startswith((f"{name}.", f"{name}[")))]
    if not fits:
        raise unknown(f"{path} is not there", rest.partition(".")[0], names, "items")
    name = max(fits, key=len)
    return names[name], rest[len(name) :]


def read(at: Steps, text: str) -> Value:
    """A value as it would be read from the file; where text belongs, text."""
    part = schema.node(Model, at)
    if part.get("type") == "string" or "enum" in part:
        return text
    document = parse(text.encode())
    if document.findings:
        raise Misused(
            f"{shorten(text)} is no value",
            why=document.findings[0].what,
            do=document.findings[0].do,
        )
    return document.value
