"""The status branch begins anew before it is too long, and its commits can carry a signature."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fakes.real_git import Fleet
from fakes.status_reader import FILES, NOW, REF, Open, commits, fsck, hook, write
from llmgw.errors import Refused
from llmgw.sources import rotation
from llmgw.sources.rotation import Place, place_of
from llmgw.sources.signing import check
from llmgw.sources.snapshot import Trailer

pytestmark = pytest.mark.needs_git

YEAR_S = 365 * 86_400


def trailer(fleet: Fleet, key: str, rev: str = REF) -> str:
    return fleet.bare("log", "-1", f"--format=%(trailers:key={key},valueonly)", rev).strip()


def test_each_commit_says_how_many_there_are_and_when_the_first_was(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    for n in range(3):
        write(status, {"README.md": b"%d" % n}, now=NOW + n)

    assert (trailer(fleet, "Llmgw-Seq"), trailer(fleet, "Llmgw-Began")) == ("3", "2030-03-17T17:46:40Z")


def test_a_branch_of_a_year_begins_anew_and_what_was_before_is_kept(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    write(status)
    old = write(status, {**FILES, "README.md": b"2"}, now=NOW + YEAR_S - 1)

    made = write(status, {**FILES, "README.md": b"3"}, now=NOW + YEAR_S)
    after = write(status, {**FILES, "README.md": b"4"}, now=NOW + YEAR_S + 1)

    assert commits(fleet) == [after, made]
    assert trailer(fleet, "Llmgw-Previous-Tip", made) == old
    assert (trailer(fleet, "Llmgw-Seq"), trailer(fleet, "Llmgw-Began")) == ("2", "2031-03-17T17:46:40Z")
    assert fleet.bare("for-each-ref", "--format=%(objectname) %(refname)", "refs/llmgw").split() == [
        old,
        f"refs/llmgw/archive/lab/2031-{old[:12]}",
    ]
    assert opens(url).read().files == {**FILES, "README.md": b"4"}
    fsck(fleet)


def test_a_branch_of_too_many_commits_begins_anew(fleet: Fleet, url: str, opens: Open, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rotation, "COMMITS", 3)
    status = opens(url)

    made = [write(status, {"README.md": b"%d" % n}) for n in range(4)]

    assert commits(fleet) == made[3:]


def test_where_the_server_lets_nobody_begin_anew_it_goes_on_and_that_is_said(
    fleet: Fleet, remote: str, opens: Open, caplog: pytest.LogCaptureFixture
):
    fleet.bare("config", "receive.denyNonFastForwards", "true")
    status = opens(remote)
    first = write(status)

    made = [write(status, {**FILES, "README.md": b"%d" % n}, now=NOW + YEAR_S + n) for n in range(2)]

    assert commits(fleet) == [*made[::-1], first]
    (said,) = [r.getMessage() for r in caplog.records if "begun anew" in r.getMessage()]
    assert "non-fast-forward" in said


def test_where_no_name_can_be_given_to_what_was_nothing_is_thrown_away(fleet: Fleet, remote: str, opens: Open):
    hook(fleet, "update", 'case "$1" in refs/llmgw/*) echo "no such names here"; exit 1;; esac')
    status = opens(remote)
    first = write(status)

    made = write(status, {**FILES, "README.md": b"2"}, now=NOW + YEAR_S)

    assert commits(fleet) == [made, first]


@pytest.mark.parametrize(
    ("trailers", "place"),
    [
        ({}, Place(0, 1000)),
        ({"Llmgw-Seq": "7", "Llmgw-Began": "1970-01-01T00:00:09Z"}, Place(7, 9)),
        ({"Llmgw-Seq": "-7", "Llmgw-Began": "yesterday"}, Place(0, 1000)),
        ({"Llmgw-Seq": "9" * 400, "Llmgw-Began": "2030-02-30T00:00:00Z"}, Place(0, 1000)),
    ],
)
def test_what_a_person_wrote_into_a_commit_is_counted_from_there(trailers, place):
    assert place_of([Trailer(k, v, "c" * 40) for k, v in trailers.items()], 1000.5) == place


def test_a_beginning_to_come_is_of_a_clock_that_was_wrong():
    assert Place(3, 9_000).after(1_000.0) == Place(4, 1_000)


def a_key(at: Path, *, passphrase: str = "") -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "control", "-f", str(at)], check=True, timeout=60
    )
    return at


def test_a_commit_is_signed_as_git_itself_verifies_it(fleet: Fleet, url: str, opens: Open, tmp_path: Path):
    key = a_key(tmp_path / "key")
    allowed = tmp_path / "allowed"
    allowed.write_text(f"control@lab {key.with_suffix('.pub').read_text()}")
    status = opens(url, sign_key=key)

    for n in range(2):
        commit = write(status, {"README.md": b"%d" % n})

    assert commits(fleet)[0] == commit
    fleet.bare("-c", f"gpg.ssh.allowedSignersFile={allowed}", "verify-commit", commit)
    fsck(fleet)


def test_a_key_that_cannot_be_used_is_an_error_that_says_so_and_not_an_unsigned_commit(
    fleet: Fleet, opens: Open, tmp_path: Path
):
    locked = a_key(tmp_path / "locked", passphrase="five words")

    for key in (locked, tmp_path / "absent", Path("/etc/hostname")):
        with pytest.raises(Refused, match="the status cannot be signed"):
            check(key)
        with pytest.raises(Refused, match="the status cannot be signed"):
            write(opens(str(fleet.path), sign_key=key))

    assert fleet.bare("for-each-ref", REF) == ""
