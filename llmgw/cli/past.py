"""The status branch, opened for one command: what it says, said before, and what happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from llmgw.cli.when import when
from llmgw.control.writer import WRITER
from llmgw.core.history import Line
from llmgw.errors import OperatorError, Refused
from llmgw.sources.git import local_path, open_source
from llmgw.sources.history_files import iso, read_lines
from llmgw.sources.history_proof import Proof
from llmgw.sources.reading import catalog_of
from llmgw.sources.signatures import Signers
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_commits import LogEntry, StatusTree
from llmgw.units import show_duration

EDITS = 20
"""Commits in which control's last one is looked for."""
DEEPEST = 20_000
"""Commits that are looked through for a time: as many as there are before a branch is rotated."""
FAR = 2_000
"""The same of a repository elsewhere: its history is fetched for that."""


class Past:
    """One fleet's status branch, in a repository or in a clone that fetched it."""

    def __init__(self, branch: StatusBranch, repo: str, cluster: str) -> None:
        self.repo, self.cluster = repo, cluster
        self._branch = branch
        self._far = local_path(repo) is None

    def tip(self) -> StatusTree:
        """What it says now.

        Raises:
            Refused: there is none.
        """
        found = self._branch.read()
        if found is not None:
            return found
        try:
            # A clone has what others wrote under the remote's name.
            return self._branch.at(f"refs/remotes/origin/llmgw/status/{self.cluster}")
        except Refused:
            raise Refused(
                f"there is no status of {self.cluster} in {self.repo}",
                why="no control has written one, or this clone has not fetched it",
                do=f"git fetch origin llmgw/status/{self.cluster}, or see whether control runs",
            ) from None

    def at(self, asked: str) -> StatusTree:
        """What it said: at a commit of it, or at a time.

        Raises:
            Refused: there is no such commit, or it is not known that far back.
        """
        moment = when(asked, time.time())
        if moment is None:
            return self._branch.at(asked)
        entries = self.log(self.tip(), FAR if self._far else DEEPEST)
        found = next((e for e in entries if e.committed_at <= moment), None)
        if found is None:
            first = entries[-1]
            raise Refused(
                f"how {self.cluster} was at {iso(moment)} is not known",
                why=f"what is held of its status branch begins at {iso(first.committed_at)} ({first.commit[:10]})",
                do="name a later time, or fetch more of the branch",
            )
        return self._branch.at(found.commit)

    def log(self, tree: StatusTree, n: int) -> list[LogEntry]:
        """The last `n` commits up to one that was read, youngest first."""
        if self._far:
            found = self._branch.log(n)
            if any(e.commit == tree.commit for e in found):
                return found[next(i for i, e in enumerate(found) if e.commit == tree.commit) :]
        return self._branch.log(n, at=tree.commit)

    def lines(self, tree: StatusTree, since: float = 0.0) -> tuple[list[Line], list[str]]:
        """Lines of history that were written since a time, oldest first, and what in their files is none."""
        return read_lines(self._branch.history(tree.commit, since=iso(since)[:7]))

    def months(self, tree: StatusTree) -> list[str]:
        """The names of the files of history, oldest first."""
        return list(self._branch.history(tree.commit))

    def by_hand(self, tree: StatusTree) -> list[tuple[int, str, list[str]]]:
        """The commits after control's last one, youngest first: when, by whom, and which files they changed."""
        found: list[tuple[int, str, list[str]]] = []
        for entry in self.log(tree, EDITS):
            if f"{WRITER}:" in entry.body:
                return found
            found.append((entry.committed_at, entry.author, self._branch.changed(entry.commit)))
        # Nothing that control wrote is in sight: it may be an older one, which did not say who it was.
        return []

    def prove(self, tree: StatusTree, signers: Signers | None) -> Proof:
        """Whether its history is whole, as far as commits are held."""
        return self._branch.prove(tree.commit, signers)


@contextmanager
def past(repo: str, cluster: str | None) -> Iterator[Past]:
    """The status branch of a fleet, for as long as a command takes."""
    name = cluster or cluster_of(repo)
    with TemporaryDirectory(prefix="llmgw-past-") as folder:
        branch = StatusBranch(repo, name, Path(folder))
        try:
            yield Past(branch, repo, name)
        finally:
            branch.close()


def written(tree: StatusTree) -> str:
    """`status branch 4d5e6f7a, written 3m ago`."""
    return f"status branch {tree.commit[:8]}, written {show_duration(max(0.0, time.time() - tree.committed_at))} ago"


def cluster_of(repo: str) -> str:
    """The fleet's name, from the repository's own server.yaml."""
    with TemporaryDirectory(prefix="llmgw-status-") as folder:
        source = open_source(repo, branch="main", state=Path(folder))
        try:
            found = source.at("HEAD") if local_path(repo) is not None else source.poll()
        finally:
            source.close()
    server = catalog_of(found).server
    if server is None:
        raise OperatorError(
            "the fleet's name is not known",
            why="server.yaml cannot be used",
            do="name it with --cluster, or mend the file",
        )
    return server.cluster
