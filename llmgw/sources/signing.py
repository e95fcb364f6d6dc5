"""Signing our own commits, with an SSH key of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dulwich.objects import Commit

from llmgw.errors import Refused
from llmgw.sources.signatures import DEADLINE_S, SSH

NAMESPACE = "git"
"""What git itself signs for: `git verify-commit` takes no other."""


def sign(commit: Commit, key: Path) -> None:
    """Puts a signature on a commit. Its id is another one then.

    The key is read at each commit, so that a new one counts at once. One with a
    passphrase cannot be used: nobody is there to type it.

    Raises:
        Refused: ssh-keygen is not there, or does not take the key.
    """
    commit.gpgsig = _signature(commit.as_raw_string(), key)


def check(key: Path) -> None:
    """Signs something that nobody keeps, so that a key that cannot be used is found before there is a commit.

    Raises:
        Refused: as for `sign`.
    """
    _signature(b"llmgw", key)


def _signature(payload: bytes, key: Path) -> bytes:
    command = ["ssh-keygen", "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key)]
    try:
        done = subprocess.run(
            command,
            input=payload,
            capture_output=True,
            check=False,
            timeout=DEADLINE_S,
            # Without a terminal and a window it cannot ask for a passphrase.
            start_new_session=True,
            env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"},
        )
    except FileNotFoundError:
        raise _cannot("there is no ssh-keygen on this machine", "install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise _cannot(f"ssh-keygen did not end within {DEADLINE_S:.0f} s", "see why it hangs") from None
    if done.returncode != 0 or not done.stdout.startswith(SSH):
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:200] or "without a word"
        raise _cannot(f"ssh-keygen does not sign: {said}", f"name a private SSH key without a passphrase: {key}")
    return done.stdout.strip()


def _cannot(why: str, do: str) -> Refused:
    return Refused("the status cannot be signed", why=why, do=do)
