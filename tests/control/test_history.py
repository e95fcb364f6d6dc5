"""Control writes down what happens to replicas, once, across restarts."""

import asyncio
import shutil

import pytest
from fleets import NOW
from msgspec import structs

from control.fleet import AUTHOR, Site, a_control, a_model, a_server, until
from llmgw.control.writer import MOST_LINES, Writer
from llmgw.core.history import Kind, Line
from llmgw.core.status import FleetStatus
from llmgw.sources.bare import make_bare
from llmgw.sources.history_files import read_lines
from llmgw.sources.status_branch import StatusBranch


def history(site):
    """`kind id`, each with its reason, as the branch has them."""
    branch = StatusBranch(str(site.repo), "lab", site.folder / "reader")
    try:
        tree = branch.read()
        lines, wrong = read_lines(branch.history(tree.commit)) if tree else ([], [])
    finally:
        branch.close()
    assert wrong == []
    return lines


def commits(site):
    branch = StatusBranch(str(site.repo), "lab", site.folder / "reader")
    try:
        return branch.log(50)
    finally:
        branch.close()


def told(site):
    return [f"{line.kind} {line.replica}" for line in history(site)]


async def test_a_replicas_life_is_written_with_who_asked_for_it_and_a_restart_repeats_none_of_it(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        serving = asyncio.create_task(node.serve())
        lines = await until(lambda: history(site))
        serving.cancel()
    shutil.rmtree(tmp_path / "state")

    async with a_control(tmp_path) as site:
        again = site.node()
        again.replicas, again.obeyed = node.replicas, node.obeyed
        await until(again.obey)
        serving = asyncio.create_task(again.serve())
        site.push("Another one", m=a_model(replicas=2))
        await until(lambda: len(history(site)) > 2)
        serving.cancel()

    start, ready = lines
    assert (start.kind, start.replica, start.node) == ("start", "m/cpu/0", "n1")
    assert (start.author, start.reason) == ("Ana <ana@example.invalid>", "cpu has 0 of 1")
    assert ready.kind == "ready"
    assert told(site) == ["start m/cpu/0", "ready m/cpu/0", "start m/cpu/1", "ready m/cpu/1"]


@pytest.fixture
def writer(tmp_path):
    make_bare(tmp_path / "fleet.git", {"server.yaml": a_server()}, message="first\n", author=AUTHOR, now=NOW)
    branch = StatusBranch(str(tmp_path / "fleet.git"), "lab", tmp_path / "state")
    yield Writer(branch, cluster="lab", committed=None, tip="", now=lambda: NOW)
    branch.close()


LINE = Line(int(NOW), Kind.READY, "m/cpu/0", 1, "n1")
STATUS = FleetStatus("lab", "c" * 40, settled=True, models=(), nodes=())


async def test_what_came_and_went_between_two_commits_is_a_commit_by_itself_before_control_ends(tmp_path, writer):
    writer.offer(STATUS, None)
    await writer.flush()
    writer.write_down([LINE, structs.replace(LINE, kind=Kind.FAILED, reason="killed: by signal 9")])
    writer.offer(STATUS, None)
    await writer.flush()
    writer.offer(STATUS, None)
    await writer.flush()

    site = Site(tmp_path)
    assert told(site) == ["ready m/cpu/0", "failed m/cpu/0"]
    assert [e.subject for e in commits(site)] == [
        "m/cpu/0 failed on n1: killed: by signal 9 (and 1 more)",
        "lab is seen at cccccccccccc",
    ]


async def test_no_more_lines_wait_for_a_commit_than_are_of_use(writer):
    writer.write_down([LINE] * (MOST_LINES - 1))
    assert writer.takes_lines
    writer.write_down([LINE])
    assert not writer.takes_lines
