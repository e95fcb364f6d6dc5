"""All fetches: which run, which wait, which failed; and what the mirror answers when it is asked for one."""

from __future__ import annotations

import errno
import logging
import secrets
import shutil
import threading
from collections import deque

import msgspec

from llmgw.core.holdings import Failure, FetchRequest, Holding, HoldingState
from llmgw.errors import Refused, Unreachable
from llmgw.mirror.job import Job, Journal
from llmgw.mirror.requests import checked, fetch_id, same_content
from llmgw.mirror.sources import Sources
from llmgw.mirror.store import Store
from llmgw.units import MIB, show_bytes
from llmgw_agent import durable
from llmgw_agent.fetch.download import Connections, DownloadCancelled, DownloadFailed

log = logging.getLogger(__name__)

FULL = "disk_full"
"""The cause of what failed for want of room."""
AT_ONCE = 2
"""Versions that are fetched at the same time; the others wait their turn."""
SPARE_BYTES = 256 * MIB
SPARE_SHARE = 0.05
"""What has to stay free beside a fetch: this share of what it still needs, and no less than SPARE_BYTES."""


class Conflict(Refused):
    """Something else is there under this name, or it is not the moment."""


class NoRoom(Unreachable):
    """The disk is full. The fetch is kept as failed, and may be asked for again."""


