"""`llmgw drift`: what differs from the commit that is carried out, since when, and by whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from llmgw.cli.past import cluster_of, past
from llmgw.cli.plain import para, say, say_json
from llmgw.cli.render import count
from llmgw.cli.seen import Seen, look, operator
from llmgw.cli.when import utc
from llmgw.core.decide import decide
from llmgw.core.drift import Difference, differences, edited
from llmgw.core.history import Line
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.status import status
from llmgw.errors import Exit, OperatorError, Refused

LOOK_BACK_S = 90 * 86_400.0
"""How far back it is looked for since when something is as it is."""


class Drift(Struct, frozen=True):
    """What `--json` prints."""

    cluster: str
    commit: str
    """What is asked for."""
    observed: str
    """How it was seen what is."""
    differences: tuple[Difference, ...]


def drift(
    repo: Annotated[str, typer.Option(help="The fleet's repository: a path or a URL.")] = ".",
    cluster: Annotated[str | None, typer.Option(help="The fleet; else what server.yaml says.")] = None,
    control: Annotated[str | None, typer.Option(help="Where control is. Or LLMGW_CONTROL. Else the branch.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="An operator's key. Or LLMGW_KEY_FILE.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust for control. Or LLMGW_CA_FILE.")] = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 when something differs.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """List what is not as the commit asks: replicas, counts, nodes, the mirror, and edits of the status branch."""
    name = cluster or cluster_of(repo)
    seen = look("auto", repo, name, operator(control, key_file, ca_file))
    lines, by_hand = _history(repo, name)
    found = Drift(name, *_against(seen, lines, by_hand))
    if json:
        say_json(found)
    else:
        say(_text(found))
    raise typer.Exit(Exit.CHANGES if detailed_exitcode and found.differences else Exit.DONE)


def _history(repo: str, cluster: str) -> tuple[list[Line], tuple[Difference, ...]]:
    """What the status branch says of since when, and who edited it. Control may be asked where there is none."""
    try:
        with past(repo, cluster) as branch:
            tree = branch.tip()
            lines, _ = branch.lines(tree, max(0.0, tree.committed_at - LOOK_BACK_S))
            return lines, edited(branch.by_hand(tree))
    except OperatorError:
        return [], ()


def _against(seen: Seen, lines: list[Line], by_hand: tuple[Difference, ...]) -> tuple[str, str, tuple[Difference, ...]]:
    wanted = seen.base
    if wanted is None or seen.observed is None:
        raise Refused(
            "it is not known what differs",
            why="no status branch and no control says what is",
            do="git fetch origin 'llmgw/status/*', or give --control and --key-file",
        )
    known = {n.name: n for n in seen.observed.nodes}
    nodes = tuple(known.get(n.name, NodeSeen(n.name)) for n in sorted(wanted.server.nodes, key=lambda n: n.name))
    observed = Observed(nodes, seen.observed.mirror, seen.observed.demand)
    now = time.time()
    plan = decide(wanted, observed, seen.memory, now)
    found = differences(wanted, observed, plan, status(wanted, observed, plan, now), lines)
    return wanted.commit, seen.how, (*found, *by_hand)


def _text(found: Drift) -> Iterator[str]:
    yield from para(f"{found.cluster} against commit {found.commit[:12]} ({found.observed})", rest="")
    for d in found.differences:
        yield ""
        yield from para(f"{d.subject}: {d.what}", first="- ")
        if d.why:
            yield from para(d.why, first="  why: ", rest="    ")
        if d.since or d.by:
            since = f"{utc(d.since)} UTC" if d.since else "a time that is not known"
            yield from para(since + (f", {d.by}" if d.by else ""), first="  since ", rest="    ")
    yield ""
    n = len(found.differences)
    yield f"{count(n, 'thing')} {'differs' if n == 1 else 'differ'}" if n else "nothing differs"
