"""From a request to a published version, and every way that may end otherwise."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.upstream import Answer, Upstream, gguf

DATA = gguf(2_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
SLOW = Answer(bytes_per_s=100_000)


def stat_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mode & 0o777, found.st_nlink


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_version_is_fetched_checked_and_published_whole(mirror: Any, upstream: Upstream):
    url = upstream.put("/m.gguf", DATA)

    answered = await mirror.ask(**{"from": url, "sha256": SHA})

    assert answered.status == 202
    assert await mirror.until("present") == {
        "name": "m",
        "version": "1",
        "state": "present",
        "from": url,
        "files": [{"path": "m.gguf", "bytes": len(DATA), "sha256": SHA}],
        "total_bytes": len(DATA),
        "done_bytes": len(DATA),
    }
    assert (mirror.root / "m/1/m.gguf").read_bytes() == DATA
    assert stat_of(mirror.root / "m/1/m.gguf") == (0o444, 1)
    assert list((mirror.root / "_incoming").iterdir()) == []
    assert [p.name for p in (mirror.root / "_state/m").iterdir()] == ["1.json"]


async def test_a_version_of_several_files_keeps_their_folders(mirror: Any, upstream: Upstream):
    files = {f"{n}/part-{n}.gguf": gguf(1000 + n, seed=n) for n in range(4)}
    wanted = [{"path": path, "url": upstream.put(f"/{path}", data)} for path, data in files.items()]

    await mirror.ask(files=wanted)

    held = await mirror.until("present")
    assert held["files"] == [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(files.items())
    ]
    assert {path: (mirror.root / "m/1" / path).read_bytes() for path in files} == files


async def test_a_file_of_this_machine_is_a_source_too(mirror: Any, tmp_path: Path):
    (tmp_path / "src/m.gguf").write_bytes(DATA)

    await mirror.ask(**{"from": (tmp_path / "src/m.gguf").as_uri(), "sha256": SHA})

    assert (await mirror.until("present"))["files"][0]["sha256"] == SHA


async def test_nothing_unpublished_is_reachable(mirror: Any, upstream: Upstream):
    # Case 20: a mirror that serves what it has so far.
    await mirror.ask(**{"from": upstream.put("/m.gguf", DATA, SLOW)})
    await mirror.becomes(lambda h: h.get("done_bytes"))
    (journal,) = (mirror.root / "_incoming").iterdir()

    for path in (
        "/m/1/",
        "/m/1/m.gguf",
        f"/_incoming/{journal.name}/",
        f"/_incoming/{journal.name}/tree/m.gguf",
        "/_state/m/",
    ):
        assert (await mirror.get(path)).status == 404, path


async def test_progress_is_live(mirror: Any, upstream: Upstream):
    url = upstream.put("/m.gguf", DATA, Answer(bytes_per_s=400_000))

    await mirror.ask(**{"from": url})

    held = await mirror.becomes(lambda h: h.get("rate_bytes_s"))
    assert held["state"] == "fetching"
    assert held["total_bytes"] == len(DATA)
    assert 0 < held["done_bytes"] < len(DATA)
    assert 100_000 < held["rate_bytes_s"] < 800_000


async def test_two_versions_at_a_time_and_the_others_wait(mirror: Any, upstream: Upstream):
    url = upstream.put("/m.gguf", DATA, SLOW)
    for version in "abc":
        await mirror.ask(version=version, **{"from": url})
    for version in "ab":
        await mirror.until("fetching", key=f"m/{version}")

    assert [h["state"] for h in await mirror.models()] == ["fetching", "fetching", "queued"]

    await mirror.remove("m/a", cancel="1")
    await mirror.until("fetching", key="m/c")


class TestAskingTwice:
    """The same joins, other content does not."""

    async def test_the_same_joins_the_fetch_under_way(self, mirror: Any, upstream: Upstream):
        # Case 9: two pulls of one file write into each other.
        url = upstream.put("/m.gguf", DATA, Answer(bytes_per_s=4_000_000))
        for _ in range(5):
            assert (await mirror.ask(**{"from": url, "sha256": SHA})).status == 202

        await mirror.until("present")
        assert len(upstream.asked) == 1

    async def test_what_is_present_is_answered_at_once(self, mirror: Any, upstream: Upstream):
        url = upstream.put("/m.gguf", DATA)
        await mirror.ask(**{"from": url})
        await mirror.until("present")

        for again in ({"from": url}, {"from": url, "sha256": SHA}):
            answered = await mirror.ask(**again)
            assert (answered.status, answered.json["state"]) == (200, "present")
        assert len(upstream.asked) == 1

    async def test_the_same_sum_from_elsewhere_is_the_same(self, mirror: Any, upstream: Upstream):
        await mirror.ask(**{"from": upstream.put("/m.gguf", DATA)})
        await mirror.until("present")
        upstream.put("/moved/m.gguf", DATA)

        assert (await mirror.ask(**{"from": upstream.base + "/moved/m.gguf", "sha256": SHA})).status == 200
        assert len(upstream.asked) == 1

    @pytest.mark.parametrize("there", ["fetching", "present"])
    async def test_other_content_under_one_name_is_refused(self, mirror: Any, upstream: Upstream, there: str):
        speed = Answer(bytes_per_s=100_000) if there == "fetching" else Answer()
        await mirror.ask(**{"from": upstream.put("/m.gguf", DATA, speed)})
        await mirror.until(there)
        upstream.put("/other/m.gguf", gguf(10))

        for other in ({"from": upstream.base + "/other/m.gguf"}, {"from": upstream.base + "/n.gguf", "sha256": SHA}):
            answered = await mirror.ask(**other)

            assert answered.status == 409
            assert answered.json["error"]["do"] == "give the new content a new version"
            assert answered.json["error"]["cause"] == "conflict"


class TestFailed:
    """A failure stays, with its reason, until it is asked for again or removed."""

    @pytest.mark.parametrize(
        ("answer", "sha256", "cause", "lasting", "said"),
        [
            (Answer(status=404), None, "not_found", True, "it answers 404 Not Found"),
            (Answer(status=503), None, "upstream", False, "it answers 503 Service Unavailable"),
            (Answer(page=b"x" * 635), SHA, "upstream", False, "it sends 635 bytes of text/html in place of the file"),
            (Answer(flipped=100), SHA, "digest", True, f"where {SHA} was expected"),
            (Answer(flipped=0), None, "not_weights", True, "m.gguf is not a GGUF file: it begins with b'\\xb8GUF'"),
        ],
    )
    async def test_its_class_and_sentence(
        self, mirror: Any, upstream: Upstream, answer: Answer, sha256: str | None, cause: str, lasting: bool, said: str
    ):
        upstream.put("/m.gguf", DATA, answer)

        await mirror.ask(**{"from": upstream.base + "/m.gguf", "sha256": sha256})

        failure = (await mirror.until("failed"))["failure"]
        assert (failure["cause"], failure.get("lasting", True)) == (cause, lasting)
        assert said in failure["message"]
        assert (await mirror.get("/m/1/")).status == 404

    async def test_weights_that_are_none_are_refused_before_they_are_fetched(self, mirror: Any, upstream: Upstream):
        # A file that would take minutes, refused for its first bytes.
        upstream.put("/m.gguf", b"<html>" + bytes(2_000_000), Answer(bytes_per_s=20_000))

        await mirror.ask(**{"from": upstream.base + "/m.gguf"})

        assert (await mirror.until("failed"))["failure"]["cause"] == "not_weights"

    async def test_it_is_not_tried_again_by_itself_nor_by_asking(self, mirror: Any, upstream: Upstream):
        request = {"from": upstream.put("/m.gguf", DATA, Answer(status=404))}
        await mirror.ask(**request)
        await mirror.until("failed")

        answered = await mirror.ask(**request)

        assert answered.status == 409
        assert answered.json["error"]["what"] == "m/1 has failed before"
        assert len(upstream.asked) == 1

    async def test_with_retry_it_is(self, mirror: Any, upstream: Upstream):
        request = {"from": upstream.put("/m.gguf", DATA, Answer(status=404), Answer())}
        await mirror.ask(**request)
        await mirror.until("failed")

        assert (await mirror.ask(retry=True, **request)).status == 202
        await mirror.until("present")

    async def test_a_retry_goes_on_from_what_came(self, mirror: Any, upstream: Upstream):
        request = {
            "from": upstream.put("/m.gguf", DATA, Answer(cut_after=1_500_000), Answer(status=403)),
            "sha256": SHA,
        }
        await mirror.ask(**request)
        await mirror.until("failed")
        upstream.put("/m.gguf", DATA)

        await mirror.ask(retry=True, **request)

        await mirror.until("present")
        assert upstream.ranges() == [None, "bytes=1500000-", "bytes=1500000-"]

    async def test_other_content_takes_the_place_of_a_failed_one(self, mirror: Any, upstream: Upstream):
        # A commit has corrected the URL: nobody wants the old one any more.
        await mirror.ask(**{"from": upstream.base + "/typo.gguf"})
        await mirror.until("failed")

        assert (await mirror.ask(**{"from": upstream.put("/m.gguf", DATA)})).status == 202
        await mirror.until("present")
        assert len(list((mirror.root / "_incoming").iterdir())) == 0

    async def test_it_stays_across_a_restart(self, start: Callable[..., Any], upstream: Upstream, tmp_path: Path):
        request = {"from": upstream.put("/m.gguf", DATA, Answer(status=404))}
        first = await start(tmp_path / "first", allow_hosts=(upstream.netloc,))
        await first.ask(**request)
        before = await first.until("failed")
        # What a process leaves is its folder: another takes it up.
        (tmp_path / "second").mkdir()
        (tmp_path / "first/_incoming").rename(tmp_path / "second/_incoming")

        second = await start(tmp_path / "second", allow_hosts=(upstream.netloc,))

        assert await second.show() == before
        assert len(upstream.asked) == 1

    async def test_removed_it_is_gone_with_its_parts(self, mirror: Any, upstream: Upstream):
        await mirror.ask(**{"from": upstream.put("/m.gguf", DATA, Answer(flipped=100)), "sha256": SHA})
        await mirror.until("failed")

        assert await mirror.remove() == 204

        assert await mirror.show() is None
        assert list((mirror.root / "_incoming").iterdir()) == []


class TestRemoving:
    """Gone at once for whoever asks; its bytes are freed behind."""

    async def test_a_version_is_gone_from_both_ports(self, mirror: Any, upstream: Upstream):
        await mirror.ask(**{"from": upstream.put("/m.gguf", DATA)})
        await mirror.until("present")

        assert await mirror.remove() == 204

        assert await mirror.models() == []
        assert (await mirror.get("/m/1/m.gguf")).status == 404
        assert (await mirror.get("/m/1/")).status == 404
        assert not (mirror.root / "m").exists()
        assert await mirror.remove() == 404

    async def test_asked_for_again_it_is_fetched_again(self, mirror: Any, upstream: Upstream):
        request = {"from": upstream.put("/m.gguf", DATA)}
        for _ in range(2):
            await mirror.ask(**request)
            await mirror.until("present")
            await mirror.remove()

        assert len(upstream.asked) == 2

    async def test_a_fetch_is_not_ended_by_accident(self, mirror: Any, upstream: Upstream):
        await mirror.ask(**{"from": upstream.put("/m.gguf", DATA, SLOW)})
        await mirror.becomes(lambda h: h.get("done_bytes"))

        assert await mirror.remove() == 409
        assert (await mirror.show())["state"] == "fetching"

    async def test_with_cancel_it_is_and_the_name_is_free_at_once(self, mirror: Any, upstream: Upstream):
        await mirror.ask(**{"from": upstream.put("/m.gguf", DATA, SLOW)})
        await mirror.becomes(lambda h: h.get("done_bytes"))
        began = time.monotonic()

        assert await mirror.remove(cancel="1") == 204
        assert await mirror.show() is None
        assert (await mirror.ask(**{"from": upstream.put("/n.gguf", DATA)})).status == 202
        await mirror.until("present")

        assert time.monotonic() - began < 20
        assert [f["path"] for f in (await mirror.show())["files"]] == ["n.gguf"]
        assert names_in(mirror.root / "m/1") == ["n.gguf"]


class TestSources:
    """Where it may not read from is said before anything is done, and again at every redirect."""

    async def test_a_redirect_to_another_host_is_refused(self, mirror: Any, upstream: Upstream):
        with Upstream("127.0.0.2") as elsewhere:
            elsewhere.put("/m.gguf", DATA)
            upstream.put("/m.gguf", b"", Answer(status=302, headers={"Location": elsewhere.base + "/m.gguf"}))

            await mirror.ask(**{"from": upstream.base + "/m.gguf"})

            failure = (await mirror.until("failed"))["failure"]
            assert failure["cause"] == "refused"
            assert f"127.0.0.2:{elsewhere.netloc.rpartition(':')[2]} is not among the hosts" in failure["message"]
            assert elsewhere.asked == []

    async def test_a_link_that_leads_out_of_the_allowed_folder_is_refused(self, mirror: Any, tmp_path: Path):
        (tmp_path / "secret.gguf").write_bytes(DATA)
        (tmp_path / "src/m.gguf").symlink_to(tmp_path / "secret.gguf")

        answered = await mirror.ask(**{"from": (tmp_path / "src/m.gguf").as_uri()})

        assert answered.status == 422
        assert "it is not below" in answered.json["error"]["why"]

    async def test_nothing_secret_of_a_url_is_shown(self, mirror: Any, upstream: Upstream):
        upstream.put("/m.gguf", DATA, Answer(status=403))

        await mirror.ask(**{"from": upstream.base + "/m.gguf?X-Signature=s3cret"})

        held = await mirror.until("failed")
        assert "s3cret" not in str(held)
        assert upstream.asked[0].path == "/m.gguf?X-Signature=s3cret"


async def test_what_somebody_puts_there_meanwhile_is_not_replaced(mirror: Any, upstream: Upstream):
    await mirror.ask(**{"from": upstream.put("/m.gguf", DATA, Answer(bytes_per_s=4_000_000))})
    (mirror.root / "m/1").mkdir(parents=True)
    (mirror.root / "m/1/by-hand.gguf").write_bytes(gguf(100))

    await mirror.becomes(lambda h: h["state"] == "present")

    assert [f["path"] for f in (await mirror.show())["files"]] == ["by-hand.gguf"]
    assert names_in(mirror.root / "m/1") == ["by-hand.gguf"]
