"""One version on its way here: its journal on the disk, and its progress in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from llmgw.core.holdings import Failure, FetchRequest, Holding, HoldingState, WantedFile
from llmgw.mirror import names, weights
from llmgw.mirror.records import KeptFile, Record
from llmgw.mirror.requests import where_from
from llmgw.mirror.sources import Sources
from llmgw.net.decoding import decode
from llmgw_agent import durable
from llmgw_agent.fetch.download import Connections, DownloadCancelled, Source, download, shown_url

_SAVE_EVERY_S = 1.0
"""A version may have thousands of small files: what a kill loses of them is fetched again."""
_RATE_OVER_S = 5.0


class Journal(Struct, frozen=True, omit_defaults=True):
    """What a restart goes on from."""

    request: FetchRequest
    done: tuple[KeptFile, ...] = ()
    failure: Failure | None = None


class Job:
    """One fetch. One thread works on it; any thread may look at it or cancel it."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.request = journal.request
        self.failure = journal.failure
        self.cancelled = threading.Event()
        self.state = HoldingState.QUEUED
        self._done = {f.path: f for f in journal.done}
        # By path, each with every key from the start: another thread may be adding them up.
        self._sizes = {f.path: f.bytes for f in self.request.files} | {f.path: f.bytes for f in journal.done}
        self._here = {f.path: self._on_disk(f.path) for f in self.request.files}
        self._marks: deque[tuple[float, int]] = deque(maxlen=12)
        self._saved = 0.0

    @classmethod
    def load(cls, folder: Path) -> Job:
        """Raises OSError or msgspec.DecodeError: there is none that can be gone on with."""
        journal = decode((folder / "journal.json").read_bytes(), Journal)
        asked = journal.request
        paths = {f.path for f in asked.files}
        wrong = [*names.name_problems(asked.name, asked.version), *names.path_problems(sorted(paths))]
        if wrong or not paths or not paths >= {f.path for f in journal.done}:
            # These become paths: what a request is refused for, a file of ours may not say either.
            raise msgspec.DecodeError("it names what no request can")
        return cls(folder, journal)

    @property
    def key(self) -> str:
        return f"{self.request.name}/{self.request.version}"

    @property
    def missing_bytes(self) -> int:
        """What is still to come, of the files whose size is known."""
        return sum(max(size - self._here[path], 0) for path, size in self._sizes.items() if size is not None)

    @property
    def holding(self) -> Holding:
        """How far it is."""
        sizes = [size for size in self._sizes.values() if size is not None]
        return Holding(
            self.request.name,
            self.request.version,
            HoldingState.FAILED if self.failure else self.state,
            origin=self.request.origin,
            from_=where_from(self.request),
            total_bytes=sum(sizes) if len(sizes) == len(self.request.files) else None,
            done_bytes=sum(self._here.values()),
            rate_bytes_s=self._rate(),
            failure=self.failure,
        )

    @property
    def record(self) -> Record:
        """What is published once every file is here."""
        request = self.request
        files = tuple(self._done[f.path] for f in request.files)
        return Record(request.name, request.version, request.origin, where_from(request), files)

    def save(self) -> None:
        """Write the journal; on disk when this returns."""
        journal = Journal(self.request, tuple(self._done.values()), self.failure)
        durable.write(self.folder / "journal.json", msgspec.json.encode(journal))
        self._saved = time.monotonic()

    def still_wanted(self) -> None:
        if self.cancelled.is_set():
            raise DownloadCancelled

    def fetch(self, sources: Sources, pool: Connections, *, room: Callable[[], None]) -> None:
        """Have every file here, checked, in `tree`.

        Args:
            sources: where it may be had from.
            pool: connections to use.
            room: asked each time a size becomes known. Raises.

        Raises:
            DownloadFailed: one cannot be had.
            DownloadCancelled: nobody wants it any more.
            OSError: `tree` cannot be written.
        """
        self.state = HoldingState.FETCHING
        room()
        for file in self.request.files:
            self.still_wanted()
            done = self._done.get(file.path)
            if done is None or self._on_disk(file.path) != done.bytes:
                self._done[file.path] = self._fetch_one(file, sources, pool, room)
                if time.monotonic() - self._saved > _SAVE_EVERY_S:
                    self.save()
        self.state = HoldingState.VERIFYING
        self.save()

    def _fetch_one(self, file: WantedFile, sources: Sources, pool: Connections, room: Callable[[], None]) -> KeptFile:
        part = self.tree / file.path
        part.parent.mkdir(parents=True, exist_ok=True)

        def on_total(size: int) -> None:
            known = self._sizes[file.path]
            self._sizes[file.path] = size
            if known is None:
                room()

        def on_bytes(here: int) -> None:
            self._here[file.path] = here
            self._mark()

        def check_head(head: bytes) -> None:
            if problem := weights.head_problem(file.path, head, self._sizes[file.path]):
                raise Source(file.url).failed("not_weights", problem)

        url = sources.located(file.url)
        size, sha256 = download(
            url,
            part,
            expect_bytes=file.bytes,
            expect_sha256=file.sha256,
            on_bytes=on_bytes,
            on_total=on_total,
            cancelled=self.cancelled.is_set,
            check_hop=sources.check,
            check_head=check_head,
            addresses=sources.addresses,
            headers=sources.private(url),
            pool=pool,
        )
        self._sizes[file.path] = self._here[file.path] = size
        return KeptFile(file.path, size, sha256, url=shown_url(file.url))

    def _on_disk(self, path: str) -> int:
        try:
            return (self.tree / path).lstat().st_size
        except OSError:
            return 0

    def _mark(self) -> None:
        now = time.monotonic()
        if not self._marks or now - self._marks[-1][0] >= _RATE_OVER_S / 10:
            self._marks.append((now, sum(self._here.values())))

    def _rate(self) -> float | None:
        """Bytes a second over the last few seconds. None before that is known, and when it does not run."""
        now, here = time.monotonic(), sum(self._here.values())
        marks = [mark for mark in tuple(self._marks) if now - mark[0] <= _RATE_OVER_S]
        if self.failure or self.state is not HoldingState.FETCHING or not self._marks:
            return None
        at, before = marks[0] if marks else self._marks[-1]
        return max(here - before, 0) / (now - at) if now - at >= _RATE_OVER_S / 10 else None
