"""Whose signature a commit carries, as ssh-keygen and gpg judge it by keys of this machine.

The library's own checks are not used: they take an expired and a revoked key
for a good one, and a commit without a signature for one with nothing wrong.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dulwich.objects import Commit, ObjectID
from dulwich.repo import Repo

from llmgw.errors import Refused
from llmgw.sources.objects import load

SSH = b"-----BEGIN SSH SIGNATURE-----"
PGP = b"-----BEGIN PGP SIGNATURE-----"
PGP_KEYS = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"

DEADLINE_S = 10.0
"""Either program takes 15 ms; one that takes this long is stuck."""

DISTRUSTED = {"BADSIG", "ERRSIG", "EXPKEYSIG", "EXPSIG", "NO_PUBKEY", "REVKEYSIG"}
"""What gpg says of a signature that is none, beside a code of 0 in some cases."""


class Signers(NamedTuple):
    """Whose signatures count: files of this machine, and nothing of the repository that they judge."""

    files: tuple[Path, ...]
    """Each an `allowed_signers` as ssh-keygen reads it, or armoured OpenPGP public keys."""
    revoked: Path | None = None
    """SSH keys that count no more."""

    def digest(self) -> str:
        """Changes with what is in them: what was judged by other keys is judged again.

        Raises:
            Refused: one cannot be read.
        """
        found = hashlib.sha256()
        for path in (*self.files, *([self.revoked] if self.revoked else ())):
            found.update(hashlib.sha256(_bytes(path)).digest())
        return found.hexdigest()


@dataclass(frozen=True, slots=True)
class _Signed:
    """A commit, taken apart."""

    what: str
    payload: bytes
    signature: bytes


def check(repo: Repo, commit_id: ObjectID, signers: Signers) -> str:
    """Who signed a commit, in the keys' own words.

    Raises:
        Refused: nobody whose signature counts did.
        Damaged: the commit cannot be had.
    """
    commit = load(repo, commit_id, Commit)
    what = f"commit {commit_id.decode()[:12]}"
    signature = commit.gpgsig or b""
    signed = _Signed(what, commit.raw_without_sig(), signature)
    if signature.startswith(SSH):
        return _by_ssh(signed, signers)
    if signature.startswith(PGP):
        return _by_pgp(signed, signers)
    raise _distrusted(what, "it carries a signature of no kind that is known" if signature else "it is not signed")


def _by_ssh(signed: _Signed, signers: Signers) -> str:
    allowed = [path for path in signers.files if not _holds_pgp(path)]
    why = "it is signed with an SSH key, and no file of signers lists any"
    with TemporaryDirectory(prefix="llmgw-signed-") as folder:
        written = Path(folder, "signature")
        written.write_bytes(signed.signature)
        for path in allowed:
            keys = ("-f", str(path), "-s", str(written))
            found = _run(["ssh-keygen", "-Y", "find-principals", *keys], b"")
            names = found.stdout.decode("utf-8", "replace").splitlines() if found.returncode == 0 else []
            why = f"its SSH key is not one of {path}"
            for name in names:
                revoked = ("-r", str(signers.revoked)) if signers.revoked else ()
                done = _run(["ssh-keygen", "-Y", "verify", *keys, "-I", name, "-n", "git", *revoked], signed.payload)
                if done.returncode == 0:
                    return name
                why = f"ssh-keygen does not take it for {name}'s: {_said(done)}"
    raise _distrusted(signed.what, why)


def _by_pgp(signed: _Signed, signers: Signers) -> str:
    keys = [path for path in signers.files if _holds_pgp(path)]
    if not keys:
        raise _distrusted(signed.what, "it is signed with an OpenPGP key, and no file of signers holds any")
    with TemporaryDirectory(prefix="llmgw-signed-") as folder:
        home = Path(folder)
        (home / "signature").write_bytes(signed.signature)
        (home / "payload").write_bytes(signed.payload)
        gpg = [
            "gpg",
            "--batch",
            "--no-tty",
            "--quiet",
            "--homedir",
            folder,
            "--no-autostart",
            "--trust-model",
            "always",
        ]
        for path in keys:
            _run([*gpg, "--import", str(path)], b"")
        told = _run(
            [*gpg, "--status-fd", "1", "--verify", str(home / "signature"), str(home / "payload")], b""
        ).stdout.decode("utf-8", "replace")
    lines = [line.split(" ", 3)[1:] for line in told.splitlines() if line.startswith("[GNUPG:] ")]
    words = [line[0] for line in lines if line]
    bad = sorted(DISTRUSTED.intersection(words))
    if bad or words.count("GOODSIG") != 1 or words.count("VALIDSIG") != 1:
        raise _distrusted(signed.what, f"gpg says {', '.join(bad) or 'that it is no good signature'}")
    # Its keyring is of the files' keys alone, so whoever it knows is one of theirs.
    return next(line[2] for line in lines if line[0] == "GOODSIG")


def _holds_pgp(path: Path) -> bool:
    return PGP_KEYS in _bytes(path)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise Refused(
            f"the file of signers {path} was not read",
            why=(e.strerror or type(e).__name__).lower(),
            do="name a file of allowed signers or of OpenPGP public keys",
        ) from None


def _run(command: Sequence[str], given: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, input=given, capture_output=True, check=False, timeout=DEADLINE_S)
    except FileNotFoundError:
        raise Refused(
            "signatures cannot be checked",
            why=f"there is no {command[0]} on this machine",
            do=f"install {'openssh-client' if command[0] == 'ssh-keygen' else 'gnupg'}",
        ) from None
    except subprocess.TimeoutExpired:
        raise Refused(
            "signatures cannot be checked",
            why=f"{command[0]} did not end within {DEADLINE_S:.0f} s",
            do=f"see why {command[0]} hangs on this machine",
        ) from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """Why, in the program's own words: the first line that has some."""
    text = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace")
    lines = [" ".join(re.sub(r"[^\x20-\x7e]", " ", line).split()) for line in text.splitlines()]
    return next((line[:200] for line in lines if line), "without a word")


def _distrusted(what: str, why: str) -> Refused:
    return Refused(
        f"{what} is not carried out",
        why=why,
        do="have it signed by one of the signers and pushed again, or add its signer's key to the file of --signers",
    )
