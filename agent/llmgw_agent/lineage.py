"""Which agent this is: one machine, user, node and state folder, known again without anything on disk.

A name kept in the state folder would go with the folder, and every engine with
it: nobody could say any more whose they are.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

from llmgw_agent import durable

MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def owner(node: str, state: Path) -> str:
    """The beginning of every marker of this agent's engines."""
    return _sum(_machine(), str(os.getuid()), node, str(state.absolute()))


def instance(owner: str) -> str:
    """What tells this agent from a second one of its name, a copy of this whole machine included.

    A copied machine has the same machine id and is seldom left with the same
    host name, which may change and so is no part of the owner.
    """
    return _sum(owner, socket.gethostname())


def _machine() -> str:
    """The machine's own id; empty where there is none, as in many containers."""
    return next((said.strip() for file in MACHINE_IDS if (said := durable.read_text(file))), "")


def _sum(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
