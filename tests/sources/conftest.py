"""A repository made by git itself, and a server for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.git_http import GitServer
from fakes.real_git import SERVER_YAML, Fleet
from fakes.status_reader import Open
from llmgw.sources.git import Source, open_source
from llmgw.sources.status_branch import StatusBranch


@pytest.fixture(scope="session")
def one_model(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Made once, and only copied."""
    made = Fleet(tmp_path_factory.mktemp("one_model"))
    made.push({"server.yaml": SERVER_YAML, "catalog/a.yaml": b"name: a\n"}, "the first model")
    return made


@pytest.fixture
def fleet(one_model: Fleet, tmp_path: Path) -> Fleet:
    """With one commit of one model."""
    return one_model.copy(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """Serves what is in tmp_path."""
    with GitServer(tmp_path) as served:
        yield served


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


@pytest.fixture
def source(fleet: Fleet, server: GitServer, tmp_path: Path) -> Iterator[Source]:
    """Follows the fleet's repository over HTTP."""
    made = open_source(server.url("fleet.git"), branch="main", state=tmp_path / "state")
    yield made
    made.close()
