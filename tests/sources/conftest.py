"""A repository made by git itself, and a server for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.git_http import GitServer
from fakes.real_git import SERVER_YAML, Fleet


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