class Fetches:
    """Every fetch the mirror was asked for, on top of the store they end in. Any thread may call it.

    What only looks takes no lock: publishing waits for the disk while it has one.
    """

    def __init__(self, store: Store, sources: Sources, *, spare_bytes: int = SPARE_BYTES) -> None:
        self._store, self._sources, self._spare_bytes = store, sources, spare_bytes
        self._connections = Connections()
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._jobs: dict[str, Job] = {}
        self._queue: deque[Job] = deque()
        self._stopped = False

    def open(self) -> None:
        """Take up what an earlier process left: what was under way goes on, what failed stays failed."""
        with self._news:
            for folder in sorted(self._store.incoming.iterdir()):
                try:
                    job = Job.load(folder)
                except (OSError, msgspec.DecodeError):
                    log.warning("%s has no journal that can be read, and is put aside", folder)
                    self._store.discard(folder, keep=True)
                    continue
                if job.key in self._jobs:
                    self._store.discard(folder)
                    continue
                self._jobs[job.key] = job
                if job.failure is None:
                    self._queue.append(job)

    def close(self) -> None:
        """Stop within a second; every fetch under way goes on at the next start."""
        with self._news:
            self._stopped = True
            for job in self._jobs.values():
                job.cancelled.set()
            self._news.notify_all()
        self._connections.clear()

    def next(self) -> Job | None:
        """The next to work on, once there is one. None when it is closed."""
        with self._news:
            while not self._queue and not self._stopped:
                self._news.wait()
            return None if self._stopped else self._queue.popleft()

    def run(self, job: Job) -> None:
        """Fetch and publish one version; however that ends, it is said in its holding."""
        about = {"model": job.request.name, "version": job.request.version}
        log.info("a fetch begins", extra=about)
        try:
            job.fetch(self._sources, self._connections, room=lambda: self._room(job))
            self._publish(job)
        except DownloadCancelled:
            return
        except DownloadFailed as e:
            self.fail(job, Failure(e.cause, f"{e.what}: {e.why}", e.do, e.lasting))
        except OSError as e:
            self.fail(job, _disk_failure(job, e))
        else:
            log.info("a version is published", extra=about)

    def fail(self, job: Job, failure: Failure) -> None:
        """It stays, with its reason, until it is asked for again or removed."""
        with self._lock:
            if job.cancelled.is_set():
                return  # it failed because it was taken away
            job.failure = failure
            about = {"model": job.request.name, "version": job.request.version, "cause": failure.cause}
            log.warning("a fetch failed: %s", failure.message, extra=about)
            try:
                job.save()
            except OSError as e:  # most likely the very reason: the disk is full
                log.warning("that could not be written down: %s", e.strerror, extra=about)

    def ask(self, request: FetchRequest) -> Holding:
        """Have a version fetched. The same content joins what is there or under way.

        Raises:
            Invalid: the request cannot be done as it stands.
            Conflict: other content has this name, or it failed and `retry` is not said.
            NoRoom: the disk is full.
            OSError: the disk is away.
        """
        request = checked(request, self._sources)
        key = f"{request.name}/{request.version}"
        self._store.look_at(request.name, request.version)
        with self._news:
            job, held = self._jobs.get(key), self._store.version(key)
            if job is not None and job.failure is None:
                if same_content(job.request, request):
                    return job.holding
                raise _other_content(key, "is being fetched")
            if held is not None and held.failure is None:
                if held.is_what(request.files):
                    if job is not None:  # it failed, and somebody has put the files here since
                        self._forget(job)
                    return held.holding
                raise _other_content(key, "is here")
            if held is not None and not held.record.fetched:
                raise Conflict(
                    f"{key} was put here by hand and cannot be served",
                    why=held.failure.message if held.failure else "",
                    do="correct or remove these files on the mirror's disk; what came by hand is not replaced",
                )
            failed = job.failure if job is not None else held.failure if held is not None else None
            if failed and not request.retry and (job is None or same_content(job.request, request)):
                raise Conflict(
                    f"{key} has failed before", why=failed.message, do='ask for it with "retry": true, or remove it'
                )
            if held is not None:
                self._store.set_aside(key)
            return self._begin(request, job).holding

    def remove(self, key: str, *, cancel: bool = False) -> bool:
        """Remove a version and every trace of its fetch. False where there is neither.

        Raises:
            Conflict: it is being fetched, and `cancel` is not said.
            OSError: the disk is away.
        """
        with self._lock:
            self._store.expect_disk()
            job = self._jobs.get(key)
            if job is not None and job.failure is None and not cancel:
                raise Conflict(
                    f"{key} is being fetched", why="a fetch is not ended by accident", do="remove it with ?cancel=1"
                )
            if job is not None:
                self._forget(job)
            return self._store.remove(key) or job is not None

    def holding(self, key: str) -> Holding | None:
        """One version as it is now."""
        job, held = self._jobs.get(key), self._store.version(key)
        if job is not None and (job.failure is None or held is None or held.failure is not None):
            return job.holding
        return held.holding if held is not None else None

    def holdings(self) -> list[Holding]:
        """Every version, sorted by name and version."""
        keys = {*self._jobs, *(v.record.key for v in self._store.versions())}
        found = (self.holding(key) for key in keys)
        return sorted((h for h in found if h is not None), key=lambda h: (h.name, h.version))

    def _begin(self, request: FetchRequest, failed: Job | None) -> Job:
        """A new job, or the failed one again where the content is the same: what it has is kept."""
        if failed is not None and failed.request.files == request.files:
            failed.failure, failed.state = None, HoldingState.QUEUED
            job = failed
        else:
            if failed is not None:
                self._forget(failed)
            # A folder of its own for each job: what a cancelled one still writes
            # for a moment goes nowhere near its successor.
            job = Job(self._store.incoming / f"{fetch_id(request)}.{secrets.token_hex(4)}", Journal(request))
        self._jobs[job.key] = job
        self._write_down(job)
        self._queue.append(job)
        self._news.notify()
        return job

    def _write_down(self, job: Job) -> None:
        """On the disk when this returns. One that cannot be is failed, and known in memory alone."""
        try:
            job.folder.mkdir(mode=0o700, exist_ok=True)
            job.save()
            durable.sync_folder(self._store.incoming)
        except OSError as e:
            if not job.tree.exists():
                shutil.rmtree(job.folder, ignore_errors=True)  # asked for again, it has one again
            job.failure = _disk_failure(job, e)
            log.warning("a fetch cannot be begun: %s", job.failure.message, extra={"model": job.request.name})
            if job.failure.cause == FULL:
                raise NoRoom(f"{job.key} is not fetched", why=job.failure.message, do=job.failure.do) from None
            raise

    def _publish(self, job: Job) -> None:
        with self._lock:
            job.still_wanted()
            self._store.publish(job.tree, job.record)
            del self._jobs[job.key]
            self._store.discard(job.folder)

    def _forget(self, job: Job) -> None:
        job.cancelled.set()
        del self._jobs[job.key]
        if job in self._queue:
            self._queue.remove(job)
        self._store.discard(job.folder)

    def _room(self, job: Job) -> None:
        with self._lock:
            others = sum(
                j.missing_bytes for j in self._jobs.values() if j is not job and j.state is HoldingState.FETCHING
            )
        missing, free = job.missing_bytes, self._store.free_bytes()
        spare = max(round(missing * SPARE_SHARE), self._spare_bytes)
        short = missing + others + spare - free
        if short > 0:
            beside = f", {show_bytes(others)} for other fetches" if others else ""
            raise DownloadFailed(
                f"{job.key} was not fetched",
                why=f"disk full, {show_bytes(short)} short: it needs {show_bytes(missing)}{beside} and "
                f"{show_bytes(spare)} to spare, and {show_bytes(free)} are free",
                do="free space on the mirror's disk: remove versions that nothing uses",
                cause=FULL,
                lasting=False,
            )


def _other_content(key: str, where: str) -> Conflict:
    return Conflict(
        f"other content named {key} {where}",
        why="a version never changes: nodes that hold it would not notice",
        do="give the new content a new version",
    )


def _disk_failure(job: Job, error: OSError) -> Failure:
    if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
        message = f"{job.key} was put here by hand while it was fetched"
        return Failure("refused", message, "remove one of them: the folder on the disk, or this fetch")
    where = error.filename or job.folder
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        do = "free space on the mirror's disk: remove versions that nothing uses"
        return Failure(FULL, f"disk full: {where} cannot be written", do, lasting=False)
    return Failure(
        "disk", f"{where} cannot be written: {error.strerror}", "look at that disk and its rights", lasting=False
    )
