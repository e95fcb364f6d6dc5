"""`llmgw schema`: the JSON Schemas an editor uses, and the field reference of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog import reference
from llmgw.catalog.schema import documents
from llmgw.errors import OperatorError

FOLDER = Path("schema")
PAGE = Path("docs/catalog.md")
"""Where it is there, as in llmgw's own repository; a fleet's repository has none."""


def schema(
    write: Annotated[bool, typer.Option("--write", help="Write schema/*.schema.json into this directory.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Fail when they are not what this version writes.")] = False,
) -> None:
    """Write or check the schemas of server.yaml, catalog/ and keys/."""
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


def drift(directory: Path) -> list[str]:
    """The files in `directory` that are not what the types say, or are not there."""
    return [
        name
        for name, text in documents().items()
        if not (file := directory / name).is_file() or file.read_text(encoding="utf-8") != text
    ]


def write_all(directory: Path) -> None:
    """Write every schema into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (directory / name).write_text(text, encoding="utf-8")
