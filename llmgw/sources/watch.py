"""When to look at the repository again: soon after it changed, and now and then anyway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

from watchfiles import awatch

from llmgw.sources.scope import FOLDERS, SERVER

log = logging.getLogger(__name__)

DEBOUNCE_MS = 250
"""Changes that come together count once. A lone one is seen after `STEP_MS`."""
STEP_MS = 50

RETRY_S = 30.0
"""Until a folder that could not be watched is tried again; one that came back is at the next look."""

LOCK_WAIT_S = 3.0
"""A git that holds the index for longer was killed, and left its lock behind."""
LOCK_STEP_S = 0.05

_Marks = dict[Path, tuple[int, int] | None]
"""What is watched, and which folder that is now. None: it is not there."""

OWN_BRANCHES = ("refs", "heads", "llmgw", "status")
"""What we write ourselves is no news."""


async def changes(
    watched: Callable[[], Sequence[Path]],
    *,
    wait_s: Callable[[], float],
    jitter: float,
    news: asyncio.Event | None = None,
) -> AsyncIterator[None]:
    """Yields when it is time to look again.

    Args:
        watched: what to watch, from `Source.watch_paths`; empty where only polling
            helps. Asked again at each look: a repository may come back, or be another.
        wait_s: the longest wait until the next look, give or take the jitter.
        jitter: the share of the wait by which each differs at random, so that
            many who follow one server do not ask in the same moment.
        news: set by whoever else knows that something changed.
    """
    news = news or asyncio.Event()
    watcher: asyncio.Task[None] | None = None
    marks: _Marks = {}
    held: list[int] = []
    try:
        while True:
            now = await asyncio.to_thread(_marks, watched)
            if now != marks:
                # What is watched is a folder and no name: one that was made anew under the same name is another.
                await _ended(watcher)
                _let_go(held)
                held = _hold(now)
                watcher = asyncio.create_task(_watch(tuple(now), news)) if now else None
                if marks:
                    news.set()  # what happened in between was seen by nobody
                marks = now
            wait = wait_s() * (1 + jitter * random.uniform(-1, 1))  # noqa: S311 - spreads, hides nothing
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await news.wait()
            await _unlocked(tuple(marks))
            news.clear()
            yield
    finally:
        await _ended(watcher)
        _let_go(held)


def _hold(paths: Iterable[Path]) -> list[int]:
    """Keep each folder open, so that no other has its number while it is watched, removed or not."""
    held = []
    for path in paths:
        with contextlib.suppress(OSError):
            held.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return held


def _let_go(held: list[int]) -> None:
    while held:
        os.close(held.pop())


def _marks(watched: Callable[[], Sequence[Path]]) -> _Marks:
    marks: _Marks = {}
    for path in watched():
        try:
            found = path.stat()
        except OSError:
            marks[path] = None
        else:
            marks[path] = (found.st_dev, found.st_ino)
    return marks


async def _ended(watcher: asyncio.Task[None] | None) -> None:
    if watcher is not None:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher


async def _watch(paths: Sequence[Path], news: asyncio.Event) -> None:
    while True:
        try:
            async for _ in awatch(
                *paths,
                watch_filter=lambda _, path: any(matters(root, Path(path)) for root in paths),
                debounce=DEBOUNCE_MS,
                step=STEP_MS,
            ):
                news.set()
        except OSError as e:
            # A folder that is not there yet, or no inotify watches left.
            log.warning("the repository is not watched, only polled", extra={"why": str(e)})
        await asyncio.sleep(RETRY_S)


def matters(root: Path, changed: Path) -> bool:
    """Whether a changed path below a watched one can change what is asked for.

    `git status` alone touches three files in .git, a commit 28: of these only
    HEAD and the refs say something.
    """
    try:
        parts = changed.relative_to(root).parts
    except ValueError:
        return False
    if parts[:1] == (".git",):
        parts = parts[1:]
    elif not _is_control_folder(root):
        return parts[:1] == (SERVER,) or (
            parts[:1] in [(folder,) for folder in FOLDERS] and not any(part.startswith(".") for part in parts)
        )
    if not parts or parts[-1].endswith(".lock") or parts[: len(OWN_BRANCHES)] == OWN_BRANCHES:
        return False
    return parts in (("HEAD",), ("packed-refs",)) or parts[0] == "refs"


async def _unlocked(paths: Sequence[Path]) -> None:
    """Waits while git writes a working copy: halfway through, it is neither the old one nor the new."""
    locks = [root / ".git" / "index.lock" for root in paths if not _is_control_folder(root)]
    for _ in range(round(LOCK_WAIT_S / LOCK_STEP_S)):
        if not any(lock.exists() for lock in locks):
            return
        await asyncio.sleep(LOCK_STEP_S)


def _is_control_folder(root: Path) -> bool:
    # A linked working copy's has no objects, and says where they are.
    return (root / "HEAD").is_file() and ((root / "objects").is_dir() or (root / "commondir").is_file())
