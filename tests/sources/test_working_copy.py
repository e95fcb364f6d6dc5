"""A working copy as it is: uncommitted and untracked files too, and nothing of it touched."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fakes.real_git import SERVER_YAML, Fleet, Git
from llmgw.errors import Refused, Unreachable
from llmgw.sources import worktree
from llmgw.sources.git import Source, open_source
from llmgw.sources.scope import Reading
from llmgw.sources.snapshot import UNBORN

pytestmark = pytest.mark.needs_git

MODEL = b"name: a\n"


def follow(copy: Git, mode: str = "worktree") -> Source:
    return open_source(str(copy.at), branch="main", state=copy.at.parent / "state", mode=mode)


def everything(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Size, time and content of each file below a folder, .git included."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            stat = path.lstat()
            found[str(path)] = (stat.st_mtime_ns, stat.st_mode, path.read_bytes() if path.is_file() else b"")
    return found


def test_a_clean_working_copy_asks_for_what_its_commit_does(fleet: Fleet):
    head, worktree = follow(fleet.clone, "head").poll(), follow(fleet.clone).poll()

    assert worktree == head
    assert not worktree.dirty


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"catalog/a.yaml": b"name: a\nreplicas: 2\n"}, id="edited"),
        pytest.param({"catalog/b.yaml": b"name: b\n"}, id="untracked"),
        pytest.param({"catalog/a.yaml": None}, id="removed"),
    ],
)
def test_what_is_not_committed_counts_and_is_marked(fleet: Fleet, change: dict[str, bytes | None]):
    commit = fleet.clone("rev-parse", "HEAD")
    fleet.clone.write(change)

    found = follow(fleet.clone).poll()

    assert (found.commit, found.dirty) == (commit, True)
    (path, data), *_ = change.items()
    assert (found.files[path].data if path in found.files else None) == data


def test_head_mode_reads_only_what_is_committed(fleet: Fleet):
    fleet.clone.write({"catalog/a.yaml": b"name: changed\n"})

    found = follow(fleet.clone, "head").poll()

    assert (found.files["catalog/a.yaml"].data, found.dirty) == (MODEL, False)


def test_a_change_elsewhere_is_not_dirty(fleet: Fleet):
    fleet.clone.write({"README.md": b"hello", "catalog/notes.txt": b"x"})

    assert not follow(fleet.clone).poll().dirty


def test_nothing_of_the_working_copy_is_touched(fleet: Fleet):
    fleet.clone.write({"catalog/a.yaml": b"changed\n", "catalog/new.yaml": b"new\n"})
    fleet.clone("add", "catalog/new.yaml")
    status = fleet.clone("status", "--porcelain")
    before = everything(fleet.clone.at)
    source = follow(fleet.clone)

    source.poll()
    source.at("HEAD")
    source.trailers_since(None)
    source.watch_paths()
    follow(fleet.clone, "head").poll()

    assert everything(fleet.clone.at) == before
    assert fleet.clone("status", "--porcelain") == status == "M catalog/a.yaml\nA  catalog/new.yaml"


def test_no_link_leads_out_of_the_working_copy(fleet: Fleet, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.yaml").write_bytes(b"secret")
    catalog = fleet.clone.at / "catalog"
    (catalog / "file.yaml").symlink_to(tmp_path / "outside/secret.yaml")
    (catalog / "folder").symlink_to(tmp_path / "outside")
    (fleet.clone.at / "keys").symlink_to(tmp_path / "outside")

    found = follow(fleet.clone).poll()

    assert [entry.path for entry in found.bad] == ["catalog/file.yaml", "catalog/folder", "keys"]
    assert {entry.why for entry in found.bad} == {"is a symbolic link, which is not followed"}
    assert sorted(found.files) == ["catalog/a.yaml", "server.yaml"]


def test_pipes_sockets_and_nested_repositories_are_said_and_not_waited_for(fleet: Fleet, monkeypatch):
    monkeypatch.chdir(fleet.clone.at / "catalog")
    os.mkfifo("pipe.yaml")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.yaml")
        Path("nested").mkdir()
        Git(Path("nested"))("init", ".")
        Path("large.yaml").write_bytes(b"#" * (256 * 1024 + 1))

        found = follow(fleet.clone).poll()

    assert {entry.path: entry.why for entry in found.bad} == {
        "catalog/large.yaml": "is larger than 256 KiB",
        "catalog/nested": "is a submodule, which is not followed",
        "catalog/pipe.yaml": "is neither a file nor a folder",
        "catalog/socket.yaml": "is neither a file nor a folder",
    }


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_becomes_a_link_between_the_look_and_the_opening_is_not_followed(tmp_path: Path, kind: str):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.yaml").write_bytes(b"secret")
    (tmp_path / "file").symlink_to("outside/a.yaml")
    (tmp_path / "folder").symlink_to("outside")
    reading = Reading()
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            getattr(worktree, f"_{kind}")(reading, top, kind, "catalog/a.yaml" if kind == "file" else "catalog")
    finally:
        os.close(top)

    assert reading.result() == ({}, ())


def test_what_becomes_a_pipe_between_the_look_and_the_opening_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    reading = Reading()
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        worktree._file(reading, top, "pipe", "catalog/a.yaml")
    finally:
        os.close(top)

    files, bad = reading.result()
    assert (files, [entry.why for entry in bad]) == ({}, ["is neither a file nor a folder"])


def test_an_entry_that_cannot_be_read_makes_another_identity(fleet: Fleet):
    before = follow(fleet.clone).poll()
    (fleet.clone.at / "catalog/link.yaml").symlink_to("a.yaml")

    found = follow(fleet.clone).poll()

    assert (found.identity != before.identity, found.dirty) == (True, True)


def test_a_link_is_the_same_problem_committed_or_not(fleet: Fleet):
    (fleet.clone.at / "catalog/link.yaml").symlink_to("a.yaml")
    fleet.push({})

    found = follow(fleet.clone).poll()

    assert found.bad == follow(fleet.clone, "head").poll().bad != ()
    assert not found.dirty


def test_a_working_copy_without_a_commit_is_all_uncommitted(tmp_path: Path):
    copy = Git(tmp_path / "new")
    copy.at.mkdir()
    copy("init", "-b", "main", ".")
    copy.write({"server.yaml": SERVER_YAML})

    found = follow(copy).poll()

    assert (found.commit, found.dirty, list(found.files)) == (UNBORN, True, ["server.yaml"])
    assert follow(copy).trailers_since("0" * 40) == ()
    with pytest.raises(Refused, match="no branch main"):
        follow(copy, "head").poll()


def test_a_linked_working_copy_is_followed(fleet: Fleet, tmp_path: Path):
    linked = Git(tmp_path / "linked")
    fleet.clone("worktree", "add", "-b", "other", str(linked.at))
    linked.write({"catalog/b.yaml": b"name: b\n"})
    source = follow(linked)

    assert source.poll().dirty
    assert source.watch_paths() == (
        linked.at,
        fleet.clone.at / ".git/worktrees/linked",
        fleet.clone.at / ".git",
    )


def test_what_is_checked_out_is_followed_whatever_branch_it_is(fleet: Fleet):
    fleet.clone("checkout", "-q", "-b", "try")
    commit = fleet.clone.commit({"catalog/b.yaml": b"name: b\n"}, "on a branch")

    assert follow(fleet.clone).poll().commit == commit


def test_trailers_of_a_working_copy_are_those_of_its_commits(fleet: Fleet):
    source = follow(fleet.clone)
    since = source.poll().commit
    fleet.clone.commit({}, "removal\n\nLlmgw-Allow-Removals: 3")
    source.poll()

    assert [t.value for t in source.trailers_since(since)] == ["3"]
    assert source.trailers_since(None) == ()
    assert source.held() == source.poll()


def test_a_commit_set_back_is_said(fleet: Fleet):
    fleet.push({"catalog/b.yaml": b"name: b\n"})
    source = follow(fleet.clone)
    source.poll()

    fleet.clone("reset", "-q", "--hard", "HEAD~1")

    assert source.poll().rewritten
    assert not source.poll().rewritten


def test_a_bare_repository_has_no_working_copy(fleet: Fleet):
    with pytest.raises(Refused, match="has no working copy"):
        follow(fleet.bare).poll()


def test_a_working_copy_that_is_not_there_may_come_back(tmp_path: Path):
    with pytest.raises(Unreachable, match="there is no repository at"):
        follow(Git(tmp_path / "gone")).poll()
