"""`llmgw status`: how the fleet is, from the status branch of any clone, or live from control."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec import UNSET

from llmgw.cli.render import as_json, columns
from llmgw.cli.seen import Operator, ask_status, operator, status_tree
from llmgw.core.live import Live
from llmgw.core.status import FleetStatus, ModelStatus
from llmgw.errors import Exit, Misused, OperatorError, Refused
from llmgw.sources.git import local_path, open_source
from llmgw.sources.reading import catalog_of
from llmgw.sources.readme import headline, ready_of, where
from llmgw.sources.status_files import from_files
from llmgw.units import show_duration

QUIET_S = 300.0
"""A status this old is called so: an idle fleet writes none, and one that does not run writes none either."""


def status(
    model: Annotated[str | None, typer.Argument(help="One model; else all of them.")] = None,
    repo: Annotated[str, typer.Option(help="The fleet's repository: a path or a URL.")] = ".",
    cluster: Annotated[str | None, typer.Option(help="The fleet; else what server.yaml says.")] = None,
    at: Annotated[str, typer.Option(help="A commit of the status branch.")] = "",
    live: Annotated[bool, typer.Option("--live", help="Ask control in place of the branch.")] = False,
    control: Annotated[str | None, typer.Option(help="Where control is. Or LLMGW_CONTROL.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="An operator's key. Or LLMGW_KEY_FILE.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust for control. Or LLMGW_CA_FILE.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say how the fleet is: what is wrong first, then models and nodes."""
    who = operator(control, key_file, ca_file)
    found, how, moving = _live(who) if live else _recorded(repo, cluster or _cluster(repo), at)
    if model is not None and model not in {m.name for m in found.models}:
        raise Refused(
            f"there is no model {model}",
            why=f"there are {', '.join(m.name for m in found.models) or 'none'}",
            do="name one of them",
        )
    if json:
        print(as_json(next(m for m in found.models if m.name == model) if model else found))
    else:
        print("\n".join(_text(found, how, model, moving)))
    if not found.as_asked:
        raise typer.Exit(Exit.PROBLEM if found.problems or found.held else Exit.DONE)


def _live(who: Operator | None) -> tuple[FleetStatus, str, dict[str, str]]:
    if who is None:
        raise Misused("no control is named", why="--live asks it", do="give --control and --key-file")
    said: Live = asyncio.run(ask_status(who))
    if said.status is None:
        raise OperatorError(
            "control has no status yet", why="; ".join(said.trouble) or "it has just started", do="try again"
        )
    return said.status, "control, now", {h.subject: h.detail for h in said.held}


def _recorded(repo: str, cluster: str, at: str) -> tuple[FleetStatus, str, dict[str, str]]:
    tree = status_tree(repo, cluster, at=at)
    if tree is None:
        raise Refused(
            f"there is no status of {cluster} in {repo}",
            why="no control has written one, or this clone has not fetched it",
            do=f"git fetch origin llmgw/status/{cluster}, or see whether control runs",
        )
    age_s = max(0.0, time.time() - tree.committed_at)
    how = f"status branch {tree.commit[:8]}, written {show_duration(age_s)} ago"
    if not at and age_s > QUIET_S:
        how += ", and nothing newer: nothing has changed since, or control does not run (llmgw status --live asks it)"
    return from_files(tree.files).status, how, {}


def _cluster(repo: str) -> str:
    """The fleet's name, from the repository's own server.yaml."""
    with TemporaryDirectory(prefix="llmgw-status-") as folder:
        source = open_source(repo, branch="main", state=Path(folder))
        try:
            found = source.at("HEAD") if local_path(repo) is not None else source.poll()
        finally:
            source.close()
    server = catalog_of(found).server
    if server is None:
        raise OperatorError(
            "the fleet's name is not known",
            why="server.yaml cannot be used",
            do="name it with --cluster, or mend the file",
        )
    return server.cluster


def _text(status: FleetStatus, how: str, only: str | None, moving: dict[str, str]) -> Iterator[str]:
    yield f"{status.cluster}: {headline(status)} ({how})"
    yield f"commit {status.observed_commit[:12]}"
    models = [m for m in status.models if only in (None, m.name)]
    if only is None:
        yield from (f"\nheld  {h}" for h in status.held)
        yield from (f"\nproblem  {p}" for p in status.problems)
    yield from _conditions(models, moving)
    if only is None:
        yield from (f"\nnode {n.name}: {c.why}\n  next: {c.next}" for n in status.nodes for c in n.conditions)
    rows = [("MODEL", "STATE", "READY", "WHERE"), *((m.name, m.state, ready_of(m), where(m)) for m in models)]
    yield f"\n{columns(rows)}" if models else "\nno models"
    if only is not None:
        yield from (f"\n{h.sentence}" for m in models if m.now is not UNSET for h in m.now.headroom)
    if only is None:
        nodes = [("NODE", "STATE", "REPLICAS"), *((n.name, n.word, str(len(n.replicas))) for n in status.nodes)]
        yield f"\n{columns(nodes)}"
    if only is None and status.mirror is not None and not status.mirror.reachable:
        yield "\nthe mirror cannot be reached: what it holds now is not known"


def _conditions(models: list[ModelStatus], moving: dict[str, str]) -> Iterator[str]:
    for model in models:
        if model.frozen:
            yield f"\n{model.name}: {model.frozen}"
        for c in model.conditions:
            detail = f" ({moving[c.subject]})" if moving.get(c.subject) else ""
            yield f"\n{c.subject}: {c.why}{detail}" + (f"\n  next: {c.next}" if c.next else "")
