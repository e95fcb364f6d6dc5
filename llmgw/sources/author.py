"""A person's commit in a working copy: by the git program, so that their name, hooks and signing are theirs.

Control never comes here. It reads and writes repositories without a git program;
a commit that a person asks for is made as they would have made it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw.errors import OperatorError, Refused, Unreachable

COMMIT_S = 600.0
"""How long a commit may take: hooks run tests."""
PUSH_S = 120.0
ASK_S = 30.0


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was made."""

    id: str
    branch: str
    left: tuple[str, ...]
    """Files that were staged before, and still are: they are not in it."""


class Author:
    """The git program in one working copy."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def ready(self, paths: Sequence[str], branch: str, *, push: bool) -> None:
        """Whether a commit of these files could be made, asked before they are edited.

        Args:
            paths: from the top of the working copy.
            branch: a new one to commit to; empty: the one that is checked out.
            push: whether it will be pushed.

        Raises:
            Refused: git is missing, knows no author, is in the middle of something, has other work in these
                files or ignores them, or has nowhere to push to.
        """
        self._git("var", "GIT_COMMITTER_IDENT", what="git does not know whose commit this is")
        self._idle()
        if ignored := self.ignored(paths):
            raise Refused(
                f"{', '.join(ignored)} was not edited",
                why="git ignores it, so it would be in no commit",
                do="take it out of .gitignore, or leave --commit out",
            )
        changed = self._git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--", *paths)
        if changed:
            new = sorted(entry[3:] for entry in changed.split("\0") if entry.startswith("??"))
            shown = ", ".join(sorted(entry[3:] for entry in changed.split("\0") if entry))
            add = f": git add {shlex.join(new)}, and git commit" if new else ""
            raise Refused(
                f"{shown} was not edited",
                why="it has changes that are not committed, and they would be in the same commit",
                do=f"commit them first{add}, or leave --commit out",
            )
        if branch:
            self._git(
                "check-ref-format",
                "--branch",
                branch,
                what=f"{branch} is no name for a branch",
            )
            if self._tries("show-ref", "--verify", "--quiet", f"refs/heads/{branch}"):
                raise Refused(
                    f"there is a branch {branch} already",
                    why="--branch makes a new one",
                    do="name another",
                )
        elif not self._tries("symbolic-ref", "--quiet", "HEAD"):
            raise Refused(
                "no branch is checked out here",
                why="a commit on none is easily lost",
                do="name a new one with --branch, or check one out",
            )
        if push:
            self._upstream(branch or self._git("symbolic-ref", "--short", "HEAD"))

    def ignored(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Those of these files that git is told to ignore, and does not hold already."""
        told = self._run(("ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", *paths), ASK_S)
        return tuple(sorted(path for path in told.stdout.split("\0") if path))

    def _idle(self) -> None:
        """Whether no other work of git is under way, in which a commit of some files is not made.

        Raises:
            Refused: there is some.
        """
        names = ("index.lock", "MERGE_HEAD", "CHERRY_PICK_HEAD")
        told = self._git("rev-parse", *(word for name in names for word in ("--git-path", name)))
        lock, merge, pick = (self.root / path for path in told.splitlines())
        if lock.exists():
            raise Refused(
                "nothing was edited",
                why=f"another git is at work here, or was ended: {lock} is there",
                do="call the command again; where no git runs, remove that file",
            )
        for file, work in ((merge, "merge"), (pick, "cherry-pick")):
            if file.exists():
                raise Refused(
                    "nothing was edited",
                    why=f"a {work} is in progress, and git commits no single file in one",
                    do=f"end it first: git commit, or git {work} --abort",
                )

    def commit(self, paths: Sequence[str], message: str, branch: str) -> Committed:
        """Commits these files and no others, whatever else is staged.

        Args:
            paths: that were edited or removed.
            message: of the commit.
            branch: made and checked out first; empty: the one that is checked out.

        Raises:
            Refused: a hook refused it, or git did; whoever edited the files puts them back.
        """
        staged = self._git("diff", "--cached", "--name-only", "-z").split("\0")
        if branch:
            self._git("switch", "--quiet", "--create", branch)
        known = set(self._git("ls-files", "-z", "--", *paths).split("\0"))
        new = [path for path in paths if path not in known]
        if new:
            # git commits by name only what it has heard of.
            self._git("add", "--intent-to-add", "--", *new)
        told = self._run(
            ("commit", "--quiet", "--only", f"--message={message}", "--", *paths),
            COMMIT_S,
        )
        if told.returncode:
            if new:
                self._run(("rm", "--quiet", "--cached", "--force", "--", *new), ASK_S)
            if branch:
                self._run(("switch", "--quiet", "-"), ASK_S)
                self._run(("branch", "--quiet", "--delete", "--force", branch), ASK_S)
            raise Refused(
                f"{', '.join(paths)} was not committed",
                why=_words(told) or _ended(told),
                do="mend what it names, and call the command again",
            )
        left = tuple(sorted(name for name in staged if name and name not in paths))
        return Committed(
            self._git("rev-parse", "HEAD"),
            self._git("rev-parse", "--abbrev-ref", "HEAD"),
            left,
        )

    def push(self, branch: str) -> str:
        """Pushes the branch, and says where to.

        Raises:
            Unreachable: the remote did not answer.
            Refused: there is none, or it refused.
        """
        remote, target = self._upstream(branch)
        told = self._run(("push", "--quiet", "--set-upstream", remote, f"HEAD:{target}"), PUSH_S)
        if told.returncode:
            words = _words(told) or f"it did not end within {PUSH_S:.0f} s"
            refused = re.search(r"rejected|declined|denied|protected", words)
            kind: type[OperatorError] = Refused if refused else Unreachable
            raise kind(
                f"{branch} is committed and not pushed to {remote}",
                why=words,
                do=f"git pull --rebase {remote} {branch}, and git push" if refused else "try again with git push",
            )
        return f"{remote}/{target.removeprefix('refs/heads/')}"

    def _upstream(self, branch: str) -> tuple[str, str]:
        remotes = self._git("remote").split()
        remote = self._config(f"branch.{branch}.remote") or ("origin" if "origin" in remotes else "")
        if not remote and len(remotes) == 1:
            remote = remotes[0]
        if not remote:
            raise Refused(
                f"there is nowhere to push {branch} to",
                why=f"it is not known where to: the remotes are {', '.join(remotes)}"
                if remotes
                else "there is no remote",
                do="git remote add origin URL" if not remotes else f"git push --set-upstream REMOTE {branch}",
            )
        return remote, self._config(f"branch.{branch}.merge") or f"refs/heads/{branch}"

    def _config(self, key: str) -> str:
        return self._run(("config", "--get", key), ASK_S).stdout.strip()

    def _tries(self, *words: str) -> bool:
        return self._run(words, ASK_S).returncode == 0

    def _git(self, *words: str, what: str = "") -> str:
        told = self._run(words, ASK_S)
        if told.returncode:
            raise Refused(
                what or f"git {words[0]} failed",
                why=_words(told) or _ended(told),
                do="see what git says of it",
            )
        return told.stdout.rstrip("\n")

    def _run(self, words: Sequence[str], within_s: float) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", str(self.root), *words]
        try:
            return subprocess.run(
                command,
                env={
                    **os.environ,
                    "LC_ALL": "C.UTF-8",
                    "GIT_LITERAL_PATHSPECS": "1",
                    "GIT_EDITOR": "false",
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=within_s,
                check=False,
            )
        except FileNotFoundError:
            raise Refused(
                "nothing was committed",
                why="the git program is not on this machine",
                do="install git, or leave --commit, --branch and --push out",
            ) from None
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 1, "", f"git {words[0]} did not end within {within_s:.0f} s")


def _ended(told: subprocess.CompletedProcess[str]) -> str:
    """How a git that said nothing ended. One that was killed may have left its lock behind."""
    if told.returncode < 0:
        return f"signal {-told.returncode} ended git; where .git/index.lock is left and no git runs, remove it"
    return "a hook refused it and gave no reason"


def _words(told: subprocess.CompletedProcess[str]) -> str:
    """What git said, on lines that stand below an error, and without anybody's password."""
    lines = [line.strip() for line in (told.stderr.strip() or told.stdout.strip()).splitlines()]
    text = "\n  ".join(line for line in lines if line and not line.startswith("hint:"))
    return re.sub(r"//[^/@\s]*@", "//…@", text)
