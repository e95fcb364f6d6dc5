"""Opening a repository on disk for one look: nothing is held between looks.

Opening costs half a millisecond. What it buys: no descriptor is kept while git
packs and removes files beside us, and no cache is older than the look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dulwich.errors import NotGitRepository
from dulwich.refs import Ref
from dulwich.repo import InvalidWorktreeConfiguration, Repo, UnsupportedExtension, UnsupportedVersion

from llmgw.errors import Refused, Unreachable

HEADS = b"refs/heads/"


@contextmanager
def opened(path: Path) -> Iterator[Repo]:
    """A bare repository, or the repository of a working copy.

    Raises:
        Unreachable: there is nothing at the path.
        Refused: what is there is not a repository, or not one we can read.
    """
    try:
        repo = Repo(str(path))
    except NotGitRepository:
        raise _not_a_repository(path) from None
    except (UnsupportedVersion, UnsupportedExtension, InvalidWorktreeConfiguration, ValueError) as e:
        raise Refused(
            f"the repository {path} was not read",
            why=f"its format is not one llmgw knows ({type(e).__name__})",
            do="make it anew with git clone --bare",
        ) from None
    except OSError as e:
        raise _no_access(path, e) from None
    with repo:
        try:
            yield repo
        except OSError as e:
            raise _no_access(path, e) from None


def control_folders(repo: Repo) -> tuple[Path, ...]:
    """Where HEAD is, and where the refs are: two folders in a linked working copy."""
    found = (Path(repo.controldir()).resolve(), Path(repo.commondir()).resolve())
    return tuple(dict.fromkeys(found))


def branch_ref(branch: str) -> Ref:
    return Ref(HEADS + branch.encode())


def branches(repo: Repo) -> list[str]:
    """The names of the branches that exist, sorted."""
    return sorted(name.decode("utf-8", "backslashreplace") for name in repo.refs.keys(Ref(HEADS)))


def no_branch(shown: str, branch: str, existing: list[str]) -> Refused:
    """What is said of a branch that is not there."""
    if not existing:
        return Refused(
            f"{shown} has no branch {branch}", why="it has no commits yet", do=f"commit and push to {branch}"
        )
    more = f" and {len(existing) - 10} more" if len(existing) > 10 else ""
    return Refused(
        f"{shown} has no branch {branch}",
        why=f"its branches are {', '.join(existing[:10])}{more}",
        do="name one of them with --branch, or push the missing one",
    )


def refuse_clash(ref: Ref, refs: Iterable[bytes], shown: str) -> None:
    """A ref cannot be a file and a folder: `llmgw` beside `llmgw/status/lab`."""
    for other in refs:
        if ref.startswith(other + b"/") or other.startswith(ref + b"/"):
            taken = other.removeprefix(HEADS).decode("utf-8", "replace")
            raise Refused(
                f"{shown} has no room for the branch {ref.removeprefix(HEADS).decode()}",
                why=f"its branch {taken} has a name that git would need as a folder, or the other way round",
                do=f"rename it: git branch -m {taken} {taken.replace('/', '-')}-old, and push that",
            )


def _not_a_repository(path: Path) -> Refused | Unreachable:
    if not path.exists():
        return Unreachable(
            f"there is no repository at {path}", why="the path does not exist", do="check the path, or mount its disk"
        )
    inside = next((up for up in path.resolve().parents if (up / ".git").exists()), None)
    return Refused(
        f"{path} is not a git repository",
        why=f"it is a folder of the one at {inside}" if inside else "it has neither .git nor objects and refs",
        do=f"give {inside}" if inside else "give the path of a repository, or make one there with git init",
    )


def _no_access(path: Path, error: OSError) -> Refused | Unreachable:
    what, why = f"the repository {path} cannot be used", (error.strerror or type(error).__name__).lower()
    if isinstance(error, PermissionError):
        return Refused(what, why=why, do="give the user that llmgw runs as the right to it")
    return Unreachable(what, why=why, do="check its disk")
