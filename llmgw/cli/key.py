"""`llmgw key new`: a random key, shown once, and the lines for the repository that know it by its hash."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog.fields import NAME
from llmgw.errors import Misused, Refused

SECTIONS = {"node": "nodes", "gateway": "gateways", "operator": "operators"}


def new(
    role: Annotated[str, typer.Argument(help="node, gateway, operator or client.")],
    name: Annotated[str, typer.Argument(help="Whose key it is.")],
    out: Annotated[Path | None, typer.Option(help="Write the key into this file, readable by its owner only.")] = None,
) -> None:
    """Make a key. The repository keeps its hash; the key itself is printed once, or written to a file."""
    if role not in (*SECTIONS, "client"):
        raise Misused(
            f"there are no keys for a {role}", why="a caller is a node, gateway, operator or client", do="name one"
        )
    if not re.match(NAME, name):
        raise Misused(f"{name!r} is no name", why="names are of a-z, 0-9, . _ -", do="write it in small letters")
    key = f"llmgw-{role}-{secrets.token_urlsafe(32)}"
    if out is None:
        print(f"key (shown once): {key}")
    else:
        write_key(out, key)
        print(f"key: written to {out}")
    print(_stanza(role, name, hashlib.sha256(key.encode()).hexdigest()))


def write_key(path: Path, key: str) -> None:
    """Write a key where nobody else may read it, and never over another.

    Raises:
        Refused: something is there, or it cannot be written.
    """
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{key}\n")
    except OSError as e:
        raise Refused(f"the key was not written to {path}", why=str(e.strerror), do="name a new file") from None


def _stanza(role: str, name: str, sha256: str) -> str:
    if role == "client":
        return f"keys/{name}.yaml:\n  - name: {name}\n    sha256: {sha256}"
    address = ", address: ADDRESS" if role == "node" else ""
    return f"server.yaml, under {SECTIONS[role]}:\n  - {{name: {name}{address}, key_sha256: {sha256}}}"
