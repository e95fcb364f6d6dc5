"""`llmgw validate`: every problem of a working copy, before it is committed."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog import clients
from llmgw.catalog.check import Catalog, read_fleet
from llmgw.catalog.problem import Problem
from llmgw.cli.asked import Asked, HubUrl, MirrorKey, Reach, TokenFile, Via
from llmgw.core.observed import NodeSeen
from llmgw.core.paces import judged, paced
from llmgw.errors import Exit, OperatorError
from llmgw.sources.worktree import read_worktree


def validate(
    directory: Annotated[Path, typer.Argument(help="The fleet's repository, as it is on disk.")] = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print the problems as a JSON list.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Also ask whether every source is there.")] = False,
    within: Annotated[float, typer.Option(help="Seconds that all of --online may take.", min=1)] = 120.0,
    via: Via = None,
    hub: HubUrl = None,
    token_file: TokenFile = None,
    mirror_key_file: MirrorKey = None,
) -> None:
    """Check server.yaml, catalog/, keys/ and locks/, and print every problem, and a note for what is planned."""
    files, bad = read_worktree(directory).result()
    others = [
        Problem(entry.path, 0, 0, f"{entry.path} cannot be read as a file", f"it {entry.why}", entry.do)
        for entry in bad
    ]
    named = {path: blob.data for path, blob in files.items()}
    catalog = read_fleet(named, others)
    asked = Asked()
    if online:
        from llmgw.cli.online import ask

        asked = ask(named, catalog, Reach(via, hub, token_file, mirror_key_file), within_s=within)
    catalog = replace(catalog, problems=tuple(sorted((*catalog.problems, *asked.problems))))
    catalog = paced(catalog, _nodes(directory, catalog))
    today = datetime.now(UTC).date().isoformat()
    for note in (*catalog.notes, *clients.expired(catalog.keys, today)):
        # Beside JSON they are still said, where a program that reads it does not look.
        print(note, file=sys.stderr if json else sys.stdout)
    if json:
        print(dumps([asdict(problem) for problem in catalog.problems], indent=2, ensure_ascii=False))
    else:
        for problem in catalog.problems:
            print(problem)
        if online:
            print(asked.summary)
        print(_counts(catalog))
    if catalog.problems:
        raise typer.Exit(Exit.UNREACHABLE if set(catalog.problems) == set(asked.away) else Exit.PROBLEM)


def _nodes(directory: Path, catalog: Catalog) -> tuple[NodeSeen, ...]:
    """The nodes as the status branch of this clone has them, where speeds are to be judged by what they measured."""
    if catalog.server is None or not judged(catalog):
        return ()
    from llmgw.cli.seen import status_tree
    from llmgw.sources.resumed import observed
    from llmgw.sources.status_files import from_files

    try:
        tree = status_tree(str(directory), catalog.server.cluster)
        return observed(from_files(tree.files)).nodes if tree is not None else ()
    except OperatorError:
        # No repository, or a branch that is damaged: nothing is known of the nodes.
        return ()


def _counts(catalog: Catalog) -> str:
    problems, files = len(catalog.problems), len({problem.path for problem in catalog.problems})
    nodes = len(catalog.server.nodes) if catalog.server else 0
    good = ", ".join((_count(len(catalog.models), "model"), _count(nodes, "node"), _count(len(catalog.keys), "key")))
    if not problems:
        return f"no problems: {good}"
    return f"{_count(problems, 'problem')} in {_count(files, 'file')}; good: {good}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
