"""Status, committed: only when something stable changed, at the time `core.cadence` gives.

Reconciling never waits for it. A push that fails is said and tried again, and
the next one carries whatever is then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from llmgw import __version__
from llmgw.catalog.problem import Problem
from llmgw.core.cadence import due_in_s
from llmgw.core.explain import message
from llmgw.core.status import FleetStatus
from llmgw.core.wanted import Wanted
from llmgw.errors import OperatorError
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_files import to_files

log = logging.getLogger(__name__)

RETRY_S = 5.0
FLUSH_S = 5.0
"""What shutting down may take for the last commit."""
AUTHOR = "llmgw <llmgw@localhost>"


@dataclass(frozen=True, slots=True)
class _Offer:
    status: FleetStatus
    wanted: Wanted | None
    since: float
    """Monotonic time at which it first differed from what is committed."""


class Writer:
    """Commits the newest status when it is due."""

    def __init__(
        self,
        branch: StatusBranch,
        *,
        cluster: str,
        committed: FleetStatus | None,
        now: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write nothing yet.

        Args:
            branch: where to.
            cluster: whose status it is while no server.yaml has said.
            committed: what the branch says now.
            now: UTC seconds.
            monotonic: seconds that only grow.
        """
        self._branch, self._cluster = branch, cluster
        self._committed = committed
        self._committed_at = float("-inf")
        self._now, self._monotonic = now, monotonic
        self._offer: _Offer | None = None
        self._offered = asyncio.Event()
        self.trouble = ""
        """Why the last commit could not be made."""

    def offer(self, status: FleetStatus, wanted: Wanted | None) -> None:
        """Say what is now. The newest is what will be committed."""
        if self._committed is not None and status.digest == self._committed.digest:
            self._offer = None
            return
        since = self._offer.since if self._offer else self._monotonic()
        if self._offer is not None and self._offer.status.observed_commit != status.observed_commit:
            since = self._monotonic()
        self._offer = _Offer(status, wanted, since)
        self._offered.set()

    def offer_problems(self, commit: str, problems: Iterable[Problem]) -> None:
        """Say that nothing is wanted, since no server.yaml could be used."""
        said = tuple(p.line_form() for p in problems)
        self.offer(FleetStatus(self._cluster, commit, settled=False, models=(), nodes=(), problems=said), None)

    async def run(self) -> None:
        """Commit for ever, what is due when it is due."""
        while True:
            self._offered.clear()
            wait = self._due_in()
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._offered.wait()
            elif not await self._commit():
                await asyncio.sleep(RETRY_S)

    def _due_in(self) -> float:
        if self._offer is None:
            return 3600.0
        now = self._monotonic()
        return due_in_s(
            self._committed,
            self._offer.status,
            changed_s=now - self._offer.since,
            committed_s=now - self._committed_at,
        )

    async def _commit(self) -> bool:
        offer = self._offer
        if offer is None:
            return True
        subject, body = message(self._committed, offer.status)
        try:
            await asyncio.to_thread(self._write, offer, subject, body)
        except OperatorError as e:
            if str(e) != self.trouble:
                log.warning("the status could not be committed: %s", e.sentence)
            self.trouble = str(e)
            return False
        self.trouble = ""
        self._committed, self._committed_at = offer.status, self._monotonic()
        if self._offer is offer:
            self._offer = None
        return True

    def _write(self, offer: _Offer, subject: str, body: str) -> None:
        self._branch.write(
            to_files(offer.status, offer.wanted, version=__version__),
            subject=subject,
            body=body,
            trailers={"Llmgw-Observed": offer.status.observed_commit, "Llmgw-Version": __version__},
            author=AUTHOR,
            now=self._now(),
        )

    async def flush(self) -> None:
        """Commit what is not committed yet, in bounded time: for shutting down."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._commit()
