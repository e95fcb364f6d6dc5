"""Weights on a node: fetched once, believed only by their sums, removed only when told to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fakes.byte_port import BYTES, order
from fakes.waiting import until
from llmgw_agent.dossier import Fault
from llmgw_agent.fetch.line import Connections
from llmgw_agent.in_place import allowed
from llmgw_agent.probe import disk
from llmgw_agent.protocol import VersionOrder, WeightFile
from llmgw_agent.weights import Weights


@pytest.fixture
async def weights(tmp_path):
    """Makes a node's weights; `in_use` is what its engines run on."""
    made: list[Weights] = []

    def make(*in_use: str) -> Weights:
        made.append(Weights(tmp_path / "weights", pool=Connections(), in_use=lambda: in_use))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def test_a_version_is_fetched_whole_and_marked(weights, mirror):
    node = weights()

    folder = await node.folder(order(mirror, **{"a.gguf": BYTES, "tokenizer__t.json": b"{}"}))

    assert (folder / "a.gguf").read_bytes() == BYTES
    assert (folder / "tokenizer/t.json").read_bytes() == b"{}"
    assert (folder / ".llmgw-complete").exists()
    (held,) = node.report()
    assert (held.key, held.state, held.bytes) == ("coder/v1", "held", len(BYTES) + 2)


async def test_replicas_of_one_version_share_one_fetch(weights, mirror):
    node, wanted = weights(), order(mirror)

    folders = await asyncio.gather(*(node.folder(wanted) for _ in range(3)))

    assert len(set(folders)) == 1
    assert len(mirror.asked) == 1


async def test_what_is_held_is_not_asked_for_again_also_after_a_restart(weights, mirror):
    await weights().folder(order(mirror))
    node = weights()

    await node.folder(order(mirror))

    assert len(mirror.asked) == 1
    assert [v.state for v in node.report()] == ["held"]


