"""`llmgw hook`: what a bare repository on one's own git server calls at a push."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import typer

from llmgw.catalog.problem import Problem
from llmgw.cli.plan import based_on, foresee, last_trailers
from llmgw.cli.plan_text import plan_text
from llmgw.cli.seen import CONTROL, look
from llmgw.errors import Exit, OperatorError
from llmgw.net.key import read_key
from llmgw.sources.git import open_source
from llmgw.sources.quarantine import copy_with
from llmgw.sources.reading import catalog_of
from llmgw.sources.snapshot import UNBORN

SECRET_FILE = "LLMGW_HOOK_SECRET_FILE"  # noqa: S105 - where it is, and not what it is
BRANCH = "LLMGW_BRANCH"
"""The branch that control follows, where it is another than main."""

WITHIN_S = 5.0
"""A push does not wait longer for a control that does not answer."""


class Push(NamedTuple):
    """One ref that a push moves, as git writes it to its hooks."""

    old: str
    new: str
    ref: str


def pre_receive() -> None:
    """Refuse a push that breaks the fleet's files, or that control would hold. Run by git in a bare repository."""
    followed = f"refs/heads/{os.environ.get(BRANCH) or 'main'}"
    for push in _pushes(sys.stdin):
        if push.ref != followed:
            continue
        if push.new == UNBORN:
            _refuse(f"{push.ref} is what control follows, and is not removed")
        with TemporaryDirectory(prefix="llmgw-push-") as folder:
            _judge(push, copy_with(Path.cwd(), Path(folder), push.ref, push.new, os.environ))


def post_receive() -> None:
    """Have control look at once. Run by git in a bare repository; whatever goes wrong, the push has been taken."""
    try:
        list(sys.stdin)
        asyncio.run(_call(os.environ))
    except OperatorError as e:
        print(f"control was not told, and sees the push at its next look: {e.sentence}", file=sys.stderr)


def _pushes(lines: Iterable[str]) -> Iterator[Push]:
    for line in lines:
        old, _, rest = line.strip().partition(" ")
        new, _, ref = rest.partition(" ")
        if ref:
            yield Push(old, new, ref)


def _judge(push: Push, repo: Path) -> None:
    source = open_source(str(repo), branch=push.ref.removeprefix("refs/heads/"), state=repo / "state")
    try:
        found = source.at(push.new)
        catalog = catalog_of(found)
        # Who mends one of two broken files is not kept from it.
        before = catalog_of(source.at(push.old)) if push.old != UNBORN else None
        known = set(map(_of, before.problems)) if before else set()
        broken = [problem for problem in catalog.problems if _of(problem) not in known]
        for problem in broken:
            print(problem, file=sys.stderr)
        if broken:
            more = f"{len(broken)} problem{'s' * (len(broken) > 1)}"
            _refuse(f"{push.new[:12]} would bring {more} into the fleet's files")
        seen = look("auto", str(repo), catalog.server.cluster if catalog.server else "", None)
        if seen.base is None and before is not None:
            seen = based_on(seen, before, push.old)
        result = foresee(found, seen, last_trailers(source, seen, found))
    finally:
        source.close()
    print(plan_text(result), file=sys.stderr)
    guards = [held for held in result.held if held.subject == "commit"]
    if guards:
        _refuse("; ".join(held.why for held in guards))


def _of(problem: Problem) -> tuple[str, str, str]:
    """The same problem, wherever in its file it has moved."""
    return problem.path, problem.what, problem.why


def _refuse(why: str) -> None:
    print(f"llmgw refuses the push: {why}", file=sys.stderr)
    raise typer.Exit(Exit.REFUSED)


async def _call(environ: Mapping[str, str]) -> None:
    # Who only judges a push calls nobody, and does not wait for what HTTP takes to import.
    from llmgw.net.http import Client

    where = environ.get(CONTROL)
    if not where or not environ.get(SECRET_FILE):
        raise OperatorError(
            "it is not known where control is",
            why=f"{CONTROL} or {SECRET_FILE} is not set where git runs its hooks",
            do="set both, or let control poll",
        )
    body = b"{}"
    mac = hmac.new(read_key(Path(environ[SECRET_FILE])).encode(), body, hashlib.sha256).hexdigest()
    async with Client(where, name="control", timeout_s=WITHIN_S) as client, asyncio.timeout(WITHIN_S * 2):
        answer = await client.call("POST", "/hooks/git", body=body, headers={"X-Hub-Signature-256": f"sha256={mac}"})
    if answer.status >= 400:
        raise client.error(answer, "/hooks/git")
