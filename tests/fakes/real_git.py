"""A real git, away from the settings of whoever runs the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from copy import copy
from pathlib import Path
from typing import Self

SERVER_YAML = b"schema: 1\ncluster: lab\n"


class Git:
    """The git program, in one folder."""

    def __init__(self, at: Path) -> None:
        self.at = at

    def __call__(self, *args: str, stdin: bytes | None = None, time: int = 1_800_000_000) -> str:
        """What git writes. That it fails is a failure of the test."""
        done = self._run(args, stdin, time)
        assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr.decode()}"
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def tries(self, *args: str) -> bool:
        """Whether git does it."""
        return self._run(args, None, 1_800_000_000).returncode == 0

    def _run(self, args: tuple[str, ...], stdin: bytes | None, time: int) -> subprocess.CompletedProcess[bytes]:
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
        return subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *args],
            cwd=self.at,
            env=environ,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )

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
        self.bare("init", "--template=", "--bare", "-b", "main", ".")
        self.bare("config", "http.receivepack", "true")
        clone = root / f"clone-of-{name}"
        clone.mkdir()
        self.clone = Git(clone)
        self.clone("init", "--template=", "-b", "main", ".")
        self.clone("remote", "add", "origin", str(self.path))
        self.time = 1_800_000_000

    def copy(self, root: Path) -> Self:
        """The same below another folder: made in a tenth of the time."""
        made = copy(self)
        made.path, made.bare = root / self.path.name, Git(root / self.path.name)
        made.clone = Git(root / self.clone.at.name)
        shutil.copytree(self.path, made.path)
        shutil.copytree(self.clone.at, made.clone.at)
        config = made.clone.at / ".git/config"
        config.write_text(config.read_text().replace(str(self.path), str(made.path)))
        return made

    def push(self, files: dict[str, bytes | None], message: str = "a change", branch: str = "main") -> str:
        self.time += 10
        commit = self.clone.commit(files, message, self.time)
        self.clone("push", "-q", "-f", "origin", f"HEAD:refs/heads/{branch}")
        return commit

    def grow(self, commits: int, branch: str = "main", message: str = "one of many") -> None:
        """Adds so many commits to a branch that exists, which change nothing."""
        stream = [
            f"commit refs/heads/{branch}\ncommitter A <a@a> {self.time + n} +0000\n"
            f"data {len(message)}\n{message}\n{f'from refs/heads/{branch}^0' if n == 0 else ''}\n"
            for n in range(commits)
        ]
        self.time += commits
        self.bare("fast-import", "--quiet", stdin="".join(stream).encode())
