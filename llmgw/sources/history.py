"""What happened between two commits: which are new, and what their trailers say."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from typing import NamedTuple

from dulwich.objects import ObjectID
from dulwich.repo import Repo

from llmgw.sources.objects import CommitText, Damaged, load_commit
from llmgw.sources.snapshot import Trailer

MAX_WALK = 2_000
"""Commits looked at, at most: 0.1 s of CPU."""

SLACK = 16
"""Known commits still walked once nothing new is in sight, as git does: a clock
that was wrong makes a parent look younger than its child."""

TRAILER = re.compile(r"^\s*(?:[-*\u2022]\s+)?([A-Za-z][A-Za-z0-9-]*):[ \t]+(\S.*?)\s*$", re.MULTILINE)
"""On any line, indented or bulleted too: squash merges put a message there."""


class Between(NamedTuple):
    """How the history leads from one commit to another."""

    commits: tuple[CommitText, ...]
    """Those reachable from the new one and not from the old, youngest first."""
    forward: bool
    """The old commit is the new one, or an ancestor of it."""
    backward: bool
    """The new commit is an ancestor of the old: the branch was set back."""


def leads(repo: Repo, old: ObjectID, new: ObjectID) -> bool:
    """Whether `old` is `new` or one of its ancestors, as far as is held and within the bound."""
    met = {new}
    heap = [(0, new)]
    while heap and len(met) < MAX_WALK:
        commit = _held(repo, heapq.heappop(heap)[1])
        if commit is None:
            continue
        if old in (commit.id, *commit.parents):
            return True
        for parent in commit.parents:
            if parent not in met:
                met.add(parent)
                heapq.heappush(heap, (-commit.at, parent))
    return False


def between(repo: Repo, old: ObjectID, new: ObjectID) -> Between:
    """Walks both sides at once, youngest first.

    So a side branch that was merged does not lead past `old` into all that came
    before it. A parent that is not held is where a shallow copy ends.
    """
    met: dict[ObjectID, CommitText | None] = {}
    before: set[ObjectID] = set()
    heap: list[tuple[int, ObjectID]] = []

    def meet(commit_id: ObjectID, *, known: bool) -> None:
        if commit_id not in met:
            met[commit_id] = commit = _held(repo, commit_id)
            if commit is not None:
                heapq.heappush(heap, (-commit.at, commit_id))
        stack = [commit_id] if known else []
        while stack:
            if (marked := stack.pop()) not in before:
                before.add(marked)
                commit = met[marked]
                stack += [parent for parent in (commit.parents if commit else ()) if parent in met]

    meet(new, known=False)
    meet(old, known=True)
    fresh: list[CommitText] = []
    forward, slack = new == old, SLACK
    while heap and len(met) < MAX_WALK and slack >= 0:
        slack -= all(commit_id in before for _, commit_id in heap)
        commit = met[heapq.heappop(heap)[1]]
        assert commit is not None
        known = commit.id in before
        if not known:
            fresh.append(commit)
            forward = forward or old in commit.parents
        for parent in commit.parents:
            meet(parent, known=known)
    return Between(
        commits=tuple(commit for commit in fresh if commit.id not in before),
        forward=forward,
        backward=new in before and new != old,
    )


def trailers_between(repo: Repo, old: ObjectID, new: ObjectID) -> tuple[tuple[Trailer, ...], bool]:
    """The trailers of what came after `old`, and whether the way from it is known.

    Where it is not, only the trailers of `new` itself count: a rewritten or an
    unknown history may repeat what was allowed once.
    """
    way = between(repo, old, new)
    if way.forward or way.backward:
        return tuple(trailer for commit in way.commits for trailer in trailers_of(commit)), True
    return tuple(trailers_of(load_commit(repo, new))), False


def trailers_of(commit: CommitText) -> Iterator[Trailer]:
    for key, value in TRAILER.findall(commit.message):
        yield Trailer(key, value, commit.id.decode())


def _held(repo: Repo, commit_id: ObjectID) -> CommitText | None:
    try:
        return load_commit(repo, commit_id)
    except Damaged:
        return None
