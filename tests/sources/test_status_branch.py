"""The status branch: written whole, and only when it changes; here and behind HTTP."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fakes.git_http import GitServer
from fakes.real_git import Fleet
from fakes.status_reader import AUTHOR, FILES, NOW, REF, Open, by_hand, commits, files, fsck, packed, write
from llmgw.errors import Refused
from llmgw.sources.status_branch import StatusBranch

pytestmark = pytest.mark.needs_git


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
        "Llmgw-Seq: 1",
        "Llmgw-Began: 2030-03-17T17:46:40Z",
    ]
    assert fleet.bare("interpret-trailers", "--parse", stdin=fleet.bare("log", "-1", "--format=%B", REF).encode())
    fsck(fleet)


def test_what_is_written_is_what_is_read_by_anybody(fleet: Fleet, url: str, opens: Open):
    commit = opens(url).write(FILES, subject="s", trailers={"Llmgw-Observed": "x"}, author=AUTHOR, now=NOW)

    read = opens(url).read()

    assert read is not None
    assert (read.commit, read.files, read.subject, read.committed_at) == (commit, FILES, "s", 1_900_000_000)
    assert [(t.key, t.value) for t in read.trailers][:1] == [("Llmgw-Observed", "x")]


def test_each_commit_is_the_parent_of_the_next(fleet: Fleet, url: str, opens: Open):
    status = opens(url)

    made = [write(status, {**FILES, "README.md": b"%d" % n}) for n in range(5)]

    assert commits(fleet) == made[::-1]
    fsck(fleet)


def test_case_13_a_quarter_of_an_hour_of_idle_writes_is_no_commit(
    fleet: Fleet, server: GitServer, url: str, opens: Open
):
    status = opens(url)
    first = write(status)
    server.asked.clear()

    assert {write(status, now=NOW + n) for n in range(0, 1000, 5)} == {None}

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


def test_case_20_a_branch_that_another_host_wrote_is_taken_up(fleet: Fleet, url: str, opens: Open):
    other, status = opens(url), opens(url)
    first = write(other)

    second = write(status, {**FILES, "README.md": b"moved"})
    third = write(other, {**FILES, "README.md": b"and back"})

    assert commits(fleet) == [third, second, first]


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


def test_older_commits_are_read_by_id_and_by_count(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    made = [write(status, {"README.md": b"%d" % n}, now=NOW + n, subject=f"commit {n}") for n in range(4)]

    assert [status.at(rev).files["README.md"] for rev in ("HEAD", "HEAD~2", made[0], made[1][:10])] == [
        b"3",
        b"1",
        b"0",
        b"1",
    ]
    assert [entry[:3] for entry in status.log(3)] == [(made[n], int(NOW) + n, f"commit {n}") for n in (3, 2, 1)]
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
