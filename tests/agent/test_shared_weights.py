"""A folder of weights that agents of several nodes share, what is fetched ahead, and what goes to make room."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections import namedtuple
from dataclasses import replace

import pytest

from fakes.agents import Agents
from fakes.byte_port import BYTES, order
from fakes.waiting import until
from llmgw_agent import folder_id
from llmgw_agent import weights as weights_module
from llmgw_agent.fetch.line import Connections
from llmgw_agent.protocol import Phase, VersionOrder
from llmgw_agent.weights import Weights


@pytest.fixture
async def sharing(tmp_path):
    """Makes agents' weights in one folder."""
    made: list[Weights] = []

    def make(writer: str = "a") -> Weights:
        made.append(Weights(tmp_path / "weights", pool=Connections(), in_use=tuple, writer=writer))
        return made[-1]

    yield make
    for one in made:
        await one.close()


def states(weights: Weights) -> list[tuple[str, str]]:
    return [(v.key, v.state) for v in weights.report()]


class TestOneFolder:
    async def test_two_that_write_one_version_at_once_leave_it_whole_and_both_have_it(self, sharing, mirror):
        """(GS7) Of two writers one wins, by one rename."""
        mirror.gate.clear()
        one, other, wanted = sharing("a"), sharing("b"), order(mirror)
        both = [asyncio.create_task(w.folder(wanted)) for w in (one, other)]
        await until(lambda: len(mirror.asked) == 2)
        mirror.gate.set()

        folders = await asyncio.gather(*both)

        assert folders[0] == folders[1]
        assert (folders[0] / "m.gguf").read_bytes() == BYTES
        assert states(one) == states(other) == [("coder/v1", "held")]
        assert list((one.root / ".incoming").iterdir()) == []

    async def test_what_another_agent_brought_is_seen_and_not_fetched_again(self, sharing, mirror):
        one, other = sharing("a"), sharing("b")
        await one.folder(order(mirror))

        assert states(other) == []
        assert await other.look_again()
        assert states(other) == [("coder/v1", "held")]
        assert not await other.look_again()
        assert len(mirror.asked) == 1

    async def test_a_folder_that_is_another_one_says_nothing_of_what_is_held(self, sharing, mirror):
        # Most likely its disk was unmounted, and the empty folder below is seen.
        one = sharing()
        await one.folder(order(mirror))
        one.root.rename(one.root.with_name("elsewhere"))
        one.root.mkdir()

        assert not await one.look_again()
        assert states(one) == [("coder/v1", "held")]

    async def test_what_one_removes_is_gone_for_the_others(self, sharing, mirror):
        one, other = sharing("a"), sharing("b")
        await one.folder(order(mirror))
        await other.look_again()

        one.obey([VersionOrder("coder", "v1", "may_remove")])
        other.obey([VersionOrder("coder", "v1", "may_remove")])

        assert states(one) == states(other) == []

    async def test_two_agents_start_on_what_one_of_them_fetched(self, agents, control, mirror):
        """(GS7) Two real agents, each with its control's orders, on one folder."""
        settings = agents.settings
        second = settings.state.with_name("second")
        second.mkdir()
        (settings.state / "weights").mkdir()
        (second / "weights").symlink_to(settings.state / "weights")
        other = Agents(replace(settings, node="n2", state=second), agents.engines)
        mirror.gate.clear()
        wanted = order(mirror, name="m", version="1")
        control.order(agents.order(version="m/1"), versions=(wanted,))
        try:
            await agents.start()
            await other.start()
            await until(lambda: len(mirror.asked) == 2, said="both fetch")
            mirror.gate.set()
            for node in (agents.node, other.node):
                await until(lambda n=node: [r.phase for r in n.report().replicas] == [Phase.READY], within_s=30)
                assert states(node.weights) == [("m/1", "held")]
            ids = {n.report().inventory.weights_id for n in (agents.node, other.node)}
            assert len(ids) == 1
            assert "" not in ids
        finally:
            await other.node.end_engines()
            await other.stop()


