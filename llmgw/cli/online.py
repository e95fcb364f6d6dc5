"""Whether every source of a catalog is there: asked in parallel, within a bound, each problem where it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from llmgw.catalog.check import Catalog, read_models
from llmgw.catalog.files import Entry
from llmgw.catalog.lock import Lock, asked, lock_path
from llmgw.catalog.origin import Place, origin, pinned
from llmgw.catalog.parse import parse
from llmgw.catalog.problem import Place as Spot
from llmgw.catalog.problem import Problem
from llmgw.cli.asked import Asked, Reach
from llmgw.cli.render import count
from llmgw.cli.upstreams import AT_ONCE, look
from llmgw.core.resolved import Resolved
from llmgw.errors import OperatorError, Unreachable
from llmgw.sources.locking import Look, lock_of


def ask(files: Mapping[str, bytes], catalog: Catalog, reach: Reach, *, within_s: float) -> Asked:
    """What is wrong with sources, as they are there now.

    Args:
        files: of the working copy.
        catalog: what they say.
        reach: from where they are looked at.
        within_s: how long all of it may take. What was not answered by then is said.
    """
    entries = [entry for entry in catalog.read if entry.model.source_ is not None]
    reachable = [entry for entry in entries if _here(entry, reach)]
    problems: list[Problem] = []
    away: list[Problem] = []
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        with look(reach, catalog.server, facts=False) as looks:
            started: dict[Future[list[Problem]], Entry] = {
                pool.submit(_one, entry, catalog.locks.get(entry.model.name), looks, files): entry
                for entry in reachable
            }
            wait(started, within_s)
            for future in started:
                future.cancel()
            late = [entry for future, entry in started.items() if not future.done() or future.cancelled()]
        # Leaving `look` ends every connection, so what still waits is over soon.
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    for future, entry in started.items():
        if entry in late:
            away.append(_problem(entry, files, _late(within_s)))
        elif isinstance(error := future.exception(), OperatorError):
            (away if isinstance(error, Unreachable) else problems).append(_problem(entry, files, error))
        elif error is not None:
            raise error
        else:
            problems += future.result()
    left = len(entries) - len(reachable)
    summary = f"asked for {count(len(reachable), 'source')}"
    summary += f"; {left} that cannot be looked at from here" if left else ""
    return Asked((*problems, *away), tuple(away), summary)


def _here(entry: Entry, reach: Reach) -> bool:
    """Whether a source can be looked at: paths are the nodes' own, files the mirror's, and some forms nobody's yet."""
    found = origin(asked(entry.model.source))
    place = found.place if found else None
    return place not in {Place.PATH, Place.OTHER} and (place is not Place.FILE or reach.via is not None)


def _one(entry: Entry, lock: Lock | None, looks: Look, files: Mapping[str, bytes]) -> list[Problem]:
    words = asked(entry.model.source)
    if lock is None:
        lock_of(entry.model, looks(words))
        return []
    found = looks(pinned(words, lock.commit) if lock.commit else words)
    spot = _lock_spot(lock, files)
    return [Problem(lock_path(lock.model), *spot, what, why, do, lock.model) for what, why, do in _moved(lock, found)]


def _moved(lock: Lock, found: Resolved) -> Iterator[tuple[str, str, str]]:
    """How what is there differs from what was locked."""
    there = {file.path: file for file in found.files}
    do = "see what its publisher says of it; llmgw model updates lists what is new"
    for file in lock.files:
        now = there.get(file.path)
        if now is None:
            yield f"{file.path} is not there any more", "it was when it was locked", do
        elif None not in {now.bytes, file.bytes} and now.bytes != file.bytes:
            yield f"{file.path} has {now.bytes} bytes", f"it had {file.bytes} when it was locked", do
        elif None not in {now.sha256, file.sha256} and now.sha256 != file.sha256:
            why = f"its sha256 is {str(now.sha256)[:12]}… now and was {str(file.sha256)[:12]}…"
            yield f"{file.path} is another file", why, do


def _late(within_s: float) -> OperatorError:
    return Unreachable(
        "it was not answered for in time",
        why=f"all sources together have {within_s:g} s",
        do="call again, or give it longer: --within",
    )


def _problem(entry: Entry, files: Mapping[str, bytes], error: OperatorError) -> Problem:
    """At the line of the source it is about."""
    at = next(c.at for c in read_models(entry.path, files[entry.path]).claims if c.name == entry.model.name)
    place = parse(files[entry.path]).place((*at, "source", "from"))
    return Problem(entry.path, *place, error.what, error.why, error.do, entry.model.name)


def _lock_spot(lock: Lock, files: Mapping[str, bytes]) -> Spot:
    return parse(files[lock_path(lock.model)]).key_place(("files",))
