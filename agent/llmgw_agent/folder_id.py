"""Which folder of weights this is: agents that find the same name in theirs share it.

The name is that of an empty file in the folder. On a filesystem of one machine it
counts together with the machine's boot, since a machine that was copied has a copy
of the folder, and does not share it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from llmgw_agent import durable
from llmgw_agent.process import boot_id

PREFIX = ".llmgw-folder-"
MOUNTS = Path("/proc/self/mountinfo")
NETWORKED = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "9p", "virtiofs", "ocfs2", "gfs2")
)
"""Filesystems that several machines have at the same time; those of FUSE may be any."""


def mark(folder: Path) -> None:
    """Give a folder its name, where it has none. Raises OSError."""
    if not _name(folder):
        (folder / f"{PREFIX}{secrets.token_hex(8)}").touch(mode=0o644)
        durable.sync_folder(folder)


def of(folder: Path) -> str:
    """The folder's id, or empty where it has no name or cannot be read.

    Two agents may both have named it at once: the first name counts for both.
    """
    try:
        name = _name(folder)
        networked = bool(name) and _networked(folder.stat().st_dev)
    except OSError:
        return ""
    if not name:
        return ""
    return hashlib.sha256(f"{name}\0{'' if networked else boot_id()}".encode()).hexdigest()[:16]


def _name(folder: Path) -> str:
    names = (entry.name for entry in os.scandir(folder))
    return min((n for n in names if n.startswith(PREFIX) and n.isascii()), default="")


def _networked(device: int) -> bool:
    """Whether other machines may have this filesystem too."""
    number = f"{os.major(device)}:{os.minor(device)}"
    text = ""
    with suppress(OSError):
        text = MOUNTS.read_text(errors="replace")
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        kind = rest.partition(" ")[0]
        if number in fields.split()[2:3]:
            return kind in NETWORKED or kind.startswith("fuse.")
    return False
