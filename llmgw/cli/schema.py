"""`llmgw schema`: the JSON Schemas an editor uses, and the field reference of the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from llmgw.catalog import reference
from llmgw.catalog.schema import DRAFT, documents
from llmgw.core.preview import Preview
from llmgw.errors import OperatorError

FOLDER = Path("schema")
PLAN = "plan.schema.json"
PAGE = Path("docs/catalog.md")
"""Where it is there, as in llmgw's own repository; a fleet's repository has none."""


def schema(
    write: Annotated[bool, typer.Option("--write", help="Write schema/*.schema.json into this directory.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Fail when they are not what this version writes.")] = False,
) -> None:
    """Write or check the schemas of server.yaml, catalog/ and keys/, and of a plan as JSON."""
    if write == check:
        raise typer.BadParameter("give one of --write and --check")
    stale = [str(FOLDER / name) for name in drift(FOLDER)]
    page = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    if page != reference.fill(page):
        stale.append(str(PAGE))
    if check:
        absent = [name for name in stale if not Path(name).is_file()]
        if absent:
            raise OperatorError(
                f"{', '.join(absent)} are not here",
                why=f"{Path.cwd()} is no repository that had its schemas written",
                do="llmgw schema --write, in the folder of server.yaml",
            )
        if stale:
            raise OperatorError(
                f"{', '.join(stale)} are out of date", why="the types say something else", do="llmgw schema --write"
            )
        return
    write_all(FOLDER)
    if page:
        PAGE.write_text(reference.fill(page), encoding="utf-8")
    for name in stale:
        print(f"wrote {name}")


def every() -> dict[str, str]:
    """Each schema file's name and text: of what people write, and in llmgw's own repository of what `plan` prints."""
    if not PAGE.is_file():
        return documents()
    plan = {"$schema": DRAFT, "title": "plan", **_tidy(msgspec.json.schema(Preview))}
    return {**documents(), PLAN: json.dumps(plan, indent=2, ensure_ascii=False) + "\n"}


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """With descriptions on one line each, as in the other schemas."""
    for part in schema["$defs"].values():
        part["description"] = " ".join(part.get("description", "").split())
    return schema


def drift(directory: Path) -> list[str]:
    """The files in `directory` that are not what the types say, or are not there."""
    return [
        name
        for name, text in every().items()
        if not (file := directory / name).is_file() or file.read_text(encoding="utf-8") != text
    ]


def write_all(directory: Path) -> None:
    """Write every schema into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in every().items():
        (directory / name).write_text(text, encoding="utf-8")
