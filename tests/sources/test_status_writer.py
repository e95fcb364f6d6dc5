"""What control commits of its statuses, when it cannot, and what it says of that."""

from __future__ import annotations

import threading

import pytest
from fleets import NOW, R, model, node, replica, wanting
from fleets import fleet as nodes_of

from fakes.real_git import Fleet
from fakes.status_reader import FILES, REF, Open, commits, hook, write
from llmgw.catalog.problem import Problem
from llmgw.control.writer import Writer
from llmgw.core.decide import decide
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.problems import Trouble, problems
from llmgw.core.status import FleetStatus, status
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_files import from_files

pytestmark = pytest.mark.needs_git

OF = model(cpu=1)
WANTED = wanting(OF, nodes=["n1", "n2"])


class Night:
    """A writer whose time passes when it is told to."""

    def __init__(self, branch: StatusBranch, committed: FleetStatus | None = None) -> None:
        self.now = NOW
        self.writer = Writer(
            branch, cluster="lab", committed=committed, tip="", now=lambda: self.now, monotonic=lambda: self.now
        )

    async def one_pass(self, seen: Observed, *, after_s: float = 0.0) -> None:
        self.now += after_s
        plan = decide(WANTED, seen, Memory(started_at=0.0, settled=True), self.now)
        self.writer.offer(status(WANTED, seen, plan, self.now), WANTED)
        await self.commit()

    async def commit(self) -> None:
        """What `run` does in a turn."""
        if self.writer._due_in() <= 0:
            await self.writer._commit()


def looking(**more: object) -> Observed:
    """A fleet as asked, whose figures move."""
    return Observed((node("n1", replica("m/cpu/0", OF, **more), age_s=more.get("age_s", 1.0)),))


async def test_case_13_a_thousand_passes_of_an_idle_fleet_are_one_commit(fleet: Fleet, opens: Open):
    night = Night(opens(str(fleet.path)))

    for n in range(1000):
        await night.one_pass(looking(busy=n % 3, tps=float(n), age_s=n % 9), after_s=30.0)

    assert len(commits(fleet)) == 1


async def test_case_16_what_a_server_refuses_is_not_taken_for_written_and_is_said_in_its_own_words(
    fleet: Fleet, remote: str, opens: Open
):
    hook(fleet, "pre-receive", 'echo "only people may push here" >&2; exit 1')
    night = Night(opens(remote))
    for _ in range(3):
        await night.one_pass(looking(), after_s=30.0)
    (told,) = night.writer.conditions
    away = commits_or_none(fleet)
    (fleet.path / "hooks/pre-receive").unlink()

    await night.one_pass(looking(), after_s=600.0)

    assert away == []
    assert (told.kind, told.subject, night.writer.failures) == ("status_branch", "status branch", 2)
    assert "only people may push here" in told.why
    assert night.writer.conditions == ()
    assert "Nothing could be written for 10m." in fleet.bare("log", "-1", "--format=%B", REF)


def commits_or_none(fleet: Fleet) -> list[str]:
    return commits(fleet) if fleet.bare("for-each-ref", REF) else []


async def test_case_23_who_may_not_write_is_told_at_the_start_and_before_there_is_anything_to_write(
    fleet: Fleet, opens: Open
):
    fleet.bare("branch", "llmgw", "main")
    night = Night(opens(str(fleet.path)))

    await night.writer._ask()

    (told,) = night.writer.conditions
    assert "has no room for the branch llmgw/status/lab" in told.why
    assert told.next.startswith("rename it: git branch -m llmgw ")


def test_case_17_many_who_write_at_once_are_one_after_the_other(fleet: Fleet, url: str, opens: Open):
    status_branch = opens(url)
    made: list[str | None] = []
    threads = [
        threading.Thread(target=lambda n=n: made.append(write(status_branch, {**FILES, "README.md": b"%d" % n})))
        for n in range(8)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(made) == sorted(commits(fleet))


async def test_case_26_a_commit_that_could_not_be_read_is_recorded_as_looked_at(fleet: Fleet, opens: Open):
    night = Night(opens(str(fleet.path)))
    problem = Problem("server.yaml", 1, 1, "it cannot be read", "this is not YAML", "mend it")

    night.writer.offer_problems("d" * 40, [problem])
    night.now += 2.0
    await night.commit()

    summary = fleet.bare("show", f"{REF}:summary.yaml")
    assert f"observed_commit: {'d' * 40}" in summary
    assert "applied_commit: ''" in summary
    assert "server.yaml:1:1" in summary


async def test_a_problem_keeps_the_time_at_which_it_began_through_commits_and_a_restart(fleet: Fleet, opens: Open):
    branch = opens(str(fleet.path))
    night = Night(branch)
    silent = nodes_of(OF, "n1", "n2", silent=["n1"], cpu=[R])
    await night.one_pass(silent)
    await night.one_pass(silent, after_s=10.0)
    first = branch.read().files

    again = Night(branch, from_files(first).status)
    both = nodes_of(OF, "n1", "n2", silent=["n1", "n2"], cpu=[R])
    await again.one_pass(both, after_s=700.0)
    await again.one_pass(both, after_s=60.0)

    began = [[(t.subject, t.since - int(NOW)) for t in grave(files)] for files in (first, branch.read().files)]
    assert began == [[("node n1", 0)], [("node n1", 0), ("node n2", 700)]]


def grave(files: dict[str, bytes]) -> list[Trouble]:
    return [t for t in problems(from_files(files).status) if not t.waits]
