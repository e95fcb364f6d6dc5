"""`llmgw events`: what happened to a fleet or a model, one line for each thing, the youngest last."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from msgspec import Struct

from llmgw.cli.past import DEEPEST, FAR, past, written
from llmgw.cli.plain import para, say, say_json
from llmgw.cli.when import asked
from llmgw.core.history import Line
from llmgw.sources.git import local_path
from llmgw.sources.history_files import iso
from llmgw.sources.status_commits import LogEntry

LAST = 50


class Event(Struct, frozen=True):
    """One thing that happened."""

    time: str
    kind: str
    """status, or what happened to a replica: start, ready, stop, failed."""
    text: str
    commit: str = ""
    """Of the status branch. Empty: it is of its history."""


class Events(Struct, frozen=True):
    """What `--json` prints."""

    cluster: str
    status_commit: str
    events: tuple[Event, ...]


def events(
    model: Annotated[str | None, typer.Argument(help="One model; else the fleet.")] = None,
    since: Annotated[str, typer.Option(help="From when on, all of it: 2026-12-01, 2026-12-01T10:00Z, 2d.")] = "",
    last: Annotated[int, typer.Option(min=1, max=100_000, help="Without --since: only so many.")] = LAST,
    repo: Annotated[str, typer.Option(help="The fleet's repository: a path or a URL.")] = ".",
    cluster: Annotated[str | None, typer.Option(help="The fleet; else what server.yaml says.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """List what happened, in the order in which it did: what the status came to, and each replica's life."""
    begin = asked(since, "--since", time.time()) if since else 0.0
    with past(repo, cluster) as branch:
        tree = branch.tip()
        lines, _ = branch.lines(tree, begin)
        # Of one model few commits tell, so that more of them are looked at.
        deep = (DEEPEST if local_path(repo) is not None else FAR) if since or model else last
        commits = branch.log(tree, deep)
    mine = [line for line in lines if model in (None, line.model)]
    found = sorted((*_of_lines(mine), *_of_commits(commits, model, mine)), key=lambda pair: pair[0])
    told = [event for at, event in found if at >= begin]
    told = told if since else told[-last:]
    if json:
        say_json(Events(branch.cluster, tree.commit, tuple(told)))
        return
    say(para(f"{branch.cluster}: {model or 'all of it'} ({written(tree)}); times are UTC", rest=""))
    for event in told:
        at = event.time[:19].replace("T", " ")
        say(para(event.text, first=f"{at}  ", rest=" " * 21))
    if not told:
        say(("nothing was written down of that time",))


def _of_lines(lines: Iterable[Line]) -> Iterator[tuple[int, Event]]:
    return ((line.at, Event(iso(line.at), str(line.kind), line.sentence)) for line in lines)


def _of_commits(commits: Iterable[LogEntry], model: str | None, lines: Iterable[Line]) -> Iterator[tuple[int, Event]]:
    """What status commits say, where it is not what a line of history says already."""
    known = sorted({line.sentence for line in lines})
    for entry in reversed(list(commits)):
        texts = [entry.subject]
        if model is not None:
            said = [line.strip() for line in (entry.subject, *entry.body.splitlines())]
            # The subject is the first line of the body, cut.
            texts = [text for text in said[1:] or said if text.startswith((f"{model}:", f"{model}/"))]
        for text in texts:
            begins = text.partition(" (and ")[0].rstrip("…")
            place = bisect_left(known, begins)
            if not (place < len(known) and known[place].startswith(begins)):
                yield entry.committed_at, Event(iso(entry.committed_at), "status", text, entry.commit)
