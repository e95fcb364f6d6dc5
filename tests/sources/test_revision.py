"""The commit that a person names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.real_git import SERVER_YAML, Fleet
from llmgw.errors import Refused
from llmgw.sources.git import open_source

pytestmark = pytest.mark.needs_git


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Three commits on main, a merged side branch, tags, a remote's branch. Only read."""
    fleet = Fleet(tmp_path_factory.mktemp("named"))
    fleet.push({"server.yaml": SERVER_YAML, "catalog/a.yaml": b"name: a\n"}, "first")
    fleet.push({"catalog/b.yaml": b"name: b\n"}, "second")
    fleet.clone("checkout", "-q", "-b", "feature/x", "HEAD~1")
    fleet.clone.commit({"catalog/c.yaml": b"name: c\n"}, "aside", 1_800_000_100)
    fleet.clone("checkout", "-q", "main")
    fleet.clone("merge", "-q", "--no-ff", "-m", "third", "feature/x", time=1_800_000_200)
    fleet.clone("tag", "light", "HEAD~1")
    fleet.clone("tag", "-a", "-m", "a tag", "heavy", "HEAD~1")
    fleet.clone("tag", "-a", "-m", "a tag of a tag", "heavier", "heavy")
    fleet.clone("fetch", "-q", "origin")
    return fleet


@pytest.mark.parametrize(
    "rev",
    [
        "main", "refs/heads/main", "HEAD", "HEAD~1", "HEAD~", "main~2", "HEAD^", "HEAD^1", "HEAD^2", "HEAD^2~1",
        "HEAD^^", "HEAD^0", "light", "heavy", "heavier", "tags/heavy", "heavy~1", "origin/main", "feature/x",
    ],
)  # fmt: skip
def test_names_mean_what_git_means_by_them(named: Fleet, rev: str):
    source = open_source(str(named.clone.at), branch="main", state=Path("/nonexistent"))

    assert source.at(rev).commit == named.clone("rev-parse", f"{rev}^{{commit}}")


def test_an_id_or_enough_of_one_is_a_name(named: Fleet):
    source = open_source(str(named.clone.at), branch="main", state=Path("/nonexistent"))
    commit = named.clone("rev-parse", "HEAD~1")
    named.clone("gc", "-q")

    assert {source.at(commit[:n]).commit for n in (7, 12, 39, 40)} == {commit}
    assert source.at(f"{commit[:8]}~1").commit == named.clone("rev-parse", "HEAD~2")


@pytest.mark.parametrize(
    ("rev", "why"),
    [
        pytest.param("gone", "it is no branch, tag or commit that is held here", id="no such name"),
        pytest.param("0123456789", "it is no branch, tag or commit that is held here", id="no such id"),
        pytest.param("main~9", "what is held of its history ends at", id="further back than it goes"),
        pytest.param("main^3", "what is held of its history ends at", id="no such parent"),
        pytest.param("main:catalog", "it is none of the forms llmgw knows", id="a path"),
        pytest.param("main@{1}", "it is no branch, tag or commit that is held here", id="a reflog"),
        pytest.param("", "it is none of the forms llmgw knows", id="nothing"),
        pytest.param("../../etc/passwd", "it is no branch, tag or commit that is held here", id="a file elsewhere"),
        pytest.param("index", "it is no branch, tag or commit that is held here", id="a file of git's"),
        pytest.param("--help", "it is no branch, tag or commit that is held here", id="an option"),
    ],
)
def test_what_names_no_commit_says_why(named: Fleet, rev: str, why: str):
    source = open_source(str(named.clone.at), branch="main", state=Path("/nonexistent"))

    with pytest.raises(Refused) as refused:
        source.at(rev)

    assert refused.value.why.startswith(why)


def test_a_name_of_something_else_says_so(named: Fleet):
    named.clone("tag", "a-tree", "HEAD^{tree}")
    source = open_source(str(named.clone.at), branch="main", state=Path("/nonexistent"))
    blob = named.clone("rev-parse", "HEAD:catalog/a.yaml")

    for rev, why in (("a-tree", "it points at something else"), (blob, "it is no branch, tag or commit")):
        with pytest.raises(Refused) as refused:
            source.at(rev)
        assert refused.value.why.startswith(why)


def test_an_id_that_begins_several_commits_asks_for_more_of_it(fleet: Fleet):
    fleet.grow(1_000)
    first = [commit[:4] for commit in fleet.bare("rev-list", "main").split()]
    twice = next(start for start in first if first.count(start) > 1)
    source = open_source(str(fleet.path), branch="main", state=Path("/nonexistent"))

    with pytest.raises(Refused, match="names no single commit"):
        source.at(twice)


def test_the_snapshot_of_an_older_commit_has_its_files(named: Fleet):
    source = open_source(str(named.path), branch="main", state=Path("/nonexistent"))

    assert sorted(source.at("main~1").files) == ["catalog/a.yaml", "server.yaml"]
