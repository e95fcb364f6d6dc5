"""A disk that is full: said before a fetch where the size is known, and while it runs where it is not."""

from __future__ import annotations

import ctypes
import hashlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.upstream import Answer, Upstream, gguf
from llmgw_agent.fetch.download import DownloadFailed, download

MB = 1_000_000
DATA = gguf(3 * MB)
SHA = hashlib.sha256(DATA).hexdigest()
_libc = ctypes.CDLL(None, use_errno=True)


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Two mebibytes, of which all may be used."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if _libc.mount(b"none", bytes(disk), b"tmpfs", 0, b"size=2m") != 0:
        pytest.skip(f"mounting a tmpfs: {os.strerror(ctypes.get_errno())}")
    yield disk
    _libc.umount2(bytes(disk), 2)


def test_a_full_disk_is_said_with_how_much_is_missing_and_the_part_is_kept(small_disk: Path, upstream: Upstream):
    with pytest.raises(DownloadFailed) as failed:
        download(upstream.put("/m.gguf", DATA), small_disk / "part", expect_bytes=len(DATA), expect_sha256=SHA)

    assert (failed.value.cause, failed.value.lasting) == ("disk_full", False)
    assert failed.value.why == "disk full, 902.8 kB short"
    part = (small_disk / "part").read_bytes()
    assert part == DATA[: len(part)]
    assert len(part) == 2 << 20


def test_once_there_is_room_it_goes_on_from_where_it_was(small_disk: Path, upstream: Upstream):
    url = upstream.put("/m.gguf", DATA)
    with pytest.raises(DownloadFailed):
        download(url, small_disk / "part", expect_sha256=SHA)
    assert _libc.mount(b"none", bytes(small_disk), b"tmpfs", 32, b"size=8m") == 0  # MS_REMOUNT

    assert download(url, small_disk / "part", expect_sha256=SHA).bytes == len(DATA)
    assert upstream.ranges() == [None, f"bytes={2 << 20}-"]


def test_a_limit_on_the_size_of_files_is_said_too(tmp_path: Path, upstream: Upstream):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MB, before[1]))
    try:
        with pytest.raises(DownloadFailed) as failed:
            download(upstream.put("/m.gguf", DATA), tmp_path / "part", expect_sha256=SHA)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert (failed.value.cause, failed.value.why) == ("disk_full", "a file may not grow any further here")
    assert (tmp_path / "part").read_bytes() == DATA[:MB]


class TestADiskThatIsUnmounted:
    """Its folder is there, and empty, which says nothing of what the disk holds."""

    @pytest.fixture
    def mounted(self, tmp_path: Path) -> Iterator[Path]:
        """A folder on which another is mounted that can be mounted again."""
        disk, real = tmp_path / "disk", tmp_path / "real"
        disk.mkdir()
        real.mkdir()
        _mount_again(disk)
        yield disk
        _libc.umount2(bytes(disk), 2)

    async def test_nothing_is_forgotten_and_everything_is_unknown_until_it_is_back(
        self, mounted: Path, start: Callable[..., Any], upstream: Upstream
    ):
        mirror = await start(mounted, allow_hosts=(upstream.netloc,), settle_s=0.05)
        wanted = {"from": upstream.put("/m.gguf", DATA)}
        await mirror.ask(**wanted)
        await mirror.until("present")
        assert _libc.umount2(bytes(mounted), 2) == 0

        answers = [
            await mirror.get("/m/1/m.gguf"),
            await mirror.ask(**wanted),
            await mirror.ask(version="2", **wanted),
            await mirror.call("GET", f"{mirror.api}/v1/health"),
            await mirror.call("GET", f"{mirror.api}/v1/models"),
            await mirror.call("GET", f"{mirror.api}/v1/models/m/1"),
            await mirror.call("DELETE", f"{mirror.api}/v1/models/m/1"),
        ]
        assert [a.status for a in answers] == [503] * 7
        assert answers[1].json["error"]["why"] == f"{mounted}: it is not the folder the mirror was started with"
        assert left_in(mounted) == []

        _mount_again(mounted)
        assert (await mirror.get("/m/1/m.gguf")).body == DATA
        assert (await mirror.show())["state"] == "present"


def _mount_again(disk: Path) -> None:
    if _libc.mount(bytes(disk.with_name("real")), bytes(disk), None, 4096, None) != 0:  # MS_BIND
        pytest.skip(f"mounting a folder: {os.strerror(ctypes.get_errno())}")


