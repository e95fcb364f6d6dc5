"""`llmgw comment`: one comment of a pull request that says what it would do, kept up to date by CI."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from llmgw.errors import Misused, OperatorError, Refused, Unreachable
from llmgw.net.http import Answer, Client

MOST = 60_000
"""Characters of a comment. GitHub takes 65,536 and drops the rest of none: it refuses."""
MARKER = re.compile(r"<!-- llmgw-[a-z]+:[^\s>]{1,100} -->")
"""The first line of what is ours, by which it is found again."""
PAGE = 100
PAGES = 20
"""Comments of a pull request that are looked through: 2,000."""
WITHIN_S = 60.0


class On(StrEnum):
    """Whose pull request it is."""

    AUTO = "auto"
    GITHUB = "github"
    GITEA = "gitea"
    """And Forgejo."""
    GITLAB = "gitlab"


@dataclass(frozen=True, slots=True)
class Thread:
    """The comments of one pull request, as its server's API has them."""

    api: str
    comments: str
    """The path of all of them."""
    one: str
    """The path of one, without its id."""
    update: str
    """The method that changes one."""
    header: tuple[str, str]
    """Who we are."""


def comment(
    file: Annotated[Path, typer.Argument(help="What `llmgw plan --format markdown --out FILE` wrote.")],
    on: Annotated[On, typer.Option(help="The server; else the one whose CI this runs in.")] = On.AUTO,
    within: Annotated[float, typer.Option(help="Seconds that all of it may take.", min=1)] = WITHIN_S,
) -> None:
    """Write a plan into its pull request: into the comment that is there already, if one is."""
    text = _text(file)
    thread = thread_of(os.environ, on)
    if thread is None:
        print("no comment is written: there is no token for one here; the plan is in the log and in the artifact")
        return
    print(asyncio.run(_bounded(thread, text, within)))


def thread_of(environ: Mapping[str, str], on: On = On.AUTO) -> Thread | None:
    """Which comments these are, from what CI says in its environment. None: it gives no token.

    Raises:
        Misused: it is not the CI of a pull request that is known.
    """
    if on is On.AUTO:
        on = On.GITLAB if environ.get("GITLAB_CI") else On.GITEA if environ.get("GITEA_ACTIONS") else On.GITHUB
    token = environ.get("LLMGW_COMMENT_TOKEN", "").strip()
    if on is On.GITLAB:
        at = _needed(environ, "CI_API_V4_URL", "CI_PROJECT_ID", "CI_MERGE_REQUEST_IID")
        path = f"/projects/{quote(at[1], safe='')}/merge_requests/{quote(at[2], safe='')}/notes"
        found = Thread(at[0], path, path, "PUT", ("private-token", token))
    else:
        api, repository = _needed(environ, "GITHUB_API_URL", "GITHUB_REPOSITORY")
        issues = f"/repos/{quote(repository)}/issues"
        header = ("authorization", f"Bearer {token}" if on is On.GITHUB else f"token {token}")
        found = Thread(api, f"{issues}/{_number(environ)}/comments", f"{issues}/comments", "PATCH", header)
    return found if token else None


async def _bounded(thread: Thread, text: str, within_s: float) -> str:
    try:
        async with asyncio.timeout(within_s):
            return await _write(thread, text, time.monotonic() + within_s)
    except TimeoutError:
        raise Unreachable(
            "the comment was not written",
            why=f"{thread.api} did not finish within {within_s:.0f} s",
            do="run the job again; the plan is in its log",
        ) from None


async def _write(thread: Thread, text: str, until: float) -> str:
    marker = text.partition("\n")[0]
    async with Client(thread.api, name="the git server's API", from_environment=True) as client:
        there = await _find(client, thread, marker, until)
        if there is not None and there["body"].replace("\r\n", "\n").strip() == text.strip():
            return "the comment says so already"
        if there is None:
            answer = await _ask(client, thread, "POST", thread.comments, until, {"body": text})
        else:
            answer = await _ask(client, thread, thread.update, f"{thread.one}/{there['id']}", until, {"body": text})
    if answer.status in {401, 403, 404}:
        # A fork's pull request: its token may read, and nothing else.
        return (
            f"no comment is written: the server answers {answer.status}, so this token may not; the plan is in the log"
        )
    if answer.status >= 400:
        raise Refused(
            "the comment was not written",
            why=f"{thread.api} answers {answer.status}",
            do="see that LLMGW_COMMENT_TOKEN may write comments; the plan is in the log",
        )
    return "the comment is written" if there is None else "the comment is up to date"


