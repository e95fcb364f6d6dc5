"""A night of a fleet that misbehaves leaves a status branch that a person can read."""

import asyncio

import pytest
from commits import counted
from machine import Machine
from world import World

from fakes.real_git import Fleet
from llmgw.control.writer import Writer
from llmgw.core.status import status
from llmgw.sources.status_branch import StatusBranch

REF = "refs/heads/llmgw/status/lab"
PASSES = 2000


def written_by_night(world: World, wanted, branch: StatusBranch) -> None:
    """What control commits in so many passes, at the times of the world's own clock."""
    writer = Writer(
        branch,
        cluster="lab",
        committed=None,
        tip="",
        now=lambda: world.now,
        monotonic=lambda: world.now,
    )
    for _ in range(PASSES):
        plan = world.one_pass(wanted)
        writer.offer(status(wanted, world.seen, plan, world.now), wanted)
        if writer._due_in() <= 0:
            asyncio.run(writer._commit())
        world.tick()


@pytest.mark.sim
@pytest.mark.needs_git
def test_two_thousand_passes_of_a_misbehaving_fleet_are_under_120_commits_and_5_mb(tmp_path):
    fleet = Fleet(tmp_path)
    branch = StatusBranch(str(fleet.path), "lab", tmp_path / "state")
    world = World(7, [Machine(name) for name in ("n1", "n2", "n3")])

    written_by_night(world, counted(2, 2, context=4096).wanted, branch)
    branch.close()

    commits = int(fleet.bare("rev-list", "--count", REF))
    size = sum(
        int(s) for s in fleet.bare("cat-file", "--batch-all-objects", "--batch-check=%(objectsize:disk)").split()
    )
    assert commits < 120
    assert size < 5_000_000
    assert "to and fro" in fleet.bare("log", "--format=%B", REF)
