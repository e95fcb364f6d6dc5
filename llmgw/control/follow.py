"""The repository, followed: each commit that matters becomes what is wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw.catalog.problem import Problem
from llmgw.control.guard import Guard
from llmgw.core.condition import Condition
from llmgw.core.observed import NodeSeen
from llmgw.core.paces import paced
from llmgw.core.references import Files
from llmgw.core.wanted import Wanted, allowed_removals, judge, purged_names
from llmgw.errors import OperatorError, Refused
from llmgw.sources.admission import NotAdmitted
from llmgw.sources.git import Source
from llmgw.sources.reading import catalog_of
from llmgw.sources.snapshot import UNBORN, Snapshot, Trailer
from llmgw.sources.watch import changes
from llmgw.sources.wire import Throttled

log = logging.getLogger(__name__)

JITTER = 0.2
"""Share of the time between polls by which it varies, so that a fleet of controls is not in step."""
LONGEST_WAIT_S = 600.0
"""Between two looks at a repository that has failed again and again."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What one look at the repository came to."""

    commit: str
    """The newest commit that was read."""
    wanted: Wanted | None
    """None: no server.yaml has been good yet, and none is known from before."""
    problems: tuple[Problem, ...]
    unread: tuple[str, ...] = ()
    """Files that may hold any model: while there are some, none is removed."""

    @property
    def standstill(self) -> str:
        """Why nothing is removed, as a sentence. Empty: what is not asked for any more is."""
        more = f" and {len(self.unread) - 3} more" if len(self.unread) > 3 else ""
        paths = f"{', '.join(self.unread[:3])}{more}"
        return f"no model is removed while {paths} cannot be read; repair or remove it" if self.unread else ""


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
        held: Callable[[], Files],
        nodes: Callable[[], Iterable[NodeSeen]],
        poll_s: float,
        on_trouble: Callable[[], None] = lambda: None,
    ) -> None:
        """Look at nothing yet.

        Args:
            source: the repository.
            cluster: the fleet this control is for; a server.yaml of another is a problem.
            local: whether the repository is on this machine.
            last: what was wanted before this control started, from the status branch.
            running: names of models that replicas run of.
            held: what the mirror has whole and what nodes have.
            nodes: as they were last seen.
            poll_s: seconds between looks when nothing says that something changed.
            on_trouble: called when the repository goes away or comes back.
        """
        self._source, self._cluster, self._local, self._poll_s = source, cluster, local, poll_s
        self._running, self._held, self._nodes = running, held, nodes
        self._seen = ("", "")
        self._snapshot: Snapshot | None = None
        self._last = last
        self._failures = 0
        """Looks in a row that failed."""
        self.failures = 0
        """Looks that failed, since this process began."""
        self._asked_s = 0.0
        """How long the server asked to be left alone."""
        self._on_trouble = on_trouble
        self._guard = Guard("a look at the repository")
        self._news = asyncio.Event()
        self._away = ""
        self._error: OperatorError | None = None
        """The same as it was raised."""
        self._noted: set[tuple[str, str]] = set()
        """Fields that do not act yet and were warned of, each with its file."""

    @property
    def trouble(self) -> str:
        """Why the last look failed. What was wanted before still is."""
        return self._away or self._guard.trouble or self._source.trouble

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The same for a status: of which kind it is, and what to do."""
        if self._error is not None:
            kind = "not_admitted" if isinstance(self._error, NotAdmitted) else "git_unreachable"
            return (Condition("repository", f"{self._error.what}: {self._error.why}"[:300], self._error.do, kind=kind),)
        why, _, do = self.trouble.partition("; next: ")
        kind = "internal" if self._guard.trouble else "git_unreachable"
        return (Condition("repository", why[:300], do, kind=kind),) if why else ()

    async def first_look(self, found: Callable[[Followed], None]) -> None:
        """Look once before anything else, so that a wrong address is said by the command that gave it.

        Raises:
            OperatorError: it will not be had by waiting: the branch is missing, or a path of this
                machine. A server that does not answer is asked again.
        """
        refused: OperatorError | None = None
        with self._guard:
            try:
                await self.look(found, first=True)
            except OperatorError as e:
                refused = e
        if refused is not None:
            raise refused

    async def follow(self, found: Callable[[Followed], None]) -> None:
        """Look for ever, and hand on each look that found something new."""
        async for _ in changes(self._watched, wait_s=self._wait_s, jitter=JITTER, news=self._news):
            with self._guard:
                await self.look(found)
            if self._guard.trouble:
                self._failures += 1

    def look_soon(self) -> None:
        """Somebody says that something was pushed."""
        self._news.set()

    def _watched(self) -> Sequence[Path]:
        try:
            return self._source.watch_paths()
        except OperatorError:
            return ()  # it is away, and only polled for

    def _wait_s(self) -> float:
        """Until the next look: longer each time a server fails, and never sooner than it asked."""
        if self._local:
            return self._poll_s  # to look costs nobody anything
        longer = self._poll_s * 2.0 ** min(self._failures, 10)
        return max(min(longer, LONGEST_WAIT_S), self._poll_s, self._asked_s / (1 - JITTER))

    async def look(self, found: Callable[[Followed], None], *, first: bool = False) -> None:
        """Look once. A repository that is away, or goes away halfway, is said and changes nothing."""
        try:
            snapshot = await asyncio.to_thread(self._source.poll)
            # What a guard holds may be lifted by a line in a commit that changes no file.
            seen = (snapshot.identity, snapshot.commit if self._last and self._last.held else "")
            followed = None if seen == self._seen else await self._judged(snapshot, await self._trailers())
        except OperatorError as e:
            if first and (isinstance(e, Refused) or self._local) and not isinstance(e, NotAdmitted):
                raise
            self._failed(e)
            return
        back, self._away = bool(self._away), ""
        if back:
            log.info("the repository can be read again")
        self._error, self._failures, self._asked_s = None, 0, 0.0
        if back:
            self._on_trouble()
        self._seen = seen
        if followed is not None:
            found(followed)

    def _failed(self, error: OperatorError) -> None:
        self._failures += 1
        self.failures += 1
        self._asked_s = (error.after_s or 0.0) if isinstance(error, Throttled) else 0.0
        known, self._error, self._away = self._away, error, str(error)
        if known != self._away:
            log.warning("the repository cannot be read; what was wanted still is: %s", error.sentence)
            self._on_trouble()

    async def judge_again(self, found: Callable[[Followed], None]) -> None:
        """Judge the same commit once more: what runs is known now, and it may have removed that.

        Where the repository is away just now nothing is known to lift a guard, so none
        is lifted, and the next look judges once more.
        """
        if self._snapshot is None:
            return
        trailers: tuple[Trailer, ...] = ()
        try:
            trailers = await self._trailers()
        except OperatorError as e:
            self._failed(e)
            self._seen = ("", "")
        found(await self._judged(self._snapshot, trailers))

    async def _trailers(self) -> tuple[Trailer, ...]:
        # Without a commit that is known to have been carried out, only the newest one's own lines count.
        since = self._last.applied if self._last and self._last.applied else UNBORN
        return await asyncio.to_thread(self._source.trailers_since, since)

    async def _judged(self, snapshot: Snapshot, trailers: Iterable[Trailer]) -> Followed:
        read = await asyncio.to_thread(catalog_of, snapshot, cluster=self._cluster)
        catalog = paced(read, self._nodes(), self._last)
        for note in catalog.notes:
            if (note.path, note.field) not in self._noted:
                self._noted.add((note.path, note.field))
                log.warning("%s", note, extra={"commit": snapshot.commit})
        wanted = judge(
            catalog,
            commit=snapshot.commit,
            committed_at=snapshot.committed_at,
            last=self._last,
            author=snapshot.author,
            running=self._running(),
            held=self._held(),
            allowed_removals=allowed_removals((t.key, t.value) for t in trailers),
            purged=purged_names((t.key, t.value) for t in trailers),
        )
        self._snapshot = snapshot
        self._last = wanted or self._last
        log.info("commit %s is wanted", snapshot.commit[:12], extra={"problems": len(catalog.problems)})
        return Followed(snapshot.commit, wanted, catalog.problems, catalog.unreadable_paths)
