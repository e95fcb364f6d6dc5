"""A push that is not taken yet, as a repository: its objects lie apart from those that git has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dulwich.refs import Ref
from dulwich.repo import Repo

from llmgw.sources.repository import opened

STATUS = b"refs/heads/llmgw/status/"


def copy_with(path: Path, at: Path, ref: str, commit: str, environ: Mapping[str, str]) -> Path:
    """A bare repository that has what is pushed: `ref` at `commit`, and the status branches.

    It holds no objects of its own and names where they are, so it costs nothing and
    writes nothing into the one that is pushed to.

    Args:
        path: the repository that is pushed to.
        at: an empty folder.
        ref: what is moved, by its full name.
        commit: to where.
        environ: in which git runs its hooks, and says where the new objects are.
    """
    there = environ.get("GIT_OBJECT_DIRECTORY", "")
    others = environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "").split(":")
    with opened(path) as repo, Repo.init_bare(at / "push.git", mkdir=True) as made:
        folders = [Path(path, folder) for folder in (there, *others) if folder]
        folders.append(Path(repo.object_store.path))
        lines = dict.fromkeys(str(folder.resolve()) for folder in folders)
        Path(made.path, "objects/info/alternates").write_text("".join(f"{line}\n" for line in lines))
        for name in repo.refs.allkeys():
            if name.startswith(STATUS):
                made.refs[name] = repo.refs[name]
        made.refs[Ref(ref.encode())] = commit.encode()  # type: ignore[assignment]
        return Path(made.path)
