"""One look at a fleet for a person: at control, or at the status branch of any clone."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from llmgw.cli.past import past, written
from llmgw.cli.seen import Operator, ask, ask_status, from_control
from llmgw.cli.status_text import Look
from llmgw.cli.watch import transfers
from llmgw.cli.when import utc
from llmgw.core.live import Live
from llmgw.core.status import FleetStatus, ModelStatus
from llmgw.errors import Misused, OperatorError, Refused, Unreachable
from llmgw.sources.status_files import from_files

QUIET_S = 300.0
"""A status this old is called so: an idle fleet writes none, and one that does not run writes none either."""
RATE_S = 1.0
"""Between two looks at what is fetched: how fast is what came between."""
RECENT_S = 45 * 86_400.0
"""How far back a model's page looks for what happened: its last ten events."""


def look_at(repo: str, cluster: str | None, at: str, who: Operator | None, *, live: bool, whole: bool = False) -> Look:
    """How the fleet is, or was.

    Args:
        repo: the fleet's repository.
        cluster: its fleet; None: what server.yaml says.
        at: a commit of the status branch, or a time; empty: now.
        who: where control is.
        live: whether control is asked. Where it does not answer, the branch is.
        whole: whether what a model's own page needs is asked for as well: how it is wanted, and what happened.

    Raises:
        OperatorError: neither can be had.
    """
    if not live:
        return recorded(repo, cluster, at)
    if who is None:
        raise Misused("no control is named", why="--live asks it", do="give --control and --key-file")
    try:
        found = _asked(who)
        return _whole(found, who, repo, cluster) if whole else found
    except Unreachable as e:
        try:
            found = recorded(repo, cluster, "")
        except OperatorError:
            raise e from None
        return replace(found, how=f"control does not answer ({e.why}); {found.how}")


def recorded(repo: str, cluster: str | None, at: str) -> Look:
    """What the status branch says, or said."""
    with past(repo, cluster) as branch:
        tree = branch.at(at) if at else branch.tip()
        lines, _ = branch.lines(tree, max(0.0, tree.committed_at - RECENT_S))
    how = f"status branch {tree.commit[:8]}, as it was on {utc(tree.committed_at)} UTC" if at else written(tree)
    if not at and max(0.0, time.time() - tree.committed_at) > QUIET_S:
        how += ", and nothing newer: nothing has changed since, or control does not run (llmgw status --live asks it)"
    found = from_files(tree.files)
    return Look(found.status, how, dict(found.wanted.models) if found.wanted else {}, tuple(lines))


def _whole(look: Look, who: Operator, repo: str, cluster: str | None) -> Look:
    """The same with how models are wanted, and with what the branch says that happened, where it can be read."""
    base = from_control(asyncio.run(ask(who))).base
    try:
        lines = recorded(repo, cluster or look.status.cluster, "").lines
    except OperatorError:
        lines = ()
    return replace(look, wanted=dict(base.models) if base else {}, lines=lines)


def _asked(who: Operator) -> Look:
    first = asyncio.run(ask_status(who))
    began = time.monotonic()
    moving = list(transfers(first))
    if not moving:
        return Look(_status(first), "control, now", {}, live=first)
    # How fast is what came between two looks.
    time.sleep(RATE_S)
    then = asyncio.run(ask_status(who))
    took = time.monotonic() - began
    before = {t.what: t.done for t in moving}
    rates = tuple((t, (t.done - before[t.what]) / took if t.what in before else None) for t in transfers(then))
    return Look(_status(then), "control, now", {}, live=then, moving=rates)


def _status(live: Live) -> FleetStatus:
    if live.status is None:
        raise OperatorError(
            "control has no status yet", why="; ".join(live.trouble) or "it has just started", do="try again"
        )
    return live.status


def model_in(status: FleetStatus, name: str) -> ModelStatus:
    """One model of a fleet, by its name.

    Raises:
        Refused: there is none.
    """
    found = next((m for m in status.models if m.name == name), None)
    if found is None:
        known = ", ".join(m.name for m in status.models[:20]) or "none"
        more = f" and {len(status.models) - 20} more" if len(status.models) > 20 else ""
        raise Refused(f"there is no model {name}", why=f"there are {known}{more}", do="name one of them")
    return found