class TestTheMirror:
    """The same for whole versions."""

    @pytest.fixture
    async def small(self, start: Callable[..., Any], small_disk: Path, upstream: Upstream) -> Any:
        return await start(small_disk, allow_hosts=(upstream.netloc,), settle_s=0.05)

    async def test_what_cannot_fit_is_not_begun(self, small: Any, upstream: Upstream):
        wanted = {"path": "m.gguf", "url": upstream.put("/m.gguf", DATA), "bytes": len(DATA)}

        await small.ask(files=[wanted])

        failure = (await small.until("failed"))["failure"]
        assert (failure["cause"], failure["lasting"]) == ("disk_full", False)
        assert failure["message"].startswith(
            "m/1 was not fetched: disk full, 1.1 MB short: it needs 3.0 MB and 150.0 kB to spare"
        )
        assert upstream.asked == []

    async def test_a_size_that_only_upstream_knows_is_enough_to_see_it(self, small: Any, upstream: Upstream):
        await small.ask(**{"from": upstream.put("/m.gguf", DATA, Answer(bytes_per_s=500_000))})

        assert "it needs 3.0 MB" in (await small.until("failed"))["failure"]["message"]
        assert upstream.sent_bytes < len(DATA)

    async def test_where_nobody_knows_the_size_it_ends_when_the_disk_is_full(self, small: Any, upstream: Upstream):
        await small.ask(**{"from": upstream.put("/m.gguf", DATA, Answer(chunked=True))})

        failure = (await small.until("failed"))["failure"]
        assert failure["cause"] == "disk_full"
        assert "disk full after 2." in failure["message"]
        assert (await small.call("GET", f"{small.api}/v1/health")).json["disk_free_bytes"] < MB

    async def test_removing_a_version_makes_room_for_another(self, small: Any, upstream: Upstream):
        first, second = gguf(1_200_000, seed=1), gguf(1_200_000, seed=2)
        await small.ask(version="1", **{"from": upstream.put("/1.gguf", first)})
        await small.until("present", key="m/1")
        wanted = {"from": upstream.put("/2.gguf", second)}
        await small.ask(version="2", **wanted)
        await small.until("failed", key="m/2")

        await small.remove("m/1")
        while (await small.show("m/2"))["state"] != "present":
            await small.ask(version="2", retry=True, **wanted)
            await small.until("present", "failed", key="m/2")

        assert (await small.get("/m/2/2.gguf")).body == second

    async def test_a_full_disk_is_no_reason_not_to_serve(self, small_disk: Path, start: Callable[..., Any]):
        (small_disk / "m/1").mkdir(parents=True)
        (small_disk / "m/1/m.gguf").write_bytes(gguf(MB))
        for folder in ("_incoming", "_state", "_trash", "_quarantine"):
            (small_disk / folder).mkdir()
        with pytest.raises(OSError, match="No space"):
            (small_disk / "filler").write_bytes(bytes(3 * MB))

        mirror = await start(small_disk, settle_s=0.05)

        await mirror.until("present")
        assert (await mirror.get("/m/1/m.gguf")).body == gguf(MB)

    async def test_on_a_full_disk_a_fetch_is_refused_and_leaves_nothing_behind(
        self, small: Any, small_disk: Path, upstream: Upstream
    ):
        with pytest.raises(OSError, match="No space"):
            (small_disk / "filler").write_bytes(bytes(3 * MB))
        wanted = {"from": upstream.put("/m.gguf", gguf(MB)), "retry": True}

        answers = [await small.ask(**wanted) for _ in range(3)]

        assert [a.status for a in answers] == [507] * 3
        assert answers[0].json["error"]["cause"] == "disk_full"
        failure = (await small.show())["failure"]
        assert (failure["cause"], failure["lasting"]) == ("disk_full", False)
        assert left_in(small_disk / "_incoming") == []

        (small_disk / "filler").unlink()
        await small.ask(**wanted)
        await small.until("present")

    async def test_what_other_fetches_still_need_is_taken_into_account(self, small: Any, upstream: Upstream):
        wanted = [
            {
                "path": "m.gguf",
                "url": upstream.put(f"/{n}", DATA[:1_200_000], Answer(bytes_per_s=50_000)),
                "bytes": 1_200_000,
            }
            for n in (1, 2)
        ]
        await small.ask(version="1", files=[wanted[0]])
        await small.becomes(lambda h: h["state"] == "fetching", key="m/1")

        await small.ask(version="2", files=[wanted[1]])

        assert "for other fetches" in (await small.until("failed", key="m/2"))["failure"]["message"]
        assert (await small.show("m/1"))["state"] == "fetching"
