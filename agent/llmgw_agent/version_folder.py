"""The folder of one version: its marker, what makes it whole, and the names that may be in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from llmgw_agent import durable
from llmgw_agent.dossier import Fault
from llmgw_agent.protocol import VersionOrder, WeightFile

MARKER = ".llmgw-complete"
"""Written last into a version's folder: without it the folder is not whole, whatever it holds."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
PATH = re.compile(r"[A-Za-z0-9+_-][A-Za-z0-9._+-]*(/[A-Za-z0-9+_-][A-Za-z0-9._+-]*){0,3}")


def whole_ones(root: Path) -> dict[str, int]:
    """Bytes of every version that is whole, by key."""
    found = {}
    for marker in root.glob(f"[!.]*/[!.]*/{MARKER}"):
        # One that no order could name is none, and its name might not even be text.
        named = NAME.fullmatch(marker.parent.name) and NAME.fullmatch(marker.parent.parent.name)
        if named and (files := whole(marker.parent)):
            found[f"{marker.parent.parent.name}/{marker.parent.name}"] = sum(f.bytes for f in files)
    return found


def whole(folder: Path) -> tuple[WeightFile, ...] | None:
    """The files of a version that is complete, or None. Sizes are compared; sums were, when it came."""
    try:
        files = durable.decode((folder / MARKER).read_bytes(), tuple[WeightFile, ...])
        if files and all((folder / f.path).stat().st_size == f.bytes for f in files):
            return files
    except (OSError, ValueError):  # a name with a NUL in it is a ValueError, and so is Damaged
        pass
    return None


def content(files: Iterable[WeightFile]) -> str:
    """Names the content, so that a part is never continued with another's bytes."""
    return hashlib.sha256(msgspec.json.encode(sorted(files))).hexdigest()[:16]


def check_names(order: VersionOrder) -> None:
    """Refuse what would leave its folder, or be two files that are one on some disks."""
    bad = [n for n in (order.name, order.version) if not NAME.fullmatch(n)]
    bad += [f.path for f in order.files if not PATH.fullmatch(f.path) or len(f.path) > 200]
    folded = [f.path.casefold() for f in order.files]
    if bad or len(set(folded)) != len(folded):
        why = f"{bad[0]!r} is no name for a file here" if bad else "two of its files have one name"
        raise Fault("weights", "a version was refused", why=why, do="rename it at the source")