class TestTheFoldersName:
    def test_it_is_the_same_for_all_who_look_and_another_for_another_folder(self, tmp_path):
        one, other = tmp_path / "one", tmp_path / "other"
        for folder in (one, other):
            folder.mkdir()
            assert folder_id.of(folder) == ""
            folder_id.mark(folder)
            folder_id.mark(folder)

        assert folder_id.of(one) == folder_id.of(one) != folder_id.of(other)
        assert folder_id.of(tmp_path / "none") == ""

    def test_two_names_that_were_given_at_once_come_to_one(self, tmp_path):
        for name in ("b", "a"):
            (tmp_path / f"{folder_id.PREFIX}{name}").touch()
        both = folder_id.of(tmp_path)
        (tmp_path / f"{folder_id.PREFIX}b").unlink()

        assert folder_id.of(tmp_path) == both

    def test_a_copy_of_a_machines_own_disk_is_another_folder_and_a_networks_is_the_same(self, tmp_path, monkeypatch):
        folder_id.mark(tmp_path)
        mine, mounts = folder_id.of(tmp_path), tmp_path / "mountinfo"
        device = tmp_path.stat().st_dev
        number = f"{device >> 8 & 0xFFF}:{device & 0xFF}"
        mounts.write_text(f"22 1 0:1 / /proc rw - proc proc rw\n36 1 {number} / /mnt rw shared:1 - nfs4 nas:/m rw\n")
        monkeypatch.setattr(folder_id, "MOUNTS", mounts)
        named = next(p.name for p in tmp_path.iterdir() if p.name.startswith(folder_id.PREFIX))

        assert folder_id.of(tmp_path) == hashlib.sha256(f"{named}\0".encode()).hexdigest()[:16] != mine


class TestAhead:
    """What nothing needs yet is fetched when the line is free."""

    async def test_it_is_fetched_one_after_the_other(self, sharing, mirror):
        node = sharing()
        orders = [order(mirror, name=n, action="prefetch") for n in ("a", "b")]
        mirror.gate.clear()
        node.obey(orders)
        node.obey(orders)
        await until(lambda: mirror.asked)
        assert states(node) == [("a/v1", "arriving")]

        mirror.gate.set()
        await until(lambda: node.obey(orders) or states(node) == [("a/v1", "held"), ("b/v1", "held")])

    async def test_it_gives_way_to_what_is_to_be_here_and_goes_on_from_what_it_had(self, sharing, mirror):
        node = sharing()
        ahead, needed = order(mirror, name="a", action="prefetch"), order(mirror, name="b")
        mirror.gate.clear()
        node.obey([ahead])
        await until(lambda: any(v.bytes for v in node.report()))

        node.obey([ahead, needed])
        await until(lambda: node.obey([ahead, needed]) or states(node) == [("b/v1", "arriving")])
        mirror.gate.set()
        await until(lambda: node.obey([ahead, needed]) or states(node) == [("a/v1", "held"), ("b/v1", "held")])

        assert any(path == "/a/v1/m.gguf" and range_ for path, range_ in mirror.asked)

    async def test_it_ends_when_it_is_ordered_no_more_and_has_not_failed(self, sharing, mirror):
        node = sharing()
        mirror.gate.clear()
        node.obey([order(mirror, action="prefetch")])
        await until(lambda: mirror.asked)

        node.obey([])

        await until(lambda: states(node) == [])

    async def test_a_start_makes_a_needed_one_of_it(self, sharing, mirror):
        node = sharing()
        mirror.gate.clear()
        node.obey([order(mirror, action="prefetch")])
        await until(lambda: any(v.bytes for v in node.report()))
        held = asyncio.create_task(node.folder(order(mirror)))
        await asyncio.sleep(0)
        mirror.gate.set()

        assert (await held / "m.gguf").read_bytes() == BYTES


class TestRoom:
    """What is spare goes when room is needed, the first first and no more than that."""

    @pytest.fixture
    def disk(self, tmp_path, monkeypatch):
        """A disk of room for two and a half versions."""
        usage = namedtuple("usage", "total used free")  # noqa: PYI024

        def of(_: object) -> tuple[int, int, int]:
            used = sum(p.stat().st_size for p in (tmp_path / "weights").rglob("*.gguf"))
            return usage(0, used, len(BYTES) * 5 // 2 - used)

        monkeypatch.setattr(weights_module.shutil, "disk_usage", of)
        assert shutil.disk_usage is of

    @pytest.mark.usefixtures("disk")
    async def test_as_many_go_as_are_needed(self, sharing, mirror):
        node = sharing()
        for name in ("old", "older"):
            await node.folder(order(mirror, name=name))
        spare = [VersionOrder(n, "v1", "spare") for n in ("older", "old")]
        node.obey(spare)
        assert states(node) == [("old/v1", "held"), ("older/v1", "held")], "there is room"

        node.obey([order(mirror, name="new"), *spare])

        await until(lambda: states(node) == [("new/v1", "held"), ("old/v1", "held")])

    @pytest.mark.usefixtures("disk")
    async def test_nothing_goes_for_what_is_fetched_ahead(self, sharing, mirror):
        node = sharing()
        for name in ("old", "older"):
            await node.folder(order(mirror, name=name))

        node.obey([order(mirror, name="new", action="prefetch"), VersionOrder("old", "v1", "spare")])

        await until(lambda: ("new/v1", "failed") in states(node))
        assert "disk" in next(v.why for v in node.report() if v.state == "failed")
        assert states(node) == [("new/v1", "failed"), ("old/v1", "held"), ("older/v1", "held")]
