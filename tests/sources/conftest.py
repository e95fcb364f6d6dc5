"""A real git, away from the settings of whoever runs the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.git_http import GitServer

SERVER_YAML = b"schema: 1\ncluster: lab\n"


class Git:
    """The git program, in one folder."""

    def __init__(self, at: Path) -> None:
        self.at = at

    def __call__(self, *args: str, stdin: bytes | None = None, time: int = 1_800_000_000) -> str:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "Ana",
            "GIT_AUTHOR_EMAIL": "ana@lab",
            "GIT_COMMITTER_NAME": "Ana",
            "GIT_COMMITTER_EMAIL": "ana@lab",
            "GIT_AUTHOR_DATE": f"{time} +0000",
            "GIT_COMMITTER_DATE": f"{time} +0000",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *args],
            cwd=self.at,
            env=environ,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr.decode()}"
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def write(self, files: dict[str, bytes | None]) -> None:
        for name, data in files.items():
            path = self.at / name
            if data is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def commit(self, files: dict[str, bytes | None], message: str = "a change", time: int = 1_800_000_000) -> str:
        """Commits the files, and says the commit's id."""
        self.write(files)
        self("add", "-A", time=time)
        self("commit", "--allow-empty", "-m", message, time=time)
        return self("rev-parse", "HEAD")


class Fleet:
    """A bare repository, and a clone of it that pushes."""

    def __init__(self, root: Path, name: str = "fleet.git") -> None:
        self.path = root / name
        self.path.mkdir()
        self.bare = Git(self.path)
        self.bare("init", "--bare", "-b", "main", ".")
        self.bare("config", "http.receivepack", "true")
        clone = root / f"clone-of-{name}"
        clone.mkdir()
        self.clone = Git(clone)
        self.clone("init", "-b", "main", ".")
        self.clone("remote", "add", "origin", str(self.path))
        self.time = 1_800_000_000

    def push(self, files: dict[str, bytes | None], message: str = "a change", branch: str = "main") -> str:
        self.time += 10
        commit = self.clone.commit(files, message, self.time)
        self.clone("push", "-q", "-f", "origin", f"HEAD:refs/heads/{branch}")
        return commit


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """With one commit of one model."""
    made = Fleet(tmp_path)
    made.push({"server.yaml": SERVER_YAML, "catalog/a.yaml": b"name: a\n"}, "the first model")
    return made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """Serves what is in tmp_path."""
    with GitServer(tmp_path) as served:
        yield served
