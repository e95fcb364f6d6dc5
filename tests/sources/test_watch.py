"""When it is time to look: soon after a change that matters, and now and then anyway."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from fakes.real_git import Fleet
from llmgw.sources.git import open_source
from llmgw.sources.watch import LOCK_WAIT_S, changes, matters

pytestmark = pytest.mark.needs_git

NEVER_S = 60.0
SOON_S = 3.0


def paths_of(path: Path, mode: str = "head") -> tuple[Path, ...]:
    return open_source(str(path), branch="main", state=Path("/nonexistent"), mode=mode).watch_paths()


class Watched:
    """What a watch yielded, counted."""

    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Condition()

    async def add(self) -> None:
        async with self._more:
            self.count += 1
            self._more.notify_all()

    async def seen(self, count: int, within_s: float = SOON_S) -> bool:
        try:
            async with asyncio.timeout(within_s), self._more:
                await self._more.wait_for(lambda: self.count >= count)
        except TimeoutError:
            return False
        return True


@asynccontextmanager
async def watching(paths: tuple[Path, ...], poll_s: float = NEVER_S) -> AsyncIterator[Watched]:
    """Watches, and returns once the watch is in place: it sees what is written for it to see."""
    watched = Watched()

    async def count() -> None:
        async for _ in changes(lambda: paths, wait_s=lambda: poll_s, jitter=0):
            await watched.add()

    task = asyncio.create_task(count())
    sign = next(
        (path / "refs/heads/sign" if (path / "refs").is_dir() else path / ".git/refs/heads/sign") for path in paths
    )
    while not await watched.seen(1, 0.2):
        sign.write_text(f"{time.monotonic_ns():040}\n")
    sign.unlink()
    await settled(watched)
    watched.count = 0
    yield watched
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settled(watched: Watched) -> None:
    while await watched.seen(watched.count + 1, 0.45):
        pass


async def push(fleet: Fleet, files: dict[str, bytes | None]) -> str:
    return await asyncio.to_thread(fleet.push, files)


async def test_a_push_to_a_bare_repository_is_seen_long_before_a_poll(fleet: Fleet):
    took = []
    async with watching(paths_of(fleet.path)) as watched:
        for n in range(3):
            await push(fleet, {"catalog/a.yaml": b"%d" % n})
            started = time.monotonic()
            assert await watched.seen(1)
            took.append(time.monotonic() - started)
            await settled(watched)
            watched.count = 0

    assert statistics.median(took) < 5


async def test_what_changes_in_a_repository_and_says_nothing_is_no_news(fleet: Fleet):
    async with watching(paths_of(fleet.path)) as watched:
        (fleet.path / "FETCH_HEAD").write_text("x")
        (fleet.path / "objects/ab").mkdir(exist_ok=True)
        (fleet.path / "objects/ab/cdef").write_text("x")
        (fleet.path / "refs/heads/main.lock").write_text("x")
        status = fleet.path / "refs/heads/llmgw/status/lab"
        status.parent.mkdir(parents=True)
        await settled(watched)  # The new folders are not ours alone.
        watched.count = 0
        status.write_text("0" * 40)

        assert not await watched.seen(1, 0.7)


async def test_packing_the_refs_is_news(fleet: Fleet):
    async with watching(paths_of(fleet.path)) as watched:
        await asyncio.to_thread(fleet.bare, "pack-refs", "--all")

        assert await watched.seen(1)


async def test_an_edit_of_a_working_copy_is_seen(fleet: Fleet):
    async with watching(paths_of(fleet.clone.at, "worktree")) as watched:
        fleet.clone.write({"catalog/a.yaml": b"edited"})
        assert await watched.seen(1)
        await settled(watched)
        watched.count = 0

        fleet.clone.write({"catalog/new/folder/b.yaml": b"new"})
        assert await watched.seen(1)


async def test_git_status_and_other_files_are_no_news(fleet: Fleet):
    async with watching(paths_of(fleet.clone.at, "worktree")) as watched:
        await asyncio.to_thread(fleet.clone, "status")
        fleet.clone.write({"README.md": b"x", "catalog/.a.yaml.swp": b"x", "notes/a.yaml": b"x"})

        assert not await watched.seen(1, 0.7)


async def test_a_commit_of_a_working_copy_is_news_in_head_mode_and_an_edit_is_not(fleet: Fleet):
    async with watching(paths_of(fleet.clone.at)) as watched:
        fleet.clone.write({"catalog/a.yaml": b"edited"})
        assert not await watched.seen(1, 0.7)

        await asyncio.to_thread(fleet.clone, "commit", "-aqm", "edit")
        assert await watched.seen(1)


async def test_a_working_copy_that_git_is_writing_is_not_looked_at(fleet: Fleet):
    lock = fleet.clone.at / ".git/index.lock"
    async with watching(paths_of(fleet.clone.at, "worktree")) as watched:
        lock.touch()
        fleet.clone.write({"catalog/a.yaml": b"half"})
        assert not await watched.seen(1, 0.7)

        lock.unlink()
        assert await watched.seen(1)


async def test_a_lock_that_a_killed_git_left_is_not_waited_for_for_ever(fleet: Fleet):
    (fleet.clone.at / ".git/index.lock").touch()
    started = time.monotonic()

    async with aclosing(changes(lambda: (fleet.clone.at,), wait_s=lambda: 0.1, jitter=0)) as looks:
        await anext(looks)

    assert time.monotonic() - started < LOCK_WAIT_S + 20


async def test_a_large_push_is_news_once_or_a_few_times(fleet: Fleet):
    async with watching(paths_of(fleet.clone.at, "worktree")) as watched:
        fleet.clone.write({f"catalog/m{n}.yaml": b"name: m%d\n" % n for n in range(300)})

        await settled(watched)
        assert 1 <= watched.count <= 5


@pytest.mark.parametrize("local", [True, False])
async def test_without_news_it_is_time_every_poll_interval(fleet: Fleet, local: bool):
    paths = paths_of(fleet.path) if local else ()
    started = time.monotonic()

    async with aclosing(changes(lambda: paths, wait_s=lambda: 0.2, jitter=0)) as looks:
        for _ in range(5):
            await anext(looks)

    assert 1.0 <= time.monotonic() - started < 20


async def test_irrelevant_changes_do_not_put_a_poll_off(fleet: Fleet):
    stop = asyncio.Event()

    async def busy() -> None:
        while not stop.is_set():
            (fleet.path / "FETCH_HEAD").write_text(str(time.monotonic()))
            await asyncio.sleep(0.02)

    noise = asyncio.create_task(busy())
    started = time.monotonic()
    async with aclosing(changes(lambda: paths_of(fleet.path), wait_s=lambda: 0.5, jitter=0)) as looks:
        await anext(looks)
        await anext(looks)
    stop.set()
    await noise

    assert time.monotonic() - started < 20


async def test_waits_differ_by_the_jitter():
    waits = []
    async with aclosing(changes(lambda: (), wait_s=lambda: 0.05, jitter=0.8)) as looks:
        for _ in range(12):
            started = time.monotonic()
            await anext(looks)
            waits.append(time.monotonic() - started)

    assert max(waits) > 1.3 * min(waits)
    assert min(waits) >= 0.05 * 0.19


async def test_a_folder_that_is_not_there_is_polled(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with aclosing(changes(lambda: (tmp_path / "gone",), wait_s=lambda: 0.1, jitter=0)) as looks:
        await anext(looks)
        await anext(looks)

    assert "not watched, only polled" in caplog.text


async def test_a_repository_that_was_made_anew_at_its_path_is_watched_again(fleet: Fleet):
    shutil.copytree(fleet.path, fleet.path.with_name("old"))
    waits = [0.2, NEVER_S, NEVER_S]
    async with aclosing(changes(lambda: paths_of(fleet.path), wait_s=lambda: waits.pop(0), jitter=0)) as looks:
        await anext(looks)
        shutil.rmtree(fleet.path)
        shutil.copytree(fleet.path.with_name("old"), fleet.path)
        async with asyncio.timeout(20):
            await anext(looks)  # another folder is there: whatever happened meanwhile is looked at
            looking = asyncio.ensure_future(anext(looks))
            while not looking.done():
                (fleet.path / "refs/heads/sign").write_text(f"{time.monotonic_ns():040}\n")
                await asyncio.wait({looking}, timeout=0.3)


def test_a_watch_that_is_cancelled_leaves_no_thread_behind(fleet: Fleet):
    before = threading.active_count()

    async def watch_and_cancel() -> None:
        for _ in range(2):
            async with watching(paths_of(fleet.path)):
                pass

    asyncio.run(watch_and_cancel())

    deadline = time.monotonic() + SOON_S
    while threading.active_count() > before and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert threading.active_count() <= before


def test_a_watch_that_is_idle_costs_next_to_nothing(fleet: Fleet):
    async def idle() -> float:
        async with watching(paths_of(fleet.path)) as watched:
            started = time.process_time()
            await watched.seen(1, 1.0)
            return time.process_time() - started

    assert asyncio.run(idle()) < 0.06


@pytest.mark.parametrize(
    ("path", "says"),
    [
        *((path, True) for path in ("server.yaml", "catalog/a.yaml", "catalog", "keys/k.yaml", "locks/a.yaml")),
        *((path, True) for path in (".git/HEAD", ".git/packed-refs", ".git/refs/heads/main", ".git/refs/tags/v1")),
        *((path, False) for path in ("README.md", "catalog/.a.yaml.swp", "sub/server.yaml", ".git", "../elsewhere")),
        *((path, False) for path in (".git/HEAD.lock", ".git/index", ".git/index.lock", ".git/objects/ab/cd")),
        (".git/logs/HEAD", False),
        (".git/refs/heads/main.lock", False),
        (".git/refs/heads/llmgw/status/lab", False),
    ],
)
def test_what_matters(tmp_path: Path, path: str, says: bool):
    assert matters(tmp_path, tmp_path / path) is says
