"""A repository in several places: while the first is away the next is followed, and nothing goes back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.git_http import Fault, GitServer
from fakes.real_git import Fleet
from llmgw.errors import Unreachable
from llmgw.sources.access import Access, Limits
from llmgw.sources.git import open_source
from llmgw.sources.several import Several

AWAY = Fault(status=503, only="first.git")


class Places:
    """Two copies of a repository, and a source that follows both."""

    def __init__(self, fleet: Fleet, server: GitServer, state: Path) -> None:
        self.fleet, self.server = fleet, server
        self.paths = {name: fleet.path.parent / f"{name}.git" for name in ("first", "second")}
        for path in self.paths.values():
            shutil.copytree(fleet.path, path)
        access = Access(limits=Limits(connect_s=4, read_s=2, total_s=8))
        self.source = Several(
            [open_source(server.url(f"{name}.git"), branch="main", state=state, access=access) for name in self.paths]
        )

    def push(self, name: str, *to: str) -> str:
        commit = self.fleet.push({f"catalog/{name}.yaml": f"name: {name}\n".encode()})
        for place in to:
            self.fleet.clone("push", "-q", "-f", str(self.paths[place]), "HEAD:refs/heads/main")
        return commit


@pytest.fixture
def places(fleet: Fleet, server: GitServer, tmp_path: Path) -> Iterator[Places]:
    made = Places(fleet, server, tmp_path / "state")
    yield made
    made.source.close()


def test_while_the_first_is_away_the_next_is_followed_and_said(places: Places) -> None:
    places.source.poll()
    commit = places.push("b", "second")
    assert places.source.poll().commit != commit, "the first one counts while it answers"

    places.server.fault = AWAY

    assert places.source.poll().commit == commit
    assert "first.git is away since 20" in places.source.trouble
    assert "second.git is followed" in places.source.trouble
    assert places.source.trailers_since(commit) == ()


def test_the_first_is_followed_again_once_it_has_what_the_next_had(places: Places) -> None:
    places.source.poll()
    commit = places.push("b", "second")
    places.server.fault = AWAY
    places.source.poll()

    places.server.fault = None
    assert places.source.poll().commit == commit, "nothing goes back to what the first one still has"
    assert "lacks commit" in places.source.trouble

    later = places.push("c", "first")
    assert places.source.poll().commit == later
    assert places.source.trouble == ""


def test_a_place_that_does_not_go_on_from_what_is_followed_is_not_taken(places: Places) -> None:
    before = places.source.poll().commit
    places.fleet.clone("checkout", "-q", "--orphan", "other")
    places.push("b", "second")
    places.server.fault = AWAY

    with pytest.raises(Unreachable, match="since 20"):
        places.source.poll()
    assert places.source.held().commit == before


def test_all_places_away_is_unreachable_and_what_was_followed_stays(places: Places) -> None:
    before = places.source.poll().commit
    places.server.fault = Fault(status=503)

    with pytest.raises(Unreachable):
        places.source.poll()
    assert places.source.held().commit == before


def test_a_fleet_starts_from_the_next_place_while_the_first_is_away(places: Places) -> None:
    places.server.fault = AWAY

    assert places.source.poll().commit == places.fleet.clone("rev-parse", "HEAD")
