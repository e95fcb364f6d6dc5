"""`llmgw status`: how the fleet is, or was, from the status branch of any clone, or live from control."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from llmgw.cli.look import look_at, model_in
from llmgw.cli.plain import say, say_json
from llmgw.cli.seen import operator
from llmgw.cli.status_text import Look, fleet_page, model_page
from llmgw.errors import Exit, Misused, OperatorError
from llmgw.sources.git import local_path

LIVE_EVERY_S = 2.0
NEAR_EVERY_S = 2.0
"""Between two looks at a branch on this machine."""
FAR_EVERY_S = 30.0
CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def status(
    model: Annotated[
        str | None, typer.Argument(help="One model, with all that is known of it; else the fleet.")
    ] = None,
    repo: Annotated[str, typer.Option(help="The fleet's repository: a path or a URL.")] = ".",
    cluster: Annotated[str | None, typer.Option(help="The fleet; else what server.yaml says.")] = None,
    at: Annotated[
        str, typer.Option(help="As it was: a commit of the status branch, or 2026-12-01T10:00Z, or 2 days ago.")
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew when it changes, until Ctrl-C.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Ask control, and the branch where it does not answer.")] = False,
    control: Annotated[str | None, typer.Option(help="Where control is. Or LLMGW_CONTROL.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="An operator's key. Or LLMGW_KEY_FILE.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust for control. Or LLMGW_CA_FILE.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say how the fleet is: what is wrong first, then models and nodes."""
    if at and (live or watch):
        raise Misused(
            "what was is over", why=f"--at is there beside --{'live' if live else 'watch'}", do="leave out one of them"
        )
    if watch and json:
        raise Misused("what is watched is for people", why="--json is there beside --watch", do="leave out one of them")
    who = operator(control, key_file, ca_file)

    def look() -> Look:
        return look_at(repo, cluster, at, who, live=live, whole=model is not None)

    if watch:
        every_s = LIVE_EVERY_S if live else NEAR_EVERY_S if local_path(repo) is not None else FAR_EVERY_S
        _watch(lambda: _page(look(), model), every_s)
        return
    found = look()
    if json:
        _print_json(found, model)
    else:
        say(_page(found, model))
    if not found.status.as_asked and (found.status.problems or found.status.held):
        raise typer.Exit(Exit.PROBLEM)


def _page(look: Look, model: str | None) -> list[str]:
    return list(fleet_page(look) if model is None else model_page(look, model_in(look.status, model)))


def _print_json(look: Look, model: str | None) -> None:
    """The status as it is on the branch; live with what moves too."""
    if look.live is not None:
        say_json(look.live if model is None else _of(look, model))
    else:
        say_json(look.status if model is None else model_in(look.status, model))


def _of(look: Look, model: str) -> dict[str, object]:
    assert look.live is not None
    replicas = [
        {"node": node.name, "replica": r}
        for node in look.live.observed.nodes
        for r in node.replicas
        if r.id.rsplit("/", 2)[0] == model
    ]
    held = [h for h in look.live.held if h.model == model]
    return {"model": model_in(look.status, model), "held": held, "replicas": replicas}


def _watch(page: Callable[[], list[str]], every_s: float) -> None:
    """Show a page again whenever more of it changes than its age. Where it cannot be had, that is said meanwhile."""
    shown = _draw(page(), [])
    try:
        while True:
            time.sleep(every_s)
            try:
                shown = _draw(page(), shown)
            except OperatorError as e:
                shown = _draw([f"error: {e.sentence}", "it is asked again"], shown)
    except KeyboardInterrupt:
        print()


def _draw(lines: list[str], shown: list[str]) -> list[str]:
    if _lasting(lines) == _lasting(shown):
        return shown
    print(CLEAR if sys.stdout.isatty() else "" if not shown else "\n---", end="\n" if shown else "")
    say(lines)
    sys.stdout.flush()
    return lines


def _lasting(lines: list[str]) -> list[str]:
    """A page without how old it is."""
    return [line for line in lines if " ago" not in line]
