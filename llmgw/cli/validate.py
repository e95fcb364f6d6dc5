"""`llmgw validate`: every problem of a working copy, before it is committed."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog.check import SERVER, Catalog, read_fleet
from llmgw.catalog.parse import MODEL_FILE, SERVER_FILE
from llmgw.catalog.problem import Problem
from llmgw.errors import Exit, Refused


def validate(
    directory: Annotated[Path, typer.Argument(help="The fleet's repository, as it is on disk.")] = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print the problems as a JSON list.")] = False,
) -> None:
    """Check server.yaml, catalog/ and keys/, and print every problem."""
    files, others = read_working_copy(directory)
    catalog = read_fleet(files, others)
    if json:
        print(dumps([asdict(problem) for problem in catalog.problems], indent=2, ensure_ascii=False))
    else:
        for problem in catalog.problems:
            print(problem)
        print(_counts(catalog))
    if catalog.problems:
        raise typer.Exit(Exit.PROBLEM)


def _counts(catalog: Catalog) -> str:
    problems, files = len(catalog.problems), len({problem.path for problem in catalog.problems})
    nodes = len(catalog.server.nodes) if catalog.server else 0
    good = ", ".join((_count(len(catalog.models), "model"), _count(nodes, "node"), _count(len(catalog.keys), "key")))
    if not problems:
        return f"no problems: {good}"
    return f"{_count(problems, 'problem')} in {_count(files, 'file')}; good: {good}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def read_working_copy(directory: Path) -> tuple[dict[str, bytes], list[Problem]]:
    """The fleet's files by path, and what is no file: said, and not followed.

    Raises:
        Refused: there is no such directory.
    """
    if not directory.is_dir():
        why = "it is a file" if directory.exists() else "there is nothing there"
        raise Refused(f"{directory} is not a directory", why=why, do="name the fleet's repository")
    files: dict[str, bytes] = {}
    problems: list[Problem] = []
    wanted = [directory / SERVER, *_under(directory / "catalog"), *_under(directory / "keys", deep=False)]
    for path in wanted:
        name = path.relative_to(directory).as_posix()
        shown = name.encode("utf-8", "backslashreplace").decode() if name.isprintable() else ascii(name)
        # One byte more than may be read, so that too large is told from just right.
        limit = (SERVER_FILE if name == SERVER else MODEL_FILE).bytes + 1
        try:
            if shown != name:
                problems.append(_unread(shown, "its name is no text", "rename it"))
            elif not stat.S_ISREG(path.lstat().st_mode):
                problems.append(_unread(shown, "it is a link, or something else that is no file", "put the file here"))
            else:
                with path.open("rb") as file:
                    files[name] = file.read(limit)
        except FileNotFoundError:
            # server.yaml, which is then said to be missing.
            continue
        except OSError as e:
            problems.append(_unread(shown, str(e.strerror), "make it readable"))
    return files, problems


def _under(directory: Path, *, deep: bool = True) -> list[Path]:
    """The YAML files of a directory, links to directories included and not followed, without hidden ones."""
    found: list[Path] = []
    if directory.is_symlink():
        return [directory]
    for parent, folders, files in os.walk(directory):
        here = Path(parent)
        found += [here / name for name in files if name.endswith((".yaml", ".yml")) and not name.startswith(".")]
        found += [here / name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if deep and not name.startswith(".")]
    return sorted(found)


def _unread(path: str, why: str, do: str) -> Problem:
    return Problem(path, 0, 0, "this cannot be read", why, do)
