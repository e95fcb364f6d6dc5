"""Which trailers count: those of the commits after the one that was last applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.real_git import SERVER_YAML, Fleet
from llmgw.sources.git import Source, open_source

pytestmark = pytest.mark.needs_git

ALLOW = "Llmgw-Allow-Removals"


def follow(fleet: Fleet) -> Source:
    source = open_source(str(fleet.path), branch="main", state=Path("/nonexistent"))
    source.poll()
    return source


def said(source: Source, since: str | None) -> list[str]:
    return [f"{t.key}={t.value}" for t in source.trailers_since(since)]


def test_every_commit_after_the_last_applied_one_counts_and_no_older(fleet: Fleet):
    fleet.push({}, f"before\n\n{ALLOW}: 1")
    since = fleet.push({}, f"applied\n\n{ALLOW}: 2")
    fleet.push({}, f"removal\n\n{ALLOW}: 3")
    fleet.push({}, "an empty commit")
    last = fleet.push({}, f"more\n\n{ALLOW}: 4\nLlmgw-Purge: a")
    source = follow(fleet)

    assert said(source, since) == [f"{ALLOW}=4", "Llmgw-Purge=a", f"{ALLOW}=3"]
    assert source.trailers_since(since)[0].commit == last
    assert said(source, last) == []


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(f"subject\n\n{ALLOW}: 3", id="at the end"),
        pytest.param(f"{ALLOW}: 3", id="the line alone"),
        pytest.param(f"squashed (#12)\n\n* remove a\n\n  {ALLOW}: 3\n\n* tidy up\n", id="indented in the middle"),
        pytest.param(f"squashed\n\n- {ALLOW}: 3\n- tidy up\n", id="bulleted"),
        pytest.param(f"windows\r\n\r\n{ALLOW}:\t3  \r\n", id="with carriage returns"),
    ],
)
def test_a_trailer_counts_as_people_and_merges_leave_it(fleet: Fleet, message: str):
    since = fleet.push({})
    fleet.push({}, message)

    assert said(follow(fleet), since) == [f"{ALLOW}=3"]


def test_a_quoted_trailer_does_not_count(fleet: Fleet):
    since = fleet.push({})
    fleet.push({}, f"explain\n\n> {ALLOW}: 3\nthe line `{ALLOW}: 3` lifts it\n{ALLOW}:\n")

    assert said(follow(fleet), since) == []


def test_a_merged_side_branch_counts_and_not_what_was_before_it_forked(fleet: Fleet):
    fleet.push({}, f"old\n\n{ALLOW}: 1")
    fleet.clone("branch", "side", "HEAD~1")
    since = fleet.push({}, "applied")
    fleet.clone("checkout", "-q", "side")
    fleet.clone.commit({"catalog/b.yaml": b"name: b\n"}, f"aside\n\n{ALLOW}: 2", fleet.time + 1)
    fleet.clone("checkout", "-q", "main")
    fleet.clone("merge", "-q", "--no-ff", "-m", "merge", "side", time=fleet.time + 2)
    fleet.push({}, "later")

    assert said(follow(fleet), since) == [f"{ALLOW}=2"]


def test_a_clock_that_went_back_brings_no_old_trailer_in_again(fleet: Fleet):
    # The oldest commit claims to be the youngest: it is met before the applied
    # one leads to it.
    fleet.time += 10_000
    fleet.push({}, f"from the future\n\n{ALLOW}: 1")
    fleet.clone("branch", "side")
    fleet.time -= 20_000
    since = fleet.push({}, "applied")
    fleet.clone("checkout", "-q", "side")
    fleet.clone.commit({"catalog/b.yaml": b"name: b\n"}, f"aside\n\n{ALLOW}: 2", fleet.time + 1)
    fleet.clone("checkout", "-q", "main")
    fleet.clone("merge", "-q", "--no-ff", "-m", "merge", "side", time=fleet.time + 2)
    fleet.push({}, "later")

    assert said(follow(fleet), since) == [f"{ALLOW}=2"]


def test_a_first_commit_from_the_future_is_not_new(tmp_path: Path):
    fleet = Fleet(tmp_path)
    fleet.time += 10_000
    fleet.push({"server.yaml": SERVER_YAML}, f"from the future\n\n{ALLOW}: 1")
    fleet.clone("branch", "side")
    fleet.time -= 20_000
    fleet.push({}, "second")
    fleet.push({}, "third")
    since = fleet.push({}, "applied")
    fleet.clone("checkout", "-q", "side")
    fleet.clone.commit({"catalog/b.yaml": b"name: b\n"}, "aside", fleet.time + 1)
    fleet.clone("checkout", "-q", "main")
    fleet.clone("merge", "-q", "--no-ff", "-m", "merge", "side", time=fleet.time + 2)
    fleet.push({}, "later")

    assert said(follow(fleet), since) == []


def test_a_rewritten_history_does_not_repeat_what_was_allowed_once(fleet: Fleet):
    fleet.push({}, f"allowed\n\n{ALLOW}: 5")
    since = fleet.push({}, "applied")
    fleet.clone("commit", "-q", "--amend", "--allow-empty", "-m", "applied, again")
    fleet.push({}, f"new\n\n{ALLOW}: 1")

    assert said(follow(fleet), since) == [f"{ALLOW}=1"]


def test_a_branch_set_back_allows_nothing(fleet: Fleet):
    fleet.push({}, f"allowed\n\n{ALLOW}: 5")
    since = fleet.push({}, "applied")
    fleet.clone("reset", "-q", "--hard", "HEAD~1")
    fleet.clone("push", "-q", "-f", "origin", "main")

    assert said(follow(fleet), since) == []


@pytest.mark.parametrize("since", [None, "0" * 40, "not an id"])
def test_where_the_way_is_not_known_only_the_last_commit_counts(fleet: Fleet, since: str | None):
    fleet.push({}, f"before\n\n{ALLOW}: 1")
    fleet.push({}, f"last\n\n{ALLOW}: 2")

    assert said(follow(fleet), since) == ([] if since is None else [f"{ALLOW}=2"])


def test_a_source_that_was_never_polled_knows_no_trailer(fleet: Fleet):
    source = open_source(str(fleet.path), branch="main", state=Path("/nonexistent"))

    assert source.trailers_since(None) == ()


def test_a_walk_over_a_long_history_is_bounded(fleet: Fleet):
    since = fleet.bare("commit-tree", "main^{tree}", "-m", "unrelated", time=1_000_000_000)
    fleet.grow(2_500)

    assert said(follow(fleet), since) == []
