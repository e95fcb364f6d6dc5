"""Moving the status branch by compare-and-swap: races, locks, refusals, lost answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.git_http import Fault, GitServer
from fakes.real_git import Fleet
from fakes.status_reader import FILES, REF, Open, by_hand, commits, files, fsck, hook, write
from llmgw.errors import Refused, Unreachable
from llmgw.sources.access import Access, Limits

pytestmark = pytest.mark.needs_git


def test_case_21_losing_the_race_is_no_error(fleet: Fleet, server: GitServer, remote: str, opens: Open):
    status = opens(remote)
    write(status)
    raced: list[str] = []

    def race(path: str) -> None:
        # After the server said where the branch is, and before it is moved.
        if path.endswith("/git-receive-pack") and not raced:
            raced.append(by_hand(fleet, {"NOTES.md": b"theirs", "README.md": b"theirs"}))

    server.before = race
    made = write(status, {**FILES, "README.md": b"ours"})

    assert commits(fleet)[:2] == [made, raced[0]]
    assert files(fleet) == sorted([*FILES, "NOTES.md"])
    assert status.read().files["README.md"] == b"ours"
    fsck(fleet)


def test_a_race_that_is_lost_each_time_is_given_up_until_the_next_write(
    fleet: Fleet, server: GitServer, remote: str, opens: Open
):
    status = opens(remote)
    write(status)
    fleet.clone("fetch", "-q", "origin", f"+{REF}:refs/heads/by-hand")
    fleet.clone("checkout", "-q", "by-hand")
    raced: list[int] = []

    def race(path: str) -> None:
        if path.endswith("/git-receive-pack"):
            raced.append(len(raced))
            fleet.clone.commit({"NOTES.md": b"%d" % len(raced)})
            fleet.clone("push", "-q", "origin", f"HEAD:{REF}")

    server.before = race
    with pytest.raises(Unreachable, match="nothing was written") as raised:
        write(status, {**FILES, "README.md": b"ours"})
    server.before = None

    assert raised.value.why == "others pushed to it each of the 5 times"
    assert len(raced) == 5
    assert write(status, {**FILES, "README.md": b"ours"}) == commits(fleet)[0]


def test_a_push_whose_answer_was_lost_is_found_to_be_done(fleet: Fleet, server: GitServer, remote: str, opens: Open):
    status = opens(remote)
    write(status)
    server.fault = Fault(swallow=True, only="/git-receive-pack", times=1)

    with pytest.raises(Unreachable):
        write(status, {**FILES, "README.md": b"new"})

    assert len(commits(fleet)) == 2
    assert write(status, {**FILES, "README.md": b"new"}) is None
    assert write(status, {**FILES, "README.md": b"newer"}) == commits(fleet)[0]
    assert len(commits(fleet)) == 3


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(Fault(cut_after=0, only="/git-receive-pack"), Unreachable, id="cut"),
        pytest.param(Fault(hang=True, only="/git-receive-pack"), Unreachable, id="hangs"),
        pytest.param(Fault(status=403, only="receive-pack"), Refused, id="may read and not push"),
        pytest.param(Fault(status=429, only="receive-pack"), Unreachable, id="asks for a pause"),
        pytest.param(Fault(status=500, only="receive-pack"), Unreachable, id="broken"),
    ],
)
def test_a_push_that_fails_is_said_and_the_next_one_is_made(
    fleet: Fleet, server: GitServer, remote: str, opens: Open, fault: Fault, error: type[Exception]
):
    status = opens(remote, access=Access(limits=Limits(connect_s=4, read_s=1, total_s=4)))
    first = write(status)
    server.fault = fault
    with pytest.raises(error):
        write(status, {**FILES, "README.md": b"new"})
    server.fault = None

    write(status, {**FILES, "README.md": b"newer"})

    assert status.read().files["README.md"] == b"newer"
    assert first in commits(fleet)


def test_a_refusal_is_a_lost_race_where_the_branch_has_moved(fleet: Fleet, remote: str, opens: Open):
    # Whatever words a server has for it: this one says that its hook declined.
    status = opens(remote)
    write(status)
    first = fleet.bare("rev-parse", REF)
    moved = by_hand(fleet, {"NOTES.md": b"theirs"})
    fleet.bare("update-ref", REF, first)
    hook(fleet, "pre-receive", f"[ -e moved ] && exit 0\ntouch moved\necho {moved} > {REF}\nexit 1")

    made = write(status, {**FILES, "README.md": b"new"})

    assert commits(fleet) == [made, moved, first]


@pytest.mark.parametrize("name", ["pre-receive", "update"])
def test_case_16_a_hook_that_refuses_is_said_in_its_own_words(fleet: Fleet, remote: str, opens: Open, name: str):
    hook(fleet, name, "echo 'author llmgw@lab is not a member' >&2\nprintf '\\033[2J' >&2\nexit 1")

    with pytest.raises(Refused) as refused:
        write(opens(remote))

    assert "refused the push to refs/heads/llmgw/status/lab" in refused.value.what
    assert "hook declined: author llmgw@lab is not a member" in refused.value.why
    assert refused.value.why.isprintable()
    assert opens(remote).read() is None


def test_case_23_the_preflight_says_that_we_may_not_push(fleet: Fleet, server: GitServer, remote: str, opens: Open):
    opens(remote).preflight()
    fleet.bare("config", "http.receivepack", "false")

    with pytest.raises(Refused) as refused:
        opens(remote).preflight()

    assert "has not this right" in refused.value.why
    assert opens(remote).read() is None


@pytest.mark.parametrize("name", ["llmgw", "llmgw/status", "llmgw/status/lab/old"])
def test_a_branch_whose_name_stands_in_the_way_is_named(fleet: Fleet, url: str, opens: Open, name: str):
    fleet.bare("branch", name, "main")
    status = opens(url)

    for attempt in (status.preflight, lambda: write(status)):
        with pytest.raises(Refused, match="has no room for the branch llmgw/status/lab") as refused:
            attempt()
        assert f"its branch {name} has" in refused.value.why
        assert refused.value.do.startswith(f"rename it: git branch -m {name} ")


def test_the_preflight_passes_before_and_after_the_first_commit(url: str, opens: Open):
    status = opens(url)

    status.preflight()
    write(status)
    status.preflight()


def test_a_lock_that_somebody_holds_is_waited_for_a_moment_and_then_given_up(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    write(status)
    lock = fleet.path / f"{REF}.lock"
    lock.touch()

    with pytest.raises(Unreachable, match="nothing was written") as raised:
        write(status, {**FILES, "README.md": b"new"})

    assert raised.value.why == "it was locked each of the 5 times"
    assert "remove the .lock file" in raised.value.do
    lock.unlink()
    assert write(status, {**FILES, "README.md": b"new"}) == commits(fleet)[0]


def test_one_process_writes_and_any_number_read(fleet: Fleet, opens: Open):
    writer, reader = opens(str(fleet.path), state="shared"), opens(str(fleet.path), state="shared")
    write(writer)

    assert reader.read().files == FILES
    with pytest.raises(Refused, match="the status of lab is in use") as refused:
        write(reader)
    assert f"process {os.getpid()} holds" in refused.value.why

    writer.close()
    assert write(reader) is None


def test_a_lock_dies_with_the_process_that_held_it(fleet: Fleet, opens: Open, tmp_path: Path):
    program = """
