"""`llmgw notify test`: whether messages arrive, before they are needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog.notifications import Notification
from llmgw.catalog.written import unknown
from llmgw.cli.workcopy import Repo, WorkCopy
from llmgw.control.notify import send
from llmgw.core.notices import trial
from llmgw.errors import Exit, OperatorError, Refused


def trial_run(
    notify_dir: Annotated[Path, typer.Option(help="Holds the URLs and programs, as control's flag of this name.")],
    name: Annotated[str | None, typer.Argument(help="This receiver; else every one.", show_default=False)] = None,
    repo: Repo = None,
) -> None:
    """Send a test to the receivers of server.yaml. Run it where control runs."""
    server = WorkCopy.find(repo).catalog.server
    receivers: Sequence[Notification] = server.notifications if server else ()
    chosen = [r for r in receivers if name in (None, r.name)]
    if name is not None and not chosen:
        raise unknown(f"there is no notification {name}", name, {r.name for r in receivers}, "notifications")
    if not chosen:
        raise Refused(
            "nobody is told of anything",
            why="server.yaml has no `notifications`",
            do="write one: notifications: [{name: ops, url_ref: slack-url}]",
        )
    code = Exit.DONE
    for receiver in chosen:
        try:
            asyncio.run(send(notify_dir, receiver, trial(receiver.name, server.cluster if server else "", time.time())))
            print(f"{receiver.name} was told")
        except OperatorError as e:
            print(e)
            code = Exit(e.code)
    raise typer.Exit(code)
