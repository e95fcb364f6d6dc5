"""Following a served repository, and looking at the private copy that comes of it with git itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fakes.git_http import GitServer
from llmgw.sources.access import Access, Limits
from llmgw.sources.git import Source, open_source


def follow(server: GitServer, state: Path, limits: Limits | None = None) -> Source:
    return open_source(server.url("fleet.git"), branch="main", state=state, access=Access(limits=limits or Limits()))


def copies(state: Path) -> list[Path]:
    return sorted(state.glob("git/*/copy-*"))


def fsck(state: Path) -> None:
    (copy,) = copies(state)
    subprocess.run(["git", "fsck", "--strict", "--no-dangling"], cwd=copy, check=True, capture_output=True)


def shallow(state: Path) -> int:
    (copy,) = copies(state)
    return len((copy / "shallow").read_text().split())
