"""What tests of the status branch write, and how they look at it with git itself."""

from __future__ import annotations

from collections.abc import Callable

from fakes.real_git import Fleet
from llmgw.sources.status_branch import StatusBranch

REF = "refs/heads/llmgw/status/lab"
FILES = {
    "README.md": b"# lab\n",
    "models/a/a.yaml": b"ready: 2\n",
    "models/b/b.yaml": b"ready: 1\n",
    "mirror.yaml": b"{}\n",
}
NOW = 1_900_000_000.7
AUTHOR = "llmgw <llmgw@lab>"

Open = Callable[..., StatusBranch]


Open = Callable[..., StatusBranch]
"""Opens one of a URL, and by default with a state folder of its own."""


def write(status: StatusBranch, files: dict[str, bytes] | None = None, *, now: float = NOW, subject: str = "all ready"):
    return status.write(FILES if files is None else files, subject=subject, author=AUTHOR, now=now)


def commits(fleet: Fleet) -> list[str]:
    """Youngest first."""
    return fleet.bare("rev-list", REF).split()


def files(fleet: Fleet) -> list[str]:
    return fleet.bare("ls-tree", "-r", "--name-only", REF).split()


def by_hand(fleet: Fleet, changes: dict[str, bytes | None], base: str = REF) -> str:
    """Somebody edits the branch with git itself."""
    fleet.clone("fetch", "-q", "origin", f"+{base}:refs/heads/by-hand")
    fleet.clone("checkout", "-q", "by-hand")
    commit = fleet.clone.commit(changes, "by hand")
    fleet.clone("push", "-q", "origin", f"HEAD:{REF}")
    fleet.clone("checkout", "-q", "main")
    return commit


def fsck(fleet: Fleet) -> None:
    fleet.bare("fsck", "--strict", "--no-dangling")


def packed(fleet: Fleet) -> int:
    lines = dict(line.split(": ") for line in fleet.bare("count-objects", "-v").splitlines())
    return int(lines["in-pack"])


def hook(fleet: Fleet, name: str, script: str) -> None:
    path = fleet.path / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
