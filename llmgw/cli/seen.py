"""What a command knows of the fleet: from control, from the status branch, or nothing."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import structs
from pydantic import ValidationError

from llmgw.core.live import Live, SeenNow, wanted_now
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.wanted import Wanted
from llmgw.errors import Misused, OperatorError, Refused
from llmgw.sources.resumed import observed, remembered
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_commits import StatusTree
from llmgw.sources.status_files import from_files
from llmgw.units import show_duration

if TYPE_CHECKING:
    from llmgw.net.http import Client

CONTROL = "LLMGW_CONTROL"
KEY_FILE = "LLMGW_KEY_FILE"
CA_FILE = "LLMGW_CA_FILE"


@dataclass(frozen=True, slots=True)
class Operator:
    """Where control is, and the key to ask it with."""

    control: str
    key_file: Path
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the fleet, and how."""

    how: str
    """`control, now`, `status branch 4d5e6f7, 3m old`, `nothing`."""
    base: Wanted | None
    observed: Observed | None
    """None: nothing is known."""
    memory: Memory
    writer: str = ""
    """The version of llmgw that wrote it down. Empty: it was not written down."""


def operator(control: str | None, key_file: Path | None, ca_file: Path | None = None) -> Operator | None:
    """From options or the environment. None where neither names a control.

    Raises:
        Misused: a control is named, and no key.
    """
    where = control or os.environ.get(CONTROL)
    key = key_file or (Path(os.environ[KEY_FILE]) if KEY_FILE in os.environ else None)
    if where is None:
        return None
    if key is None:
        raise Misused(f"no key for {where}", why="control answers operators only", do=f"give --key-file, or {KEY_FILE}")
    trusted = ca_file or (Path(os.environ[CA_FILE]) if CA_FILE in os.environ else None)
    return Operator(where, key, trusted)


def look(how: str, repo: str, cluster: str, who: Operator | None) -> Seen:
    """What is known of the fleet.

    Args:
        how: auto, control, branch or none.
        repo: the fleet's repository.
        cluster: its fleet.
        who: where control is, when that is known.

    Raises:
        OperatorError: it cannot be known in the way that was asked for.
    """
    now = time.time()
    if how == "none":
        return Seen("nothing", None, None, Memory(started_at=0.0, settled=True, epoch=1))
    if how == "control" or (how == "auto" and who is not None):
        if who is None:
            raise Misused("no control is named", why="--observed control asks it", do=f"give --control, or {CONTROL}")
        return from_control(asyncio.run(ask(who)))
    tree = status_tree(repo, cluster)
    if tree is None:
        if how == "branch":
            raise Refused(
                f"there is no status branch of {cluster}",
                why="no control has written one, or this clone has not fetched it",
                do=f"git fetch origin llmgw/status/{cluster}",
            )
        return look("none", repo, cluster, None)
    recorded = from_files(tree.files)
    age = show_duration(max(0.0, now - tree.committed_at))
    memory = remembered(recorded, now=0.0)
    return Seen(
        f"status branch {tree.commit[:8]}, {age} old",
        recorded.wanted,
        observed(recorded),
        structs.replace(memory, settled=True, epoch=1),
        recorded.summary.llmgw,
    )


def from_control(seen: SeenNow, *, how: str = "control, now") -> Seen:
    """What control answered, now or when it was recorded.

    Raises:
        OperatorError: it is of another version.
    """
    try:
        base = wanted_now(seen)
    except ValidationError as e:
        raise OperatorError(
            "control is of another version", why=str(e)[:200].replace("\n", " "), do="use the llmgw that control runs"
        ) from None
    return Seen(how, base, seen.observed, seen.memory)


async def ask(who: Operator) -> SeenNow:
    """What control sees.

    Raises:
        OperatorError: it cannot be asked.
    """
    async with _client(who) as client:
        return await client.get("/v1/seen", SeenNow)


async def ask_status(who: Operator) -> Live:
    """How the fleet is, from control.

    Raises:
        OperatorError: it cannot be asked.
    """
    async with _client(who) as client:
        return await client.get("/v1/status", Live)


def _client(who: Operator) -> Client:
    # Only who asks control pays for it: loading it takes longer than a whole plan.
    from llmgw.net.http import Client

    return Client(who.control, name="control", key_file=who.key_file, ca_file=who.ca_file)


def status_tree(repo: str, cluster: str, *, at: str = "") -> StatusTree | None:
    """What the status branch says, in a repository or in a clone that fetched it. None: there is none.

    Args:
        repo: a path or a URL.
        cluster: whose.
        at: a commit of the branch; empty: its tip.
    """
    with TemporaryDirectory(prefix="llmgw-") as folder:
        branch = StatusBranch(repo, cluster, Path(folder))
        try:
            if at:
                return branch.at(at)
            here = branch.read()
            return here if here is not None else _fetched(branch, cluster)
        finally:
            branch.close()


def _fetched(branch: StatusBranch, cluster: str) -> StatusTree | None:
    """A clone has what others wrote under the remote's name."""
    try:
        return branch.at(f"refs/remotes/origin/llmgw/status/{cluster}")
    except Refused:
        return None
