"""A repository over ssh: the real sshd, the real git, and what goes wrong between them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.real_git import Fleet
from fakes.sshd import QUICK, Sshd
from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources.access import Access
from llmgw.sources.git import Source, open_source
from llmgw.sources.status_branch import StatusBranch

pytestmark = [pytest.mark.needs_sshd, pytest.mark.needs_git, pytest.mark.xdist_group("sshd")]

HANGS_S = 60.0
"""A call that takes longer than this hangs."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd") / "sshd") as served:
        yield served


@pytest.fixture
def sshd(running: Sshd) -> Iterator[Sshd]:
    yield running
    running.runs("")
    running.known("host")


def following(sshd: Sshd, path: Path, tmp_path: Path, access: Access | None = None) -> Source:
    return open_source(sshd.url(path), branch="main", state=tmp_path / "state", access=access or sshd.access())


def fails(source: Source) -> OperatorError:
    begun = time.monotonic()
    with pytest.raises(OperatorError) as e:
        source.poll()
    assert time.monotonic() - begun < HANGS_S
    return e.value


def test_a_repository_over_ssh_is_followed_from_commit_to_commit(sshd: Sshd, fleet: Fleet, tmp_path: Path) -> None:
    source = following(sshd, fleet.path, tmp_path)

    first = source.poll()
    assert list(first.files) == ["catalog/a.yaml", "server.yaml"]
    second = fleet.push({"catalog/b.yaml": b"name: b\n"}, "another\n\nLlmgw-Allow-Removals: 2")
    found = source.poll()
    assert (found.commit, found.rewritten, "catalog/b.yaml" in found.files) == (second, False, True)
    assert [t.value for t in source.trailers_since(first.commit)] == ["2"]
    source.close()


def test_the_status_is_written_over_ssh(sshd: Sshd, fleet: Fleet, tmp_path: Path) -> None:
    status = StatusBranch(sshd.url(fleet.path), "lab", tmp_path / "state", sshd.access())

    assert status.write({"README.md": b"# lab\n"}, subject="as asked", author="llmgw <llmgw@lab>", now=1_800_000_000)
    assert fleet.bare("show", "llmgw/status/lab:README.md") == "# lab"
    status.close()


@pytest.mark.parametrize("written", ["root@localhost:{path}", "ssh://root@127.0.0.1/{path}"])
def test_an_address_is_shown_without_its_user(fleet: Fleet, tmp_path: Path, written: str) -> None:
    source = open_source(written.format(path=fleet.path), branch="main", state=tmp_path / "state")

    assert "root@" not in source.shown
    assert source.shown.endswith(str(fleet.path))
    source.close()


@pytest.mark.parametrize("address", ["-oProxyCommand=true:x", "ssh://-oProxyCommand=true/x", "ssh://u:secret@h/x"])
def test_an_address_that_would_be_an_option_or_holds_a_password_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(Refused) as e:
        open_source(address, branch="main", state=tmp_path / "state")
    assert "secret" not in str(e.value)


def test_a_key_of_the_host_that_changed_is_refused_and_what_was_followed_stays(
    sshd: Sshd, fleet: Fleet, tmp_path: Path
) -> None:
    """source-controller#490, flux2#5385: a provider changes its keys, and every cluster stops at once."""
    source = following(sshd, fleet.path, tmp_path)
    before = source.poll().commit
    sshd.known("other-host")

    error = fails(source)

    assert isinstance(error, Refused)
    assert "the key of its host is not the one that is known" in error.why
    assert source.held().commit == before
    sshd.known("other-host", "host")
    assert source.poll().commit == before, "of several keys of one host, one that fits is enough"
    source.close()


def test_a_key_that_the_server_does_not_know_is_refused(sshd: Sshd, fleet: Fleet, tmp_path: Path) -> None:
    error = fails(following(sshd, fleet.path, tmp_path, sshd.access("stranger")))

    assert isinstance(error, Refused)
    assert "does not know our key" in error.why


def test_a_repository_that_is_not_there_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    error = fails(following(sshd, tmp_path / "nothing.git", tmp_path))

    assert isinstance(error, Refused)
    assert "no such repository" in error.why


def test_a_server_that_hangs_is_left_at_the_deadline_and_the_next_look_works(
    sshd: Sshd, fleet: Fleet, tmp_path: Path
) -> None:
    """argo-cd#20785: an ssh child that hung held the lock, and every later refresh."""
    sshd.runs("sleep 600")
    source = following(sshd, fleet.path, tmp_path, replace(sshd.access(), limits=replace(QUICK, total_s=2)))

    error = fails(source)
    sshd.runs("")

    assert isinstance(error, Unreachable)
    assert "did not finish within 2 s" in error.why
    assert source.poll().commit
    source.close()


def test_a_flood_of_errors_from_the_server_does_not_stop_the_exchange(sshd: Sshd, fleet: Fleet, tmp_path: Path) -> None:
    """The library's own way waits for ever at the 65th KiB."""
    sshd.runs("head -c 300000 /dev/zero | tr '\\0' 'x' >&2")
    source = following(sshd, fleet.path, tmp_path)

    assert source.poll().commit
    source.close()


def test_nobody_listening_is_unreachable(sshd: Sshd, tmp_path: Path) -> None:
    source = open_source("ssh://root@127.0.0.1:1/x.git", branch="main", state=tmp_path / "s", access=sshd.access())

    error = fails(source)

    assert isinstance(error, Unreachable)
    assert "nothing answers at its address" in error.why
    source.close()
