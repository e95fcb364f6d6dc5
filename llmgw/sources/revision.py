"""Finding the commit that a person names: a branch, a tag, an id or part of one, and so many before it."""

from __future__ import annotations

import re

from dulwich.errors import FileFormatException
from dulwich.objects import ObjectID, Tag
from dulwich.refs import Ref
from dulwich.repo import Repo

from llmgw.errors import Refused
from llmgw.sources.objects import Damaged, is_commit, load, load_commit, target
from llmgw.sources.repository import branches

PLACES = ("{}", "refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}")
"""Where a name is looked for, as git does and in its order."""

NAME = re.compile(r"(?P<name>[^\s~^:?*\[\\]+)(?P<steps>(?:~\d{0,6}|\^\d?)*)")
STEP = re.compile(r"([~^])(\d*)")
MAX_TAGS = 5
"""A tag may point at a tag; nobody means more than this by it."""


def resolve(repo: Repo, rev: str, shown: str) -> ObjectID:
    """The whole id of the commit that `rev` names.

    Args:
        repo: where it is looked for.
        rev: `main`, `v1`, `4f2a91c`, `origin/main`, `HEAD~2`, `main^`.
        shown: the repository, as an error names it.

    Raises:
        Refused: nothing here has that name, or several things do.
    """
    found = NAME.fullmatch(rev)
    if found is None:
        raise Refused(
            f"{rev!r} names no commit",
            why="it is none of the forms llmgw knows",
            do="give a branch, a tag, a commit's id, or HEAD~2",
        )
    commit_id = _named(repo, found["name"], shown)
    for kind, number in STEP.findall(found["steps"]):
        commit_id = _step(repo, commit_id, kind, int(number or 1), rev, shown)
    return commit_id


def _named(repo: Repo, name: str, shown: str) -> ObjectID:
    for place in PLACES:
        ref = Ref(place.format(name).encode())
        if place == "{}" and not ref.startswith((b"refs/", b"HEAD")):
            continue
        found = target(repo, ref)
        if found is not None:
            return _commit_behind(repo, found, name, shown)
    if re.fullmatch(r"[0-9a-f]{4,64}", name):
        commits = [c for c in repo.object_store.iter_prefix(name.encode()) if is_commit(repo, c)]
        if len(commits) == 1:
            return commits[0]
        if commits:
            raise Refused(
                f"{name} names no single commit",
                why=f"{len(commits)} commits of {shown} begin with it",
                do="give more of its id",
            )
    if name == "HEAD" and not branches(repo):
        raise Refused(f"nothing is known of {shown}", why="it has no commits yet", do="commit, and call this again")
    raise Refused(
        f"{name} names no commit of {shown}",
        why="it is no branch, tag or commit that is held here",
        do="fetch it first, or check its name",
    )


def _commit_behind(repo: Repo, found: ObjectID, name: str, shown: str) -> ObjectID:
    for _ in range(MAX_TAGS):
        if is_commit(repo, found):
            return found
        try:
            found = load(repo, found, Tag).object[1]
        except (Damaged, FileFormatException):
            break
    raise Refused(f"{name} names no commit of {shown}", why="it points at something else", do="name a commit")


def _step(repo: Repo, commit_id: ObjectID, kind: str, number: int, rev: str, shown: str) -> ObjectID:
    which, times = (0, number) if kind == "~" else (number - 1, 1)
    if kind == "^" and number == 0:
        return commit_id
    for _ in range(times):
        parents = load_commit(repo, commit_id).parents
        if which >= len(parents) or not is_commit(repo, parents[which]):
            raise Refused(
                f"{rev} names no commit of {shown}",
                why=f"what is held of its history ends at {commit_id.decode()[:10]}",
                do="fetch more of the history, or name a younger commit",
            )
        commit_id = parents[which]
    return commit_id