import sys
from pathlib import Path
from llmgw.sources.status_branch import StatusBranch
status = StatusBranch(sys.argv[1], "lab", Path(sys.argv[2]))
status.write({}, subject="s", author="a <a@a>", now=1)
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(fleet.path), str(tmp_path / "shared")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holding:
        assert holding.stdout.readline() == b"held\n"
        with pytest.raises(Refused, match="in use"):
            write(opens(str(fleet.path), state="shared"))
        holding.kill()
        holding.wait()

    assert write(opens(str(fleet.path), state="shared")) is not None


def test_a_repository_that_is_away_is_an_error_and_not_an_absent_branch(
    server: GitServer, remote: str, opens: Open, tmp_path: Path
):
    server.fault = Fault(status=500)
    status = opens(remote)

    for attempt in (status.read, lambda: write(status), status.preflight, lambda: status.log(1)):
        with pytest.raises(Unreachable):
            attempt()
    with pytest.raises(Unreachable, match="there is no repository at"):
        opens(str(tmp_path / "gone")).read()


def test_a_damaged_copy_is_made_anew_and_written_from(fleet: Fleet, remote: str, opens: Open, tmp_path: Path):
    status = opens(remote, state="state")
    write(status)
    write(status, {**FILES, "README.md": b"new"})
    for pack in (tmp_path / "state").rglob("*.pack"):
        pack.unlink()

    made = write(status, {**FILES, "README.md": b"newer"})

    assert commits(fleet)[0] == made
    assert len(commits(fleet)) == 3
    fsck(fleet)
