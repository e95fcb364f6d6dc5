"""The folder is the truth: what is copied in, what is damaged, what is not followed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.upstream import Upstream, gguf
from llmgw.errors import Refused
from llmgw.mirror.records import KeptFile, Record
from llmgw.mirror.store import Store
from llmgw.mirror.verifying import verify_one

DATA = gguf(1_000_000)
SHA = hashlib.sha256(DATA).hexdigest()


def put(root: Path, path: str, data: bytes = DATA) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def store(root: Path) -> Store:
    opened = Store(root, settle_s=0)
    opened.make_folders()
    opened.open()
    return opened


def opened(root: Path) -> Store:
    """The store that the next process would have."""
    store = Store(root)
    store.make_folders()
    store.open()
    return store


class TestByHand:
    """What people copy in is listed, hashed, and served."""

    async def test_it_is_found_and_hashed_while_the_mirror_runs(self, start: Callable[..., Any]):
        mirror = await start()
        put(mirror.root, "m/1/a/m.gguf")
        put(mirror.root, "m/1/config.json", b"{}")

        held = await mirror.until("present")

        assert held["origin"] == "hand"
        assert [(f["path"], f["bytes"]) for f in held["files"]] == [("a/m.gguf", len(DATA)), ("config.json", 2)]
        assert (await mirror.get("/m/1/a/m.gguf")).body == DATA

    async def test_until_its_sums_are_known_it_is_verifying_and_not_served(self, start: Callable[..., Any], root: Path):
        put(root, "m/1/m.gguf")
        mirror = await start(settle_s=60)

        assert (await mirror.show())["state"] == "verifying"
        assert (await mirror.get("/m/1/")).status == 503
        assert (await mirror.get("/m/1/m.gguf")).status == 503

    async def test_a_copy_under_way_is_not_taken_for_whole(self, start: Callable[..., Any], root: Path):
        mirror = await start(settle_s=0.4)
        with (put(root, "m/1/m.gguf", b"")).open("ab") as file:
            for at in range(0, len(DATA), 100_000):
                file.write(DATA[at : at + 100_000])
                file.flush()
                await asyncio.sleep(0.1)  # the pace of a copy
                assert ((await mirror.show()) or {"state": "unseen"})["state"] != "present"

        assert (await mirror.until("present"))["files"][0]["sha256"] == SHA

    @pytest.mark.parametrize("size", [1_000_000, 999_999])
    async def test_what_is_changed_by_hand_is_hashed_again(self, start: Callable[..., Any], root: Path, size: int):
        put(root, "m/1/m.gguf")
        mirror = await start()
        await mirror.until("present")
        other = gguf(size, seed=3)

        put(root, "m/1/m.gguf", other)

        sha = hashlib.sha256(other).hexdigest()
        await mirror.becomes(lambda h: h.get("files") and h["files"][0]["sha256"] == sha)

    async def test_sums_are_kept_across_a_restart(self, start: Callable[..., Any], root: Path):
        put(root, "m/1/m.gguf")
        first = await start()
        held = await first.until("present")

        version = opened(root).version("m/1")
        assert version is not None
        assert [f.sha256 for f in version.served.values()] == [f["sha256"] for f in held["files"]]

    def test_a_sum_found_while_somebody_wrote_is_not_taken(self, root: Path, store: Store):
        put(root, "m/1/m.gguf")
        store.look()
        put(root, "m/1/m.gguf", gguf(1_000_000, seed=3))

        assert verify_one(store, stop=lambda: False) is False

        assert [v.state for v in store.versions()] == ["verifying"]

    async def test_taken_away_by_hand_it_is_gone(self, start: Callable[..., Any], root: Path):
        put(root, "m/1/m.gguf")
        mirror = await start()
        await mirror.until("present")

        shutil.rmtree(root / "m")

        await mirror.becomes(lambda h: h is None)
        assert not (root / "_state/m").exists()

    async def test_asked_for_it_is_present_and_not_fetched(
        self, start: Callable[..., Any], root: Path, upstream: Upstream
    ):
        put(root, "m/1/m.gguf")
        mirror = await start(allow_hosts=(upstream.netloc,))
        await mirror.until("present")
        url = upstream.put("/m.gguf", DATA)

        assert (await mirror.ask(**{"from": url})).status == 200
        assert (await mirror.ask(**{"from": url, "sha256": SHA})).status == 200
        assert (await mirror.ask(**{"from": url, "sha256": "0" * 64})).status == 409
        assert (await mirror.ask(**{"from": upstream.put("/n.gguf", DATA)})).status == 409
        assert upstream.asked == []

    async def test_it_is_never_put_aside_for_a_fetch(self, start: Callable[..., Any], root: Path, upstream: Upstream):
        put(root, "m/1/pytorch_model.bin")
        mirror = await start(allow_hosts=(upstream.netloc,))
        await mirror.until("failed")

        answered = await mirror.ask(retry=True, **{"from": upstream.put("/m.gguf", DATA)})

        assert answered.status == 409
        assert answered.json["error"]["what"] == "m/1 was put here by hand and cannot be served"
        assert (root / "m/1/pytorch_model.bin").exists()


class TestNotFollowed:
    """Links, devices and names that are more than names: reported, and not served."""

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            pytest.param(lambda f, out: f.symlink_to(out), "is a symbolic link", id="a link to a file"),
            pytest.param(lambda f, out: f.symlink_to(out.parent), "is a symbolic link", id="a link to a folder"),
            pytest.param(lambda f, out: f.symlink_to("nowhere"), "is a symbolic link", id="a link to nothing"),
            pytest.param(lambda f, out: f.hardlink_to(out), "has 2 hard links", id="a second name"),
            pytest.param(lambda f, _: os.mkfifo(f), "is not a regular file", id="a pipe"),
            pytest.param(lambda f, _: _socket(f), "is not a regular file", id="a socket"),
            pytest.param(lambda f, _: os.mknod(f, 0o020644, os.makedev(1, 5)), "is not a regular file", id="a device"),
            pytest.param(lambda f, _: f.with_name(".x.gguf.Ab3").touch(), "begins with neither dot", id="half a copy"),
            pytest.param(lambda f, _: f.with_name("x y.gguf").touch(), "each part of its path", id="a space"),
            pytest.param(lambda f, _: f.with_name("\x1b[2J").touch(), "'\\x1b[2J'", id="a terminal's order"),
            pytest.param(lambda f, _: f.with_name("M.GGUF").write_bytes(DATA), "same where case", id="case alone"),
            pytest.param(lambda f, _: f.with_name("model.pt").touch(), "can run code", id="code by name"),
            pytest.param(
                lambda f, _: put(f.parent, "x.model", b"PK\x03\x04"), "is a zip archive", id="code by content"
            ),
            pytest.param(lambda f, _: put(f.parent, "a/b/c/d/e.txt"), "folders deep", id="too deep"),
        ],
    )
    async def test_one_of_them_keeps_a_version_from_being_served(
        self, start: Callable[..., Any], root: Path, tmp_path: Path, spoil: Callable[[Path, Path], object], said: str
    ):
        put(root, "m/1/m.gguf")
        spoil(root / "m/1/x.gguf", put(tmp_path, "out/secret"))
        mirror = await start()

        failure = (await mirror.until("failed"))["failure"]

        assert failure["cause"] == "refused"
        assert said in failure["message"]
        assert failure["message"].isascii()
        for path in ("/m/1/", "/m/1/m.gguf", "/m/1/x.gguf", "/m/1/x.gguf/secret"):
            assert (await mirror.get(path)).status == 404, path

    def test_folders_that_are_links_or_no_names_are_left_out(self, root: Path, tmp_path: Path, store: Store):
        put(tmp_path, "elsewhere/1/m.gguf")
        (root / "linked").symlink_to(tmp_path / "elsewhere")
        put(root, "m/1/m.gguf")
        (root / "m/2").symlink_to(tmp_path / "elsewhere/1")
        put(root, "Upper/1/m.gguf")
        put(root, "lost+found/1/m.gguf")
        put(root, "readme.txt")

        store.look()

        assert [v.record.key for v in store.versions()] == ["m/1"]

    def test_a_file_swapped_for_a_link_is_not_opened(self, root: Path, tmp_path: Path, store: Store):
        file = put(root, "m/1/m.gguf")
        store.look()
        version = store.version("m/1")
        assert version is not None
        kept = KeptFile("m.gguf", len(DATA), SHA, version.listing.files["m.gguf"])
        descriptor = store.open_file(version, kept)
        assert descriptor is not None
        os.close(descriptor)

        file.rename(tmp_path / "moved")
        file.symlink_to(tmp_path / "moved")

        assert store.open_file(version, kept) is None

    def test_nor_is_one_in_a_folder_swapped_for_a_link(self, root: Path, tmp_path: Path, store: Store):
        put(root, "m/1/a/m.gguf")
        store.look()
        version = store.version("m/1")
        assert version is not None

        # Moved with its folder, the file itself is as it was in every way.
        (root / "m/1/a").rename(tmp_path / "moved")
        (root / "m/1/a").symlink_to(tmp_path / "moved")

        assert store.open_file(version, KeptFile("a/m.gguf", 0, SHA, version.listing.files["a/m.gguf"])) is None

    def test_what_downloaders_leave_beside_weights_is_no_problem(self, root: Path, store: Store):
        for path in ("m.gguf", ".gitattributes", ".cache/huggingface/x.lock", ".git/config"):
            put(root, f"m/1/{path}")

        store.look()

        version = store.version("m/1")
        assert version is not None
        assert (list(version.listing.files), version.failure) == (["m.gguf"], None)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        os.chdir(path.parent)  # its name is longer than a socket's may be
        sock.bind(path.name)


class TestDamaged:
    """Case 17: what was published and is not any more, noticed and not served."""

    @pytest.fixture
    async def published(self, mirror: Any, upstream: Upstream) -> Any:
        await mirror.ask(**{"from": upstream.put("/m.gguf", DATA)})
        await mirror.until("present")
        return mirror

    @pytest.mark.parametrize(
        ("harm", "said"),
        [
            pytest.param(lambda f: os.truncate(f, 0), "m.gguf has 0 bytes, and 1000000 were published", id="cut"),
            pytest.param(lambda f: f.unlink(), "m.gguf is gone", id="gone"),
            pytest.param(lambda f: f.write_bytes(bytes(len(DATA))), "m.gguf has the sha256", id="other bytes"),
        ],
    )
    async def test_it_fails_and_is_fetched_again_when_that_is_asked_for(
        self, published: Any, upstream: Upstream, harm: Callable[[Path], object], said: str
    ):
        harm(put(published.root, "m/1/other.txt", b"x").with_name("m.gguf"))

        held = await published.becomes(lambda h: said in h.get("failure", {}).get("message", ""))
        assert (held["state"], held["failure"]["cause"], held["failure"]["lasting"]) == ("failed", "digest", False)
        assert (await published.get("/m/1/m.gguf")).status == 404

        request = {"from": upstream.base + "/m.gguf"}
        assert (await published.ask(**request)).status == 409
        assert (await published.ask(retry=True, **request)).status == 202
        await published.until("present")
        assert (await published.get("/m/1/m.gguf")).body == DATA
        assert len(list((published.root / "_quarantine").iterdir())) == 1

    async def test_a_restart_compares_sizes_with_the_record(self, published: Any):
        os.truncate(published.root / "m/1/m.gguf", 17)

        version = opened(published.root).version("m/1")

        assert version is not None
        assert version.failure is not None
        assert version.failure.message == "damaged: m.gguf has 17 bytes, and 1000000 were published"

    async def test_a_file_that_was_only_touched_is_hashed_again_and_stays(self, published: Any):
        os.utime(published.root / "m/1/m.gguf", (1, 1))

        await published.becomes(lambda h: h["state"] == "present")
        assert (await published.until("present"))["files"][0]["sha256"] == SHA

    async def test_what_is_added_later_is_no_part_of_it(self, published: Any):
        put(published.root, "m/1/extra.gguf")
        (published.root / "m/1/link").symlink_to("m.gguf")

        async def looked() -> bool:
            return (await published.get("/m/1/extra.gguf")).status == 404

        for _ in range(3):
            assert await looked()
        assert [f["path"] for f in (await published.until("present"))["files"]] == ["m.gguf"]


class TestPublishing:
    """GS7: of two that publish one wins, whole."""

    @staticmethod
    def tree(store: Store, n: int) -> Path:
        put(store.incoming, f"{n}/tree/m.gguf", gguf(1000, seed=n))
        return store.incoming / f"{n}/tree"

    @staticmethod
    def record(n: int) -> Record:
        sha = hashlib.sha256(gguf(1000, seed=n)).hexdigest()
        return Record("m", "1", "catalog", "", (KeptFile("m.gguf", 1000, sha, url="http://x"),))

    def test_two_writers_one_wins(self, root: Path):
        # Two stores on one folder: neither knows of the other, as on a shared filesystem.
        stores = [Store(root), Store(root)]
        for store in stores:
            store.make_folders()
            store.open()
        trees = [self.tree(store, n) for n, store in enumerate(stores)]
        start, failed = threading.Barrier(2), []

        def publish(n: int) -> None:
            start.wait()
            try:
                stores[n].publish(trees[n], self.record(n))
            except OSError:
                failed.append(n)

        threads = [threading.Thread(target=publish, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        (loser,) = failed
        assert (root / "m/1/m.gguf").read_bytes() == gguf(1000, seed=1 - loser)
        assert (trees[loser] / "m.gguf").read_bytes() == gguf(1000, seed=loser)

    def test_an_empty_folder_is_no_obstacle(self, root: Path, store: Store):
        (root / "m/1").mkdir(parents=True)

        store.publish(self.tree(store, 0), self.record(0))

        assert (root / "m/1/m.gguf").read_bytes() == gguf(1000)

    @pytest.mark.parametrize("there", ["m/1/somebodys.txt", "m/1", "m"])
    def test_what_is_there_is_left_alone(self, root: Path, store: Store, there: str):
        put(root, there, b"mine")

        with pytest.raises(OSError, match=r"."):
            store.publish(self.tree(store, 0), self.record(0))

        assert (root / there).read_bytes() == b"mine"
        assert all(not v.record.fetched for v in opened(root).versions())

    def test_nor_is_what_was_published_before(self, root: Path, store: Store):
        store.publish(self.tree(store, 0), self.record(0))

        with pytest.raises(FileExistsError):
            store.publish(self.tree(store, 1), self.record(1))

        (version,) = opened(root).versions()
        assert [(f.sha256, f.url) for f in version.served.values()] == [(self.record(0).files[0].sha256, "http://x")]

    def test_a_record_without_its_version_is_forgotten(self, root: Path, store: Store):
        store.publish(self.tree(store, 0), self.record(0))
        shutil.rmtree(root / "m/1")

        assert opened(root).versions() == []
        assert not (root / "_state/m").exists()

    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(b"{", id="not JSON"),
            pytest.param(b"[" * 200_000, id="nested without end"),
            pytest.param(b'{"name": "../../x", "version": "1"}', id="of a version elsewhere"),
        ],
    )
    def test_a_record_that_cannot_be_read_costs_a_hashing_and_no_version(self, root: Path, store: Store, data: bytes):
        store.publish(self.tree(store, 0), self.record(0))
        (root / "_state/m/1.json").write_bytes(data)

        assert [(v.record.key, v.state) for v in opened(root).versions()] == [("m/1", "verifying")]


class TestTheDisk:
    """A disk that is not there says nothing of what it holds."""

    def test_an_unmounted_root_removes_nothing(self, root: Path, store: Store, tmp_path: Path):
        store.publish(TestPublishing.tree(store, 0), TestPublishing.record(0))
        root.rename(tmp_path / "away")
        root.mkdir()

        with pytest.raises(OSError, match="not the folder the mirror was started with"):
            store.look()

        assert [v.record.key for v in store.versions()] == ["m/1"]

    @pytest.mark.parametrize(
        ("where", "said"),
        [("missing/below", "No such file or directory"), ("file", "File exists"), ("file/below", "Not a directory")],
    )
    def test_a_root_that_cannot_be_used_is_said(self, tmp_path: Path, where: str, said: str):
        (tmp_path / "file").touch()

        with pytest.raises(Refused) as refused:
            Store(tmp_path / where).make_folders()

        assert refused.value.what == f"the mirror cannot use {tmp_path / where}"
        assert said in refused.value.why

    def test_old_quarantine_and_trash_are_deleted(self, store: Store, root: Path):
        old, new = put(root, "_quarantine/old/x").parent, put(root, "_quarantine/new/x").parent
        trash = put(root, "_trash/gone/x").parent
        os.utime(old, (1, 1))

        store.sweep()

        assert (old.exists(), new.exists(), trash.exists()) == (False, True, False)
