"""`llmgw key new`: a random key, shown once, and the lines for the repository that know it by its hash."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog.forms import NAME
from llmgw.cli.ending import silence
from llmgw.errors import Misused, OperatorError, Refused

SECTIONS = {"node": "nodes", "gateway": "gateways", "operator": "operators"}


def new(
    role: Annotated[str, typer.Argument(help="node, gateway, operator or client.")],
    name: Annotated[str, typer.Argument(help="Whose key it is.")],
    out: Annotated[Path | None, typer.Option(help="Write the key into this file, readable by its owner only.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Make a key. The repository keeps its hash; the key itself is printed once, or written to a file."""
    if role not in (*SECTIONS, "client"):
        raise Misused(
            f"there are no keys for a {role}", why="a caller is a node, gateway, operator or client", do="name one"
        )
    if not re.match(NAME, name):
        raise Misused(f"{name!r} is no name", why="names are of a-z, 0-9, . _ -", do="write it in small letters")
    key = f"llmgw-{role}-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    if out is not None:
        write_key(out, key)
    if json:
        shown = {"key": key} if out is None else {"key_file": str(out)}
        text = dumps({"role": role, "name": name, **shown, "sha256": digest, "add": _stanza(role, name, digest)})
    else:
        first = f"key (shown once): {key}" if out is None else f"key: written to {out}"
        text = f"{first}\n{_stanza(role, name, digest)}"
    _show(text, lost=out is None)


def _show(text: str, *, lost: bool) -> None:
    """Print it while a failure can still be told: a key that nobody saw is gone.

    Raises:
        OperatorError: it cannot be printed.
    """
    try:
        print(text, flush=True)
    except OSError as e:
        silence()
        if lost:
            raise OperatorError(
                "the key was not shown and is lost",
                why=f"{e.strerror}, and it is nowhere else",
                do="make another, and write no hash of this one into the repository",
            ) from None
        raise OperatorError(
            "the key is in its file, and its hash was not shown", why=str(e.strerror), do="make another, in a new file"
        ) from None


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