async def _find(client: Client, thread: Thread, marker: str, until: float) -> dict[str, Any] | None:
    for page in range(1, PAGES + 1):
        # The two names of one number: each server knows one, and leaves the other alone.
        path = f"{thread.comments}?per_page={PAGE}&limit={PAGE}&page={page}"
        answer = await _ask(client, thread, "GET", path, until)
        if answer.status >= 400:
            return None  # writing one will say why
        found = _comments(answer)
        for each in found:
            if each["body"].startswith(marker):
                return each
        if len(found) < PAGE:
            break
    return None


def _comments(answer: Answer) -> list[dict[str, Any]]:
    try:
        listed = json.loads(answer.body)
    except ValueError:
        listed = None
    if not isinstance(listed, list):
        raise OperatorError(
            "the comments of the pull request cannot be read",
            why="what answers there is not the API of a git server",
            do="see that GITHUB_API_URL or CI_API_V4_URL is its address",
        )
    return [c for c in listed if isinstance(c, dict) and isinstance(c.get("body"), str) and "id" in c]


async def _ask(
    client: Client, thread: Thread, method: str, path: str, until: float, body: Mapping[str, str] | None = None
) -> Answer:
    """One answer. A server that asks for a pause gets it, where there is time for it."""
    headers = dict([thread.header])
    data = json.dumps(body).encode() if body is not None else None
    while True:
        answer = await client.call(method, path, body=data, headers=headers)
        asked = answer.headers.get("retry-after", "")
        pause = float(asked) if re.fullmatch(r"\d{1,5}", asked) else 2.0
        passing = answer.status == 429 or answer.status >= 500 or (answer.status == 403 and asked)
        if not passing:
            return answer
        if time.monotonic() + pause > until:
            raise Unreachable(
                "the comment was not written",
                why=f"the git server answers {answer.status} and asks to be left alone for {pause:.0f} s",
                do="run the job again later; the plan is in its log",
            )
        await asyncio.sleep(pause)


def _text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise Refused(
            f"{file} was not read", why=str(getattr(e, "strerror", None) or e), do="llmgw plan --out writes it"
        ) from None
    if not MARKER.fullmatch(text.partition("\n")[0]):
        raise Misused(
            f"{file} is no plan in Markdown",
            why="its first line does not name the fleet",
            do="llmgw plan --format markdown --out FILE writes one",
        )
    if len(text) > MOST:
        raise Misused(f"{file} is no comment", why=f"it has more than {MOST} characters", do="write the plan again")
    return text


def _needed(environ: Mapping[str, str], *names: str) -> tuple[str, ...]:
    missing = [name for name in names if not environ.get(name)]
    if missing:
        raise _no_ci(f"{', '.join(missing)} is not set")
    return tuple(environ[name] for name in names)


def _number(environ: Mapping[str, str]) -> int:
    """Of the pull request: its ref says it, and else the event that started the job."""
    found = re.fullmatch(r"refs/pull/(\d{1,9})/(?:merge|head)", environ.get("GITHUB_REF", ""))
    if found:
        return int(found[1])
    try:
        event = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
        return int(event["pull_request"]["number"])
    except (OSError, ValueError, KeyError, TypeError):
        raise _no_ci("it says of no pull request") from None


def _no_ci(why: str) -> Misused:
    known: Iterable[str] = ("GitHub", "Gitea", "Forgejo", "GitLab")
    return Misused(
        "it is not known where the comment goes",
        why=why,
        do=f"call it in a pull request's job of {', '.join(known)}, as hooks/ci shows",
    )
