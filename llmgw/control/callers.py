"""Who may call control, by the hash of the key: server.yaml's, and those of this machine's own file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from llmgw.catalog.server import Server
from llmgw.errors import Refused
from llmgw.net.decoding import decode


class Role(StrEnum):
    """What a key opens."""

    NODE = "node"
    """Its own report."""
    GATEWAY = "gateway"
    """The table and demand."""
    OPERATOR = "operator"
    """Everything else."""


class CallerId(NamedTuple):
    """Whose key it is."""

    role: Role
    name: str


class LocalKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hashes that are not in the repository: what `llmgw up` makes for its own processes."""

    nodes: dict[str, str] = {}
    """sha256 by name."""
    gateways: dict[str, str] = {}
    operators: dict[str, str] = {}


def read_local(path: Path) -> LocalKeys:
    """The hashes in a JSON file.

    Raises:
        Refused: it cannot be read.
    """
    try:
        return decode(path.read_bytes(), LocalKeys)
    except (OSError, msgspec.DecodeError) as e:
        raise Refused(
            f"the local keys {path} cannot be read", why=str(e), do="write {nodes, gateways, operators}: name to sha256"
        ) from None


def callers(server: Server, local: LocalKeys) -> Mapping[str, CallerId]:
    """Who is who, by the sha256 of the key. The repository's word counts for a name it gives a key."""
    found: dict[str, CallerId] = {}
    for role, known, entries in (
        (Role.NODE, local.nodes, server.nodes),
        (Role.GATEWAY, local.gateways, server.gateways),
        (Role.OPERATOR, local.operators, server.operators),
    ):
        for entry in entries:
            if sha := entry.key_sha256 or known.get(entry.name):
                found[sha] = CallerId(role, entry.name)
    for name, sha in local.operators.items():
        # An operator of this machine needs no entry: whoever may read this file may do as much without it.
        found.setdefault(sha, CallerId(Role.OPERATOR, name))
    return found


def sha256_of(key: str) -> str:
    """How a key is told from others without being kept."""
    return hashlib.sha256(key.encode()).hexdigest()
