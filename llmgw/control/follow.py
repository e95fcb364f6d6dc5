"""The repository, followed: each commit that matters becomes what is wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from llmgw.catalog.problem import Problem
from llmgw.core.wanted import Wanted, allowed_removals, judge
from llmgw.errors import OperatorError, Refused
from llmgw.sources.git import Source
from llmgw.sources.reading import catalog_of
from llmgw.sources.snapshot import UNBORN, Snapshot
from llmgw.sources.watch import changes

log = logging.getLogger(__name__)

JITTER = 0.2
"""Share of the time between polls by which it varies, so that a fleet of controls is not in step."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What one look at the repository came to."""

    commit: str
    """The newest commit that was read."""
    wanted: Wanted | None
    """None: no server.yaml has been good yet, and none is known from before."""
    problems: tuple[Problem, ...]


class Follower:
    """Looks when something changed, and now and then besides; judges what is new."""

    def __init__(
        self,
        source: Source,
        *,
        cluster: str,
        local: bool,
        last: Wanted | None,
        running: Callable[[], Iterable[str]],
        held_versions: Callable[[], Iterable[str]],
        poll_s: float,
    ) -> None:
        """Look at nothing yet.

        Args:
            source: the repository.
            cluster: the fleet this control is for; a server.yaml of another is a problem.
            local: whether the repository is on this machine.
            last: what was wanted before this control started, from the status branch.
            running: names of models that replicas run of.
            held_versions: what the mirror has whole.
            poll_s: seconds between looks when nothing says that something changed.
        """
        self._source, self._cluster, self._local, self._poll_s = source, cluster, local, poll_s
        self._running, self._held_versions = running, held_versions
        self._seen = ("", "")
        self._snapshot: Snapshot | None = None
        self._last = last
        self._noted: set[tuple[str, str]] = set()
        """Fields that do not act yet and were warned of, each with its file."""
        self.trouble = ""
        """Why the last look failed. What was wanted before still is."""

    async def first_look(self, found: Callable[[Followed], None]) -> None:
        """Look once before anything else, so that a wrong address is said by the command that gave it.

        Raises:
            OperatorError: it will not be had by waiting: the branch is missing, or a path of this
                machine. A server that does not answer is asked again.
        """
        await self.look(found, first=True)

    async def follow(self, found: Callable[[Followed], None]) -> None:
        """Look for ever, and hand on each look that found something new."""
        async for _ in changes(self._source.watch_paths(), poll_s=self._poll_s, jitter=JITTER):
            await self.look(found)

    async def look(self, found: Callable[[Followed], None], *, first: bool = False) -> None:
        """Look once. A repository that is away is said and changes nothing."""
        try:
            snapshot = await asyncio.to_thread(self._source.poll)
        except OperatorError as e:
            if first and (isinstance(e, Refused) or self._local):
                raise
            if str(e) != self.trouble:
                log.warning("the repository cannot be read; what was wanted still is: %s", e.sentence)
            self.trouble = str(e)
            return
        if self.trouble:
            log.info("the repository can be read again")
            self.trouble = ""
        # What a guard holds may be lifted by a line in a commit that changes no file.
        seen = (snapshot.identity, snapshot.commit if self._last and self._last.held else "")
        if seen == self._seen:
            return
        self._seen = seen
        found(await self._judged(snapshot))

    async def judge_again(self, found: Callable[[Followed], None]) -> None:
        """Judge the same commit once more: what runs is known now, and it may have removed that."""
        if self._snapshot is not None:
            found(await self._judged(self._snapshot))

    async def _judged(self, snapshot: Snapshot) -> Followed:
        self._snapshot = snapshot
        catalog = await asyncio.to_thread(catalog_of, snapshot, cluster=self._cluster)
        for note in catalog.notes:
            if (note.path, note.field) not in self._noted:
                self._noted.add((note.path, note.field))
                log.warning("%s", note, extra={"commit": snapshot.commit})
        # Without a commit that is known to have been carried out, only the newest one's own lines count.
        since = self._last.applied if self._last and self._last.applied else UNBORN
        trailers = await asyncio.to_thread(self._source.trailers_since, since)
        wanted = judge(
            catalog,
            commit=snapshot.commit,
            committed_at=snapshot.committed_at,
            last=self._last,
            running=self._running(),
            held_versions=frozenset(self._held_versions()),
            allowed_removals=allowed_removals((t.key, t.value) for t in trailers),
        )
        self._last = wanted or self._last
        log.info("commit %s is wanted", snapshot.commit[:12], extra={"problems": len(catalog.problems)})
        return Followed(snapshot.commit, wanted, catalog.problems)
