"""Making a bare repository, and committing into one: what a demo and a test need of git without git."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dulwich.objects import ObjectID
from dulwich.repo import Repo

from llmgw.errors import Refused
from llmgw.sources.branch import LocalBranch, readable
from llmgw.sources.commits import Edit, commit_of
from llmgw.sources.objects import load_commit
from llmgw.sources.races import until_won


def make_bare(
    path: Path, files: Mapping[str, bytes], *, message: str, author: str, now: float, branch: str = "main"
) -> str:
    """Makes a bare repository with one commit, and says its id.

    Args:
        path: where; it must not exist, or be an empty folder.
        files: content by path.
        message: of the commit.
        author: `Name <address>`.
        now: UTC seconds.
        branch: the one that a clone checks out.

    Raises:
        Refused: something is there already, or it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise Refused(f"no repository was made at {path}", why="the folder is not empty", do="name another folder")
        Repo.init_bare(path, default_branch=branch.encode()).close()
    except OSError as e:
        raise Refused(
            f"no repository was made at {path}",
            why=(e.strerror or type(e).__name__).lower(),
            do="name another folder, or check its rights",
        ) from None
    commit = commit_files(path, files, message=message, author=author, now=now, branch=branch)
    assert commit is not None, "an empty repository has no tree that could be the same"
    return commit


def commit_files(
    path: Path,
    changes: Mapping[str, bytes | None],
    *,
    message: str,
    author: str,
    now: float,
    branch: str = "main",
) -> str | None:
    """Commits to a branch of a repository on this machine, and says the commit's id.

    Args:
        path: a bare repository. A working copy's files would stay behind.
        changes: content by path; None removes a file, and it need not be there.
        message: of the commit.
        author: `Name <address>`.
        now: UTC seconds.
        branch: made, if there is none.

    Returns:
        None where nothing would change: no commit is made.
    """
    here = LocalBranch(path, branch)

    def attempt(_: int) -> tuple[bool, ObjectID | None]:
        look = here.look()
        parent = look.tip if look else None
        with readable(here) as repo:
            before = load_commit(repo, parent).tree if parent is not None else None
            edit = Edit(repo, before, changes)
            if edit.tree == before:
                return True, None
            objects = edit.new_objects(before)
        commit = commit_of(edit.tree, parent, message=message, author=author, now=now)
        return here.swap(parent, commit.id, [*objects, commit]), commit.id

    made = until_won(attempt, shown=here.shown, branch=branch)
    return made.decode() if made is not None else None
