"""The status branch: written whole, by compare-and-swap, only when it changes; here and behind HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes.git_http import Fault, GitServer
from fakes.real_git import Fleet
from llmgw.errors import Refused, Unreachable
from llmgw.sources.remote import Limits
from llmgw.sources.status_branch import StatusBranch

pytestmark = pytest.mark.needs_git

REF = "refs/heads/llmgw/status/lab"
FILES = {
    "README.md": b"# lab\n",
    "models/a/a.yaml": b"ready: 2\n",
    "models/b/b.yaml": b"ready: 1\n",
    "mirror.yaml": b"{}\n",
}
NOW = 1_900_000_000.7
AUTHOR = "llmgw <llmgw@lab>"

Open = Callable[..., StatusBranch]


@pytest.fixture(params=["here", "over http"])
def url(request: pytest.FixtureRequest, fleet: Fleet, server: GitServer) -> str:
    return str(fleet.path) if request.param == "here" else server.url("fleet.git")


@pytest.fixture
def remote(fleet: Fleet, server: GitServer) -> str:
    return server.url("fleet.git")


@pytest.fixture
def opens(tmp_path: Path) -> Iterator[Open]:
    """Opens a status branch, by default with a state folder of its own, and closes it in the end."""
    opened: list[StatusBranch] = []

    def make(url: str, state: str = "", **more: object) -> StatusBranch:
        opened.append(StatusBranch(url, "lab", tmp_path / (state or f"state{len(opened)}"), **more))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def write(status: StatusBranch, files: dict[str, bytes] | None = None, *, now: float = NOW, subject: str = "all ready"):
    return status.write(FILES if files is None else files, subject=subject, author=AUTHOR, now=now)


def commits(fleet: Fleet) -> list[str]:
    """Youngest first."""
    return fleet.bare("rev-list", REF).split()


def files(fleet: Fleet) -> list[str]:
    return fleet.bare("ls-tree", "-r", "--name-only", REF).split()


def by_hand(fleet: Fleet, changes: dict[str, bytes | None], base: str = REF) -> str:
    """Somebody edits the branch with git itself."""
    fleet.clone("fetch", "-q", "origin", f"+{base}:refs/heads/by-hand")
    fleet.clone("checkout", "-q", "by-hand")
    commit = fleet.clone.commit(changes, "by hand")
    fleet.clone("push", "-q", "origin", f"HEAD:{REF}")
    fleet.clone("checkout", "-q", "main")
    return commit


def fsck(fleet: Fleet) -> None:
    fleet.bare("fsck", "--strict", "--no-dangling")


def test_a_branch_that_does_not_exist_says_nothing(url: str, opens: Open):
    status = opens(url)

    assert status.read() is None
    assert status.log(10) == []


def test_the_first_commit_has_a_history_of_its_own(fleet: Fleet, url: str, opens: Open):
    status = opens(url)

    commit = status.write(
        FILES,
        subject="lab: 3/3\nready",
        body="a  starting -> ready\n",
        trailers={"Llmgw-Observed": "4f2a91c", "Llmgw-Version": "0.1.0"},
        author=AUTHOR,
        now=NOW,
    )

    assert commits(fleet) == [commit]
    assert files(fleet) == sorted(FILES)
    assert fleet.bare("log", "-1", "--format=%an <%ae>%n%cn <%ce>%n%at %ct%n%B", REF).splitlines() == [
        AUTHOR,
        AUTHOR,
        "1900000000 1900000000",
        "lab: 3/3 ready",
        "",
        "a  starting -> ready",
        "",
        "Llmgw-Observed: 4f2a91c",
        "Llmgw-Version: 0.1.0",
    ]
    assert fleet.bare("interpret-trailers", "--parse", stdin=fleet.bare("log", "-1", "--format=%B", REF).encode())
    fsck(fleet)


def test_what_is_written_is_what_is_read_by_anybody(fleet: Fleet, url: str, opens: Open):
    commit = opens(url).write(FILES, subject="s", trailers={"Llmgw-Observed": "x"}, author=AUTHOR, now=NOW)

    read = opens(url).read()

    assert read is not None
    assert (read.commit, read.files, read.subject, read.committed_at) == (commit, FILES, "s", 1_900_000_000)
    assert [(t.key, t.value) for t in read.trailers] == [("Llmgw-Observed", "x")]


def test_each_commit_is_the_parent_of_the_next(fleet: Fleet, url: str, opens: Open):
    status = opens(url)

    made = [write(status, {**FILES, "README.md": b"%d" % n}) for n in range(5)]

    assert commits(fleet) == made[::-1]
    fsck(fleet)


def test_case_13_a_thousand_idle_writes_are_no_commit(fleet: Fleet, server: GitServer, url: str, opens: Open):
    status = opens(url)
    first = write(status)
    server.asked.clear()

    assert {write(status, now=NOW + n) for n in range(1000)} == {None}

    assert commits(fleet) == [first]
    # It looks whether the branch is as it left it, once a minute.
    assert server.requests <= 2 * (1 + 1000 // 60) * 2


def test_a_restarted_writer_finds_nothing_to_write(fleet: Fleet, url: str, opens: Open):
    first = write(opens(url))

    assert write(opens(url)) is None
    assert commits(fleet) == [first]


def test_case_12_a_file_that_is_written_no_more_is_removed_and_one_that_never_was_is_no_matter(
    fleet: Fleet, url: str, opens: Open
):
    status = opens(url)
    write(status)

    write(status, {"README.md": b"# lab\n"})
    write(status, {"README.md": b"# lab\n", "nodes/n1.yaml": b"n"})

    assert files(fleet) == ["README.md", "nodes/n1.yaml"]
    write(status, {})
    assert files(fleet) == []
    fsck(fleet)


def test_case_14_what_counts_is_the_branch_and_not_what_was_written_last(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    write(status, {"README.md": b"before"})
    write(status)
    edited = by_hand(fleet, {"README.md": b"edited", "models/a/a.yaml": None})

    made = write(status, now=NOW + 120)

    assert commits(fleet)[:2] == [made, edited]
    assert status.read().files == FILES
    assert write(status, now=NOW + 240) is None


def test_case_15_a_commit_from_a_shallow_copy_keeps_its_parent_and_touches_only_what_is_ours(
    fleet: Fleet, url: str, opens: Open
):
    write(opens(url))
    by_hand(fleet, {"NOTES.md": b"theirs", "docs/a.md": b"theirs", "README.txt": b"theirs"})
    before = commits(fleet)

    made = write(opens(url), {**FILES, "README.md": b"new"})

    assert commits(fleet) == [made, *before]
    assert fleet.bare("diff", "--name-status", f"{REF}~1", REF) == "M\tREADME.md"
    assert "docs/a.md" not in opens(url).read().files
    fsck(fleet)


def test_only_new_objects_are_made(fleet: Fleet, url: str, opens: Open):
    many = {f"models/{n % 16:02x}/m{n}.yaml": b"m%d" % n for n in range(200)}
    status = opens(url)
    write(status, many)
    before = int(fleet.bare("count-objects").split()[0]) + packed(fleet)

    write(status, {**many, "models/03/m3.yaml": b"changed"})

    # A blob, its folder, models/, the top, the commit.
    assert int(fleet.bare("count-objects").split()[0]) + packed(fleet) - before == 5


def packed(fleet: Fleet) -> int:
    lines = dict(line.split(": ") for line in fleet.bare("count-objects", "-v").splitlines())
    return int(lines["in-pack"])


def test_case_20_a_branch_that_another_host_wrote_is_taken_up(fleet: Fleet, url: str, opens: Open):
    other, status = opens(url), opens(url)
    first = write(other)

    second = write(status, {**FILES, "README.md": b"moved"})
    third = write(other, {**FILES, "README.md": b"and back"})

    assert commits(fleet) == [third, second, first]


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
    status = opens(remote, limits=Limits(connect_s=1, read_s=0.3, total_s=1))
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


def hook(fleet: Fleet, name: str, script: str) -> None:
    path = fleet.path / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


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


def test_a_branch_that_was_deleted_is_made_again(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    write(status)
    write(status, {**FILES, "README.md": b"again"})
    fleet.bare("update-ref", "-d", REF)

    assert status.read() is None
    made = write(status, now=NOW + 120)

    assert commits(fleet) == [made]
    assert write(status, now=NOW + 130) is None
    assert write(status, {**FILES, "README.md": b"on"}, now=NOW + 140) == commits(fleet)[0]
    assert len(commits(fleet)) == 2


def test_a_deletion_that_nobody_was_told_of_is_found_at_the_next_write(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    write(status)
    write(status, {**FILES, "README.md": b"again"})
    fleet.bare("update-ref", "-d", REF)

    made = write(status, {**FILES, "README.md": b"new"}, now=NOW + 1)

    assert commits(fleet) == [made]
    assert write(status, {**FILES, "README.md": b"newer"}, now=NOW + 2) == commits(fleet)[0]


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


def test_older_commits_are_read_by_id_and_by_count(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    made = [write(status, {"README.md": b"%d" % n}, now=NOW + n, subject=f"commit {n}") for n in range(4)]

    assert [status.at(rev).files["README.md"] for rev in ("HEAD", "HEAD~2", made[0], made[1][:10])] == [
        b"3",
        b"1",
        b"0",
        b"1",
    ]
    assert status.log(3) == [(made[n], int(NOW) + n, f"commit {n}") for n in (3, 2, 1)]
    with pytest.raises(Refused, match="names no commit"):
        status.at("HEAD~9")


def test_the_log_of_a_branch_that_was_just_cloned_goes_back_as_far_as_asked(fleet: Fleet, url: str, opens: Open):
    write(opens(url))
    fleet.grow(70, branch="llmgw/status/lab")

    assert [entry.commit for entry in opens(url).log(60)] == commits(fleet)[:60]
    assert len(opens(url).log(1000)) == 71


def test_a_write_to_a_long_branch_costs_no_more_than_to_a_short_one(fleet: Fleet, url: str, opens: Open):
    many = {f"models/{n % 16:02x}/m{n}.yaml": b"m%d" % n * 100 for n in range(200)}
    write(opens(url), many)
    fleet.grow(5_000, branch="llmgw/status/lab")
    status = opens(url)
    write(status, {**many, "README.md": b"first"})
    before = time.thread_time()

    write(status, {**many, "README.md": b"second"})

    assert time.thread_time() - before < 0.1
    assert len(commits(fleet)) == 5_003


@pytest.mark.parametrize(
    "path", ["notes.md", "../README.md", "README.md/../../x", "/README.md", "models//a.yaml", "models/.git/x"]
)
def test_a_path_that_is_not_ours_is_a_bug_and_not_written(fleet: Fleet, opens: Open, path: str):
    with pytest.raises(ValueError, match="is not a path"):
        write(opens(str(fleet.path)), {path: b"x"})


def test_a_name_that_no_branch_can_have_is_refused(fleet: Fleet, tmp_path: Path):
    with pytest.raises(Refused, match="cannot be a branch"):
        StatusBranch(str(fleet.path), "a..b", tmp_path)


def test_what_somebody_put_among_our_files_is_read_past(fleet: Fleet, url: str, opens: Open):
    write(opens(url))
    (fleet.clone.at / "models").mkdir()
    (fleet.clone.at / "models/link.yaml").symlink_to("/etc/passwd")
    by_hand(fleet, {"models/caf\udce9.yaml": b"x"})

    assert sorted(opens(url).read().files) == sorted([*FILES, "models/caf\ufffd.yaml"])


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


def test_the_copy_of_a_branch_that_is_written_often_stays_small(fleet: Fleet, remote: str, opens: Open, tmp_path: Path):
    status = opens(remote, state="state")

    for n in range(36):
        write(status, {**FILES, "README.md": b"%d" % n})

    assert len(commits(fleet)) == 36
    assert len(list((tmp_path / "state").rglob("*.pack"))) < 10


def test_a_working_copy_is_written_to_without_touching_it(fleet: Fleet, opens: Open):
    fleet.clone.write({"catalog/a.yaml": b"edited\n"})
    before = fleet.clone("status", "--porcelain", "--branch")

    write(opens(str(fleet.clone.at)))

    assert fleet.clone("status", "--porcelain", "--branch") == before
    assert fleet.clone("ls-tree", "-r", "--name-only", REF).split() == sorted(FILES)
