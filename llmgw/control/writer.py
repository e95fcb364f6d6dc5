"""Status, committed: only when something stable changed, at the time `core.cadence` gives.

Reconciling never waits for it. A push that fails is said and tried again, and
the next one carries whatever is then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from llmgw import __version__
from llmgw.catalog.problem import Problem
from llmgw.control.guard import Guard
from llmgw.core.cadence import BUSY, HOUR_S, due_in_s, worth_writing
from llmgw.core.condition import Condition
from llmgw.core.explain import message, message_of
from llmgw.core.flapping import Damping, damped
from llmgw.core.history import Kind, Line
from llmgw.core.outlook import with_headroom, with_speeds
from llmgw.core.problems import dated
from llmgw.core.status import FleetStatus
from llmgw.core.wanted import Wanted
from llmgw.errors import OperatorError
from llmgw.sources.history_files import written
from llmgw.sources.resumed import seen_in
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_commits import Tip
from llmgw.sources.status_files import to_files
from llmgw.units import show_duration

log = logging.getLogger(__name__)

RETRY_S = 5.0
FLUSH_S = 5.0
"""What shutting down may take for the last commit."""
LOOK_S = 60.0
"""How soon it is noticed that somebody else deleted or wrote the branch, while nothing changes."""
MOST_LINES = 20_000
"""Lines of history that wait for a commit: 10 MB. What happens beyond that is told from one end of it to the other."""
AUTHOR = "llmgw <llmgw@localhost>"
WRITER = "Llmgw-Writer"
"""The trailer that says which process made a commit."""


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
        tip: str,
        now: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        look_s: float = LOOK_S,
    ) -> None:
        """Write nothing yet.

        Args:
            branch: where to.
            cluster: whose status it is while no server.yaml has said.
            committed: what the branch says now.
            tip: its last commit. Empty: none is known.
            now: UTC seconds.
            monotonic: seconds that only grow.
            look_s: how often the branch is looked at while nothing changes.
        """
        self._branch, self._cluster = branch, cluster
        self._committed = self._said = committed
        """What the branch says, and what it said last: the first is forgotten where another wrote."""
        self._committed_at = float("-inf")
        self._look_s, self._looked_at = look_s, monotonic()
        self._tip = self._ours = tip
        """The last commit that was seen, and the last that was ours or an earlier control's."""
        self._mine = f"{socket.gethostname()} {os.getpid()}"
        self._foreign = ""
        """Who else writes the branch, as a problem. Empty: nobody, at the last look."""
        self._refused = ""
        self.failures = 0
        """Commits and looks that could not be made, since this process began."""
        self._guard = Guard("a commit of the status")
        self._now, self._monotonic = now, monotonic
        self._offer: _Offer | None = None
        self._lines: list[Line] = []
        """Of history, not committed yet."""
        self._offered = asyncio.Event()
        self._last: tuple[FleetStatus, Wanted | None] | None = None
        """What was offered last."""
        self._damping = Damping()
        self._commits: deque[float] = deque(maxlen=BUSY)
        """When the last ones were made, monotonic."""
        """What changes to and fro."""
        self._dark_since: float | None = None
        """Monotonic time since which nothing could be written. None: it can."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The same for the status as it is now, and for whoever is told of problems."""
        return (_condition(self.trouble),) if self.trouble else ()

    @property
    def trouble(self) -> str:
        """Why the last commit could not be made, or who else makes some."""
        return self._refused or self._guard.trouble or self._foreign

    def offer_trouble(self, problem: str, wanted: Wanted | None) -> None:
        """Say that a pass failed: everything else is as it was last said. Where nothing was, nothing is."""
        base = self._last[0] if self._last else self._committed
        if base is not None and wanted is not None:
            why, _, do = problem.partition("; ")
            told = Condition("control", why, do, kind="internal")
            others = (c for c in base.trouble if c.subject != told.subject)
            self._take(structs.replace(base, trouble=(*others, told)), wanted)

    @property
    def takes_lines(self) -> bool:
        """Whether lines of history are taken now. Where commits fail for long, no more of them wait than are of use."""
        return len(self._lines) < MOST_LINES

    def write_down(self, lines: Iterable[Line]) -> None:
        """Say what happened. All of it is committed, with the status that is offered next or a later one."""
        self._lines += lines

    def offer(self, status: FleetStatus, wanted: Wanted | None) -> None:
        """Say what is now. The newest is what will be committed."""
        self._last = (status, wanted)
        self._take(status, wanted)

    def _take(self, status: FleetStatus, wanted: Wanted | None) -> None:
        # That the branch cannot be written is not said on the branch: what is written there says that it could be.
        others = tuple(c for c in status.trouble if c.kind != "status_branch")
        foreign = (_condition(self._foreign),) if self._foreign else ()
        status = structs.replace(status, trouble=(*others, *foreign))
        status, self._damping = damped(status, self._committed, self._damping, self._monotonic())
        if not self._lines and not worth_writing(self._committed, status):
            self._offer = None
            return
        since = self._offer.since if self._offer else self._monotonic()
        if self._offer is not None and self._offer.status.observed_commit != status.observed_commit:
            since = self._monotonic()
        status = dated(status, self._offer.status if self._offer else self._said, self._now())
        self._offer = _Offer(status, wanted, since)
        self._offered.set()

    def offer_problems(self, commit: str, problems: Iterable[Problem]) -> None:
        """Say that nothing is wanted, since no server.yaml could be used."""
        said = tuple(p.line_form() for p in problems)
        self.offer(FleetStatus(self._cluster, commit, settled=False, models=(), nodes=(), problems=said), None)

    async def run(self) -> None:
        """Commit for ever, what is due when it is due. First it is asked whether that will be allowed."""
        with self._guard:
            await self._ask()
        while True:
            self._offered.clear()
            wait = min(self._due_in(), self._looked_at + self._look_s - self._monotonic())
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._offered.wait()
                continue
            done = False
            with self._guard:
                done = await (self._commit() if self._due_in() <= 0 else self._look())
            if not done:
                await asyncio.sleep(RETRY_S)

    async def _ask(self) -> None:
        """Whether the branch can be written, before there is anything to write: whoever starts control still looks."""
        try:
            await asyncio.to_thread(self._branch.preflight)
        except OperatorError as e:
            self._cannot(e)

    def _due_in(self) -> float:
        if self._offer is None:
            return float("inf")
        now = self._monotonic()
        return due_in_s(
            self._committed,
            self._offer.status,
            changed_s=now - self._offer.since,
            committed_s=now - self._committed_at,
            in_hour=sum(now - at < HOUR_S for at in self._commits),
        )

    async def _look(self) -> bool:
        """See whether the branch still says what was committed. If not, it is offered again."""
        try:
            tip = await asyncio.to_thread(self._branch.tip)
        except OperatorError as e:
            return self._cannot(e)
        self._refused, self._looked_at = "", self._monotonic()
        found = tip.commit if tip is not None else ""
        foreign = "" if found == self._ours else self._foreign
        if tip is not None and self._tip not in ("", found):
            foreign = _whose(tip, self._cluster)
        if found != self._tip or foreign != self._foreign:
            if foreign not in ("", self._foreign):
                log.warning("%s", foreign)
            self._foreign = foreign
            if found != self._tip:
                self._committed, self._tip = None, found
            if self._last is not None:
                self._take(*self._last)
        return True

    async def _commit(self) -> bool:
        # First whose the branch is: what another wrote would be buried under ours, and nobody would know.
        if self._offer is None or not await self._look():
            return self._offer is None
        offer, lines = self._offer, tuple(self._lines)
        subject, body = _told(self._committed, offer.status, lines)
        if self._dark_since is not None:
            body += f"\nNothing could be written for {show_duration(self._monotonic() - self._dark_since)}."
        try:
            made = await asyncio.to_thread(self._write, offer, lines, subject, body)
        except OperatorError as e:
            return self._cannot(e)
        self._refused, self._looked_at = "", self._monotonic()
        self._dark_since = None
        self._tip = self._ours = made or self._tip
        self._committed = self._said = offer.status
        self._committed_at = self._monotonic()
        self._commits.append(self._committed_at)
        self._damping = self._damping.written(self._committed_at)
        del self._lines[: len(lines)]
        if self._offer is offer:
            self._offer = None
            if self._lines and self._last is not None:
                self._take(*self._last)
        return True

    def _cannot(self, error: OperatorError) -> bool:
        self.failures += 1
        if self._dark_since is None:
            self._dark_since = self._monotonic()
        if str(error) != self._refused:
            log.warning("the status could not be committed: %s", error.sentence)
        self._refused = str(error)
        return False

    def _write(self, offer: _Offer, lines: Sequence[Line], subject: str, body: str) -> str | None:
        status = offer.status
        if offer.wanted is not None:
            seen = seen_in(status)
            status = with_speeds(with_headroom(status, offer.wanted, seen), offer.wanted, seen)
        return self._branch.write(
            to_files(status, offer.wanted, version=__version__),
            subject=subject,
            body=body,
            trailers={
                "Llmgw-Observed": offer.status.observed_commit,
                "Llmgw-Version": __version__,
                WRITER: self._mine,
            },
            author=AUTHOR,
            now=self._now(),
            lines=[written(line) for line in lines],
        )

    async def flush(self) -> None:
        """Commit what is not committed yet, in bounded time: for shutting down."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                with self._guard:
                    await self._commit()


def _told(committed: FleetStatus | None, now: FleetStatus, lines: Sequence[Line]) -> tuple[str, str]:
    """Subject and body of a commit. Where nothing changed that lasts, of what happened, failures first."""
    if not lines or committed is None or now.digest != committed.digest:
        return message(committed, now)
    return message_of([line.sentence for line in sorted(lines, key=lambda line: line.kind is not Kind.FAILED)])


def _condition(trouble: str) -> Condition:
    """What is wrong with the branch: `what it is; what to do`, or an error's three lines."""
    lines = [line.strip() for line in trouble.splitlines()]
    do = next((line.removeprefix("next: ") for line in lines if line.startswith("next: ")), "")
    why = " ".join(line for line in lines if not line.startswith("next: "))
    if not do:
        why, _, do = why.partition("; ")
    return Condition("status branch", why[:300], do, kind="status_branch")


def _whose(tip: Tip, cluster: str) -> str:
    """What is said of a commit that another made."""
    writer = next((t.value for t in tip.trailers if t.key == WRITER), "")
    if not writer:
        return f"somebody else ({tip.author}) wrote to the status branch; it is written again; leave it to llmgw"
    host, _, pid = writer.rpartition(" ")
    return (
        f"another control writes the status of {cluster} too: process {pid} on {host}; stop one of the two, "
        "since agents obey only the one that started last"
    )
