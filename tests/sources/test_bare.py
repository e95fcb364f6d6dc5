"""A bare repository made and committed to without the git program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fakes.real_git import SERVER_YAML, Git
from llmgw.errors import Refused
from llmgw.sources.bare import commit_files, make_bare
from llmgw.sources.git import open_source
from llmgw.sources.snapshot import Snapshot

AUTHOR = "Ana Doe <ana@lab>"
FILES = {"server.yaml": SERVER_YAML, "catalog/a.yaml": b"name: a\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "made/fleet.git"
    make_bare(path, FILES, message="first\n\nwhy", author=AUTHOR, now=1_800_000_000)
    return path


def read(repo: Path, branch: str = "main") -> Snapshot:
    return open_source(str(repo), branch=branch, state=Path("/nonexistent")).poll()


def commit(repo: Path, changes: dict[str, bytes | None], **more: str) -> str | None:
    return commit_files(repo, changes, message="next", author=AUTHOR, now=1_800_000_100, **more)


def test_a_repository_is_made_with_one_commit(repo: Path):
    found = read(repo)

    assert {path: blob.data for path, blob in found.files.items()} == FILES
    assert (found.author, found.committed_at, found.subject) == (AUTHOR, 1_800_000_000, "first")


@pytest.mark.needs_git
def test_git_finds_nothing_wrong_with_it_clones_it_and_pushes_to_it(repo: Path, tmp_path: Path):
    commit(repo, {"catalog/b.yaml": b"name: b\n"})
    bare = Git(repo)
    bare("fsck", "--strict")

    bare("clone", "-q", str(repo), str(tmp_path / "clone"))
    clone = Git(tmp_path / "clone")
    made = clone.commit({"catalog/c.yaml": b"name: c\n"})
    clone("push", "-q", "origin", "main")

    assert clone("branch", "--show-current") == "main"
    assert clone("log", "--format=%s") == "a change\nnext\nfirst"
    assert read(repo).commit == made


def test_a_commit_changes_what_it_names_and_nothing_else(repo: Path):
    first = read(repo)
    made = commit(repo, {"catalog/a.yaml": None, "catalog/team/b.yaml": b"name: b\n", "README.md": b"hello"})

    found = read(repo)

    assert found.commit == made
    assert {path: blob.data for path, blob in found.files.items()} == {
        "server.yaml": SERVER_YAML,
        "catalog/team/b.yaml": b"name: b\n",
    }
    assert open_source(str(repo), branch="main", state=Path("/nonexistent")).at("HEAD~1") == first


def test_the_last_file_of_a_folder_takes_the_folder_with_it(repo: Path):
    commit(repo, {"catalog/x/y/z.yaml": b"z"})
    commit(repo, {"catalog/x/y/z.yaml": None})

    assert read(repo).identity == read_first(repo).identity


def read_first(repo: Path) -> Snapshot:
    return open_source(str(repo), branch="main", state=Path("/nonexistent")).at("HEAD~2")


def test_case_12_and_13_removing_what_is_not_there_or_changing_nothing_is_no_commit(repo: Path):
    before = read(repo)

    for changes in ({}, {"catalog/gone.yaml": None}, {"gone/gone.yaml": None}, {"catalog/a.yaml": b"name: a\n"}):
        assert commit(repo, changes) is None

    assert read(repo) == before


def test_a_file_becomes_a_folder_and_a_folder_a_file(repo: Path):
    commit(repo, {"catalog/a.yaml/inside.yaml": b"x"})
    assert sorted(read(repo).files) == ["catalog/a.yaml/inside.yaml", "server.yaml"]

    commit(repo, {"catalog/a.yaml": b"name: a\n"})
    assert sorted(read(repo).files) == ["catalog/a.yaml", "server.yaml"]


def test_another_branch_begins_a_history_of_its_own(repo: Path):
    commit(repo, FILES, branch="other")

    assert read(repo, "other").identity == read(repo).identity
    assert read(repo, "other").commit != read(repo).commit


@pytest.mark.needs_git
def test_many_files_go_into_one_pack(tmp_path: Path):
    repo = tmp_path / "fleet.git"
    make_bare(repo, {f"catalog/m{n}.yaml": b"%d" % n for n in range(500)}, message="m", author=AUTHOR, now=1)

    assert len(list(repo.glob("objects/pack/*.pack"))) == 1
    assert len(read(repo).files) == 500
    subprocess.run(["git", "fsck", "--strict"], cwd=repo, check=True, capture_output=True)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path):
    (tmp_path / "mine").write_text("x")

    with pytest.raises(Refused) as refused:
        make_bare(tmp_path, FILES, message="m", author=AUTHOR, now=1)

    assert refused.value.why == "the folder is not empty"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")

    with pytest.raises(Refused, match="no repository was made"):
        make_bare(tmp_path / "file/fleet.git", FILES, message="m", author=AUTHOR, now=1)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a//b", "../x", "a/../x", ".git/config", "a/", "./a"])
def test_a_path_that_leads_out_of_a_repository_is_a_bug(repo: Path, path: str):
    with pytest.raises(ValueError, match="is not a path"):
        commit(repo, {path: b"x"})


def test_a_path_below_a_file_of_the_same_commit_is_a_bug(repo: Path):
    with pytest.raises(ValueError, match="is below a file"):
        commit(repo, {"a": b"x", "a/b": b"y"})


def test_the_git_program_is_not_needed(repo: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert shutil.which("git") is None

    made = commit(repo, {"catalog/b.yaml": b"name: b\n"})

    assert read(repo).commit == made
