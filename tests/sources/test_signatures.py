"""Whose commits are followed: signatures judged by ssh-keygen and gpg, with keys of this machine alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fakes.real_git import Fleet
from llmgw.errors import Refused
from llmgw.sources.access import OnRewrite, Verify
from llmgw.sources.admission import Admission, NotAdmitted
from llmgw.sources.git import open_source
from llmgw.sources.signatures import Signers

pytestmark = [pytest.mark.needs_gpg, pytest.mark.needs_git, pytest.mark.xdist_group("signatures")]


class Keys:
    """Keys of people, made once, and the files that say whose count."""

    def __init__(self, at: Path) -> None:
        self.at = at
        for name in ("ana", "bob"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(at / name))
        self.gpg("ana", "seconds=100y")
        # Made and expired long ago, as far as gpg is told of the time.
        self.gpg("late", "1d", "--faked-system-time", "20200101T000000")
        self.gpg("gone", "seconds=100y")
        self.revoke("gone")

    def allowed(self, name: str, *, principal: str = "ana@lab", options: str = "") -> Path:
        path = self.at / f"allowed-{name}-{abs(hash((principal, options)))}"
        path.write_text(f"{principal} {options} {(self.at / f'{name}.pub').read_text()}")
        return path

    def gpg(self, name: str, expires: str, *more: str) -> None:
        home = self.at / f"gpg-{name}"
        home.mkdir(mode=0o700)
        keys = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", "--pinentry-mode", "loopback"]
        run(*keys, *more, "--quick-generate-key", f"{name} <{name}@lab>", "ed25519", "sign", expires)
        self.publish(name)

    def revoke(self, name: str) -> None:
        home = self.at / f"gpg-{name}"
        (found,) = (home / "openpgp-revocs.d").iterdir()
        text = found.read_text().replace(":-----BEGIN", "-----BEGIN")
        (self.at / "revocation").write_text(text)
        self.revocation = self.at / "revocation"

    def publish(self, name: str) -> Path:
        home = self.at / f"gpg-{name}"
        (self.at / f"{name}.asc").write_bytes(run("gpg", "--homedir", str(home), "--armor", "--export"))
        return self.at / f"{name}.asc"

    def published_as_revoked(self, name: str) -> Path:
        home = self.at / f"gpg-{name}"
        run("gpg", "--homedir", str(home), "--batch", "--quiet", "--import", str(self.revocation))
        return self.publish(name)


def run(*command: str) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, (command, done.stderr.decode())
    return done.stdout


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    # The path of gpg's socket is bounded.
    return Keys(tmp_path_factory.mktemp("k"))


def by_ssh(fleet: Fleet, keys: Keys, name: str, files: dict[str, bytes], *, push: bool = True) -> str:
    return _signed(fleet, files, ("gpg.format", "ssh"), ("user.signingkey", str(keys.at / name)), push=push)


def by_gpg(fleet: Fleet, keys: Keys, name: str, files: dict[str, bytes], *, faked: str = "") -> str:
    program = keys.at / f"sign-{name}"
    program.write_text(f'#!/bin/sh\nexec gpg --homedir {keys.at / f"gpg-{name}"} {faked} --batch --quiet "$@"\n')
    program.chmod(0o755)
    return _signed(fleet, files, ("gpg.program", str(program)), ("user.signingkey", f"{name}@lab"), push=True)


def _signed(fleet: Fleet, files: dict[str, bytes], *settings: tuple[str, str], push: bool) -> str:
    fleet.time += 10
    fleet.clone.write(files)
    fleet.clone("add", "-A")
    said = [part for key, value in settings for part in ("-c", f"{key}={value}")]
    fleet.clone(*said, "commit", "-S", "-m", "a signed change", time=fleet.time)
    if push:
        fleet.clone("push", "-q", "-f", "origin", "HEAD:refs/heads/main")
    return fleet.clone("rev-parse", "HEAD")


def following(fleet: Fleet, tmp_path: Path, *files: Path, verify: Verify = Verify.HEAD, **more: object):
    revoked = more.pop("revoked", None)
    admission = Admission(signers=Signers(files, revoked), verify=verify, **more)
    return open_source(str(fleet.path), branch="main", state=tmp_path / "state", admission=admission)


def why_not(source) -> str:
    with pytest.raises(NotAdmitted) as e:
        source.poll()
    return str(e.value)


def test_a_commit_that_an_allowed_ssh_key_signed_is_followed(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    commit = by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})

    assert following(fleet, tmp_path, keys.allowed("ana")).poll().commit == commit


@pytest.mark.parametrize(
    ("why", "options"),
    [
        ("not one of", None),
        ("ssh-keygen does not take it", 'namespaces="file"'),
        ("not one of", 'valid-before="20200101"'),
    ],
    ids=["another's key", "a key for files only", "a key that expired"],
)
def test_an_ssh_signature_that_does_not_count_holds_the_commit(
    fleet: Fleet, keys: Keys, tmp_path: Path, why: str, options: str | None
) -> None:
    by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})
    allowed = keys.allowed("bob") if options is None else keys.allowed("ana", options=options)

    assert why in why_not(following(fleet, tmp_path, allowed))


def test_a_revoked_ssh_key_does_not_count_and_another_one_goes_on_counting(
    fleet: Fleet, keys: Keys, tmp_path: Path
) -> None:
    by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})

    taken_back = keys.at / "ana.pub"
    assert "does not take it" in why_not(following(fleet, tmp_path, keys.allowed("ana"), revoked=taken_back))
    assert following(fleet, tmp_path, keys.allowed("ana"), revoked=keys.at / "bob.pub").poll()


def test_one_expired_entry_of_a_file_leaves_the_others_as_they_are(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})
    both = keys.at / "both"
    expired = keys.allowed("bob", principal="bob@lab", options='valid-before="20200101"').read_text()
    both.write_text(expired + keys.allowed("ana").read_text())

    assert following(fleet, tmp_path, both).poll()


def test_a_commit_that_is_not_signed_is_held_and_what_came_before_stays(
    fleet: Fleet, keys: Keys, tmp_path: Path
) -> None:
    signed = by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})
    source = following(fleet, tmp_path, keys.allowed("ana"))
    assert source.poll().commit == signed

    fleet.push({"catalog/c.yaml": b"name: c\n"})

    assert "it is not signed" in why_not(source)
    assert source.held().commit == signed

    mended = by_ssh(fleet, keys, "ana", {"catalog/d.yaml": b"name: d\n"})
    assert source.poll().commit == mended


def test_a_range_needs_every_commit_signed_and_a_head_the_last_one(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    start = by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})
    fleet.push({"catalog/c.yaml": b"name: c\n"})
    head = by_ssh(fleet, keys, "ana", {"catalog/d.yaml": b"name: d\n"})

    assert following(fleet, tmp_path, keys.allowed("ana"), verify=Verify.HEAD, since=start).poll().commit == head
    assert "it is not signed" in why_not(
        following(fleet, tmp_path, keys.allowed("ana"), verify=Verify.RANGE, since=start)
    )


def test_a_range_is_judged_over_http_where_only_the_last_commit_was_fetched(
    fleet: Fleet, remote: str, keys: Keys, tmp_path: Path
) -> None:
    start = by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})
    fleet.push({"catalog/c.yaml": b"name: c\n"})
    by_ssh(fleet, keys, "ana", {"catalog/d.yaml": b"name: d\n"})
    admission = Admission(signers=Signers((keys.allowed("ana"),)), verify=Verify.RANGE, since=start)
    source = open_source(remote, branch="main", state=tmp_path / "state", admission=admission)

    assert "it is not signed" in why_not(source)
    source.close()


def test_taking_a_key_out_of_the_file_holds_the_commit_that_it_signed(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})
    file = tmp_path / "signers"
    file.write_text(keys.allowed("ana").read_text())
    source = following(fleet, tmp_path, file)
    source.poll()

    file.write_text(keys.allowed("bob").read_text())

    assert "not one of" in why_not(source)


def test_a_good_openpgp_signature_is_followed(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    commit = by_gpg(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})

    assert following(fleet, tmp_path, keys.at / "ana.asc").poll().commit == commit
    assert "NO_PUBKEY" in why_not(following(fleet, tmp_path, keys.at / "late.asc"))
    assert "no file of signers holds any" in why_not(following(fleet, tmp_path, keys.allowed("ana")))


def test_an_openpgp_key_that_expired_or_was_revoked_does_not_count(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    by_gpg(fleet, keys, "late", {"catalog/b.yaml": b"name: b\n"}, faked="--faked-system-time 20200101T010000")
    assert "EXPKEYSIG" in why_not(following(fleet, tmp_path, keys.at / "late.asc"))

    commit = by_gpg(fleet, keys, "gone", {"catalog/c.yaml": b"name: c\n"})
    assert following(fleet, tmp_path, keys.at / "gone.asc").poll().commit == commit
    assert "REVKEYSIG" in why_not(following(fleet, tmp_path, keys.published_as_revoked("gone")))


def test_a_changed_commit_under_an_old_signature_is_held(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})
    text = fleet.clone("cat-file", "commit", "HEAD").replace("a signed change", "another change") + "\n"
    forged = fleet.clone("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode())
    fleet.clone("push", "-q", "-f", "origin", f"{forged}:refs/heads/main")

    assert "ssh-keygen does not take it" in why_not(following(fleet, tmp_path, keys.allowed("ana")))


def test_without_a_file_of_signers_nothing_can_be_verified(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nobody to believe"):
        Admission(verify=Verify.HEAD)


def test_a_file_of_signers_that_is_gone_holds_everything(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    by_ssh(fleet, keys, "ana", {"catalog/b.yaml": b"name: b\n"})

    with pytest.raises(Refused, match="file of signers"):
        following(fleet, tmp_path, tmp_path / "nobody").poll()


def test_a_rewritten_branch_is_followed_or_held_as_told(fleet: Fleet, tmp_path: Path) -> None:
    """fluxcd/flux#696: a rewritten branch stopped the puller for good."""
    first = fleet.clone("rev-parse", "HEAD")
    fleet.push({"catalog/b.yaml": b"name: b\n"})
    source = {
        on: open_source(
            str(fleet.path), branch="main", state=tmp_path / on, admission=Admission(on_rewrite=OnRewrite(on))
        )
        for on in ("follow", "hold")
    }
    before = {on: s.poll().commit for on, s in source.items()}

    fleet.clone("reset", "--hard", first)
    rewritten = fleet.push({"catalog/c.yaml": b"name: c\n"})

    followed = source["follow"].poll()
    assert (followed.commit, followed.rewritten) == (rewritten, True)
    assert "was rewritten" in why_not(source["hold"])
    assert source["hold"].held().commit == before["hold"]

    fleet.clone("merge", "-q", "-s", "ours", "-m", "both", before["hold"])
    fleet.clone("push", "-q", "origin", "HEAD:refs/heads/main")
    assert source["hold"].poll().commit == fleet.clone("rev-parse", "HEAD")


def test_the_keys_that_judge_are_never_those_of_the_repository(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    """A commit that brings its own list of signers, and settings of git that would trust it."""
    mine = keys.allowed("bob", principal="*").read_bytes()
    by_ssh(fleet, keys, "bob", {".allowed_signers": mine, "keys/signers.yaml": b"{}\n"})
    fleet.bare("config", "gpg.ssh.allowedSignersFile", str(keys.allowed("bob", principal="*")))

    assert "not one of" in why_not(following(fleet, tmp_path, keys.allowed("ana")))