async def test_a_fetch_that_was_cut_goes_on_where_it_was(weights, mirror):
    mirror.gate.clear()
    first, wanted = weights(), order(mirror)
    first.obey([wanted])
    await until(lambda: first.report()[0].bytes >= len(BYTES) // 2)
    assert (first.report()[0].state, first.progress("coder/v1").total_bytes) == ("arriving", len(BYTES))
    await first.close()
    mirror.gate.set()

    folder = await weights().folder(wanted)

    assert (folder / "m.gguf").read_bytes() == BYTES
    assert mirror.asked[-1][1].startswith("bytes=")


async def test_an_order_that_changes_under_way_ends_the_fetch_of_the_old_files(weights, mirror):
    mirror.gate.clear()
    node = weights()
    node.obey([order(mirror)])
    await until(lambda: node.report()[0].bytes > 0)

    changed = order(mirror, **{"m.gguf": b"GGUF another"})
    bringing = asyncio.ensure_future(node.folder(changed))
    await asyncio.sleep(0)
    mirror.gate.set()

    assert ((await bringing) / "m.gguf").read_bytes() == b"GGUF another"
    assert list((node.root / ".incoming").iterdir()) == []


async def test_bytes_that_differ_from_the_orders_are_refused_whatever_the_mirror_says(weights, mirror):
    wanted = order(mirror)
    mirror.files["/coder/v1/m.gguf"] = BYTES[:-1] + b"x"
    node = weights()

    with pytest.raises(Fault, match="sha256") as refused:
        await node.folder(wanted)

    assert refused.value.cause == "weights"
    (failed,) = node.report()
    assert failed.state == "failed"
    assert "sha256" in failed.why
    assert not (node.root / "coder/v1").exists()


async def test_the_next_source_is_asked_when_the_first_has_nothing(weights, mirror):
    wanted = order(mirror)
    sources = (f"{mirror.base}nothing/here/", *wanted.sources)

    await weights().folder(VersionOrder("coder", "v1", "hold", wanted.files, sources))

    assert [path for path, _ in mirror.asked] == ["/nothing/here/m.gguf", "/coder/v1/m.gguf"]


async def test_a_redirect_away_from_the_mirror_is_not_followed(weights, mirror):
    wanted = order(mirror)
    mirror.redirect = "http://127.0.0.2:1/coder/v1/m.gguf"

    with pytest.raises(Fault, match="leads away from the mirror"):
        await weights().folder(wanted)


@pytest.mark.parametrize(
    "path", ["../x.gguf", "/etc/passwd", "a/../../x", ".hidden", "a\\b", "a/b/c/d/e", "x\n", "", "a//b", "%2e%2e/x"]
)
async def test_a_file_name_that_leaves_its_folder_is_refused(weights, mirror, path, tmp_path):
    files = (WeightFile(path, 1, "0" * 64),)

    with pytest.raises(Fault, match="no name for a file"):
        await weights().folder(VersionOrder("coder", "v1", "hold", files, (mirror.base,)))

    assert mirror.asked == []


async def test_two_files_that_are_one_on_some_disks_are_refused(weights, mirror):
    with pytest.raises(Fault, match="one name"):
        await weights().folder(order(mirror, **{"A.gguf": b"GGUF1", "a.gguf": b"GGUF2"}))


async def test_a_version_copied_by_hand_is_checked_and_used(weights, mirror, tmp_path):
    wanted = order(mirror)
    by_hand = tmp_path / "weights/coder/v1"
    by_hand.mkdir(parents=True)
    (by_hand / "m.gguf").write_bytes(BYTES)
    node = weights()
    assert node.report() == ()

    await node.folder(wanted)

    assert mirror.asked == []
    assert [v.state for v in node.report()] == ["held"]


async def test_a_file_that_lost_its_end_in_a_power_cut_is_completed(weights, mirror):
    folder = await weights().folder(order(mirror))
    (folder / "m.gguf").write_bytes(BYTES[:1000])
    node = weights()
    assert node.report() == ()

    again = await node.folder(order(mirror))

    assert (again / "m.gguf").read_bytes() == BYTES
    assert mirror.asked[-1][1] == "bytes=1000-"


async def test_other_content_under_a_version_that_is_in_use_is_refused(weights, mirror):
    folder = await weights().folder(order(mirror))
    node = weights("coder/v1")

    with pytest.raises(Fault, match="new version"):
        await node.folder(order(mirror, **{"m.gguf": b"GGUF another"}))

    assert (folder / "m.gguf").read_bytes() == BYTES


async def test_only_may_remove_removes_and_never_what_is_in_use(weights, mirror):
    node = weights()
    folder = await node.folder(order(mirror))

    node.obey([])
    assert folder.exists()
    weights("coder/v1").obey([order(mirror, action="may_remove")])
    assert folder.exists()
    node.obey([order(mirror, action="may_remove")])

    assert not folder.exists()
    assert node.report() == ()


async def test_a_prefetch_brings_it_before_anybody_asks(weights, mirror):
    node = weights()

    node.obey([order(mirror, action="prefetch")])

    await until(lambda: [v.state for v in node.report()] == ["held"])


async def test_a_disk_that_is_too_small_says_how_much_is_missing(weights, mirror):
    huge = WeightFile("m.gguf", 10**17, "0" * 64)

    with pytest.raises(Fault, match=r"\d+\.\d GB short"):
        await weights().folder(VersionOrder("coder", "v1", "hold", (huge,), (mirror.base,)))

    assert mirror.asked == []


async def test_an_order_without_files_uses_what_is_held_and_fetches_nothing(weights, mirror):
    with pytest.raises(Fault, match="name no files"):
        await weights().folder(VersionOrder("coder", "v1", "hold"))
    node = weights()
    await node.folder(order(mirror))

    assert await node.folder(VersionOrder("coder", "v1", "hold")) == node.root / "coder/v1"


async def test_gs9_a_source_that_is_gone_fails_in_seconds_with_a_cause(weights, mirror):
    wanted = order(mirror)
    nowhere = VersionOrder("coder", "v1", "hold", wanted.files, ("http://127.0.0.1:1/coder/v1/",))

    async with asyncio.timeout(15):
        with pytest.raises(Fault, match="no connection"):
            await weights().folder(nowhere)


def test_a_path_is_read_where_the_owner_allows_it(tmp_path):
    models, secret = tmp_path / "models", tmp_path / "secret"
    for folder in (models, secret):
        folder.mkdir()
        (folder / "m.gguf").write_bytes(b"GGUF")
    (models / "link.gguf").symlink_to(secret / "m.gguf")
    allow = (f"path:{models}", "env")

    assert allowed(f"{models}/m.gguf", allow) == models / "m.gguf"
    assert allowed(str(models), allow) == models
    for path in (f"{secret}/m.gguf", f"{models}/../secret/m.gguf", f"{models}/link.gguf", f"{models}x", "m.gguf"):
        with pytest.raises(Fault, match="allow file allows"):
            allowed(path, allow)
    with pytest.raises(Fault, match="nothing at that path"):
        allowed(f"{models}/none.gguf", allow)
    with pytest.raises(Fault, match="allows no path"):
        allowed(str(Path(models)), ())


async def test_a_fetch_that_was_large_enough_says_how_fast_it_was(weights, mirror):
    node, large = weights(), bytes(disk.LEAST_BYTES)
    await node.folder(order(mirror, **{"small.gguf": BYTES}))
    assert node.fetched_gbs is None

    await node.folder(order(mirror, name="large", **{"m.gguf": large}))

    assert node.fetched_gbs is not None
    assert node.largest() == node.root / "large/v1/m.gguf"
