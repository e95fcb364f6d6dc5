"""A repository behind smart HTTP, followed through a private copy: the real git serves it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fakes.git_http import GitServer
from fakes.private_copy import copies, follow, fsck, shallow
from fakes.real_git import Fleet
from llmgw.errors import Refused
from llmgw.sources.git import Source, open_source

pytestmark = pytest.mark.needs_git


@pytest.mark.parametrize("protocol_2", [True, False])
def test_a_push_is_seen_at_the_next_poll(fleet: Fleet, server: GitServer, source: Source, protocol_2: bool):
    server.protocol_2 = protocol_2
    first = source.poll()
    commit = fleet.push({"catalog/b.yaml": b"name: b\n"})

    found = source.poll()

    assert list(first.files) == ["catalog/a.yaml", "server.yaml"]
    assert (found.commit, found.rewritten) == (commit, False)
    assert list(found.files) == ["catalog/a.yaml", "catalog/b.yaml", "server.yaml"]
    assert source.watch_paths() == ()


def test_case_10_an_unchanged_repository_costs_one_query_however_many_models(
    fleet: Fleet, source: Source, server: GitServer
):
    fleet.push({f"catalog/m{n}.yaml": b"name: m%d\n" % n for n in range(500)})
    before = source.poll()
    server.asked.clear()

    for _ in range(5):
        assert source.poll() == before

    # Protocol 2 takes two requests to list one ref.
    assert server.asked == {"GET service=git-upload-pack": 5, "POST git-upload-pack": 5}


def test_at_fetches_where_nothing_was_polled_yet(fleet: Fleet, source: Source):
    assert source.at("main").commit == fleet.clone("rev-parse", "HEAD")


def test_force_pushes_and_branches_made_again_are_followed_for_ever(fleet: Fleet, source: Source, tmp_path: Path):
    old = fleet.push({"catalog/old.yaml": b"name: old\n"})
    fleet.push({"catalog/old.yaml": None})
    source.poll()
    said = []
    for n in range(14):
        if n % 7 == 2:  # To before where our history begins, and what was removed there.
            fleet.clone("reset", "-q", "--hard", old)
        elif n % 7 == 4:  # An unrelated root.
            fleet.clone("checkout", "-q", "--orphan", f"root{n}")
        commit = fleet.push({f"catalog/m{n}.yaml": b"name: m\n"})
        found = source.poll()
        assert found.commit == commit
        assert f"catalog/m{n}.yaml" in found.files
        assert ("catalog/old.yaml" in found.files) is (n > 1)
        said.append(found.rewritten)

    assert [n for n, rewritten in enumerate(said) if rewritten] == [2, 4, 9, 11]
    assert [copy.name for copy in copies(tmp_path / "state")] == ["copy-1"]
    assert shallow(tmp_path / "state") == 1
    fsck(tmp_path / "state")


def test_set_back_to_an_older_commit_is_followed_and_said(fleet: Fleet, source: Source):
    first = source.poll()
    fleet.push({"catalog/b.yaml": b"name: b\n"})
    source.poll()
    fleet.clone("reset", "-q", "--hard", "HEAD~1")
    fleet.clone("push", "-q", "-f", "origin", "main")

    found = source.poll()

    assert (found.commit, found.rewritten) == (first.commit, True)


def test_case_27_a_branch_that_is_gone_is_an_error_and_not_an_empty_catalog(fleet: Fleet, source: Source):
    before = source.poll()
    fleet.bare("branch", "other", "main")
    fleet.bare("update-ref", "-d", "refs/heads/main")

    with pytest.raises(Refused) as refused:
        source.poll()

    assert refused.value.why == "its branches are other"
    assert source.held() == before
    commit = fleet.push({"catalog/b.yaml": b"name: b\n"})
    assert source.poll().commit == commit


def test_case_29_an_emptied_catalog_is_an_empty_catalog(fleet: Fleet, source: Source):
    source.poll()
    fleet.push({"catalog/a.yaml": None})

    found = source.poll()

    assert (list(found.files), found.bad) == (["server.yaml"], ())


def test_a_repository_without_commits_says_what_to_do(tmp_path: Path, server: GitServer):
    Fleet(tmp_path)
    source = follow(server, tmp_path / "state")

    with pytest.raises(Refused) as refused:
        source.poll()

    assert refused.value.do == "commit and push to main"
    assert source.held() is None
    source.close()


def test_trailers_before_what_is_held_are_fetched_when_they_matter(fleet: Fleet, source: Source, tmp_path: Path):
    since = fleet.push({}, "applied")
    fleet.push({}, "removal\n\nLlmgw-Allow-Removals: 3")
    fleet.push({}, "last")
    source.poll()  # Control was restarted with an empty disk: one commit is held.

    assert [t.value for t in source.trailers_since(since)] == ["3"]
    fsck(tmp_path / "state")


def test_a_rewritten_history_that_is_held_asks_the_server_for_no_more(fleet: Fleet, source: Source, server: GitServer):
    since = source.poll().commit
    fleet.clone("commit", "-q", "--amend", "-m", "amended\n\nLlmgw-Allow-Removals: 3")
    fleet.push({}, "last\n\nLlmgw-Allow-Removals: 1")
    source.poll()
    server.asked.clear()

    assert [t.value for t in source.trailers_since(since)] == ["1"]
    assert server.requests == 0


def test_a_rewrite_while_control_was_down_is_said(fleet: Fleet, server: GitServer, tmp_path: Path):
    source = follow(server, tmp_path / "state")
    source.poll()
    source.close()
    fleet.clone("commit", "-q", "--amend", "-m", "amended")
    fleet.push({})

    again = follow(server, tmp_path / "state")

    assert again.poll().rewritten
    again.close()


def test_a_push_in_the_middle_of_a_fetch_is_seen_now_or_next(fleet: Fleet, server: GitServer, source: Source):
    source.poll()
    pushed = [fleet.push({"catalog/b.yaml": b"name: b\n"})]

    def push_again(path: str) -> None:
        if path.endswith("/git-upload-pack") and len(pushed) < 4:
            pushed.append(fleet.push({"catalog/b.yaml": b"# %d\n" % len(pushed)}))

    server.before = push_again

    assert source.poll().commit in pushed
    assert source.poll().commit == pushed[-1]


def test_pushes_during_polls_are_all_arrived_at(fleet: Fleet, source: Source):
    source.poll()
    done = threading.Event()

    def push() -> None:
        for n in range(15):
            fleet.push({"catalog/a.yaml": b"# %d\n" % n})
        done.set()

    pushing = threading.Thread(target=push)
    pushing.start()
    while not done.is_set():
        assert not source.poll().rewritten
    pushing.join()

    assert source.poll().files["catalog/a.yaml"].data == b"# 14\n"


def test_a_shallow_server_is_followed(fleet: Fleet, server: GitServer, tmp_path: Path):
    fleet.grow(20)
    fleet.bare("clone", "-q", "--bare", "--depth", "3", f"file://{fleet.path}", str(tmp_path / "shallow.git"))
    source = open_source(server.url("shallow.git"), branch="main", state=tmp_path / "state")

    assert source.poll().commit == fleet.bare("rev-parse", "main")
    source.close()
