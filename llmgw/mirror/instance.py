"""One mirror a folder: two would write into the same parts."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from llmgw.errors import Refused
from llmgw.net.decoding import decode
from llmgw_agent.process import boot_id, start_ticks

log = logging.getLogger(__name__)


class Instance(Struct, frozen=True):
    """The process that serves a folder. Never stale: it is compared with what runs, and no lock of a filesystem."""

    boot: str
    pid: int
    ticks: int

    def runs(self) -> bool:
        """Whether that very process is still there, and not another with its number."""
        return self.boot == boot_id() and start_ticks(self.pid) == self.ticks


def claim(path: Path) -> Instance:
    """Write ourselves down at `path`, in place of a process that has ended.

    Raises:
        Refused: another one runs.
    """
    mine = Instance(boot_id(), os.getpid(), start_ticks(os.getpid()) or 0)
    _remove_ended(path)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        fresh.write_bytes(msgspec.json.encode(mine))
        path.hardlink_to(fresh)  # fails where the name is taken, unlike a rename
    except FileExistsError:  # two started at once
        return claim(path)
    except OSError as e:  # a full disk, most likely: no reason not to serve what it holds
        log.warning("the mirror could not write down that it runs: %s", e.strerror)
    finally:
        fresh.unlink(missing_ok=True)
    return mine


def release(path: Path, mine: Instance) -> None:
    """Take our own name away."""
    if _read(path) == mine:
        path.unlink(missing_ok=True)


def _remove_ended(path: Path) -> None:
    other = _read(path)
    if other is not None and other.runs():
        raise Refused(
            f"{path.parent.parent} is served by another mirror already",
            why=f"process {other.pid} runs on it",
            do="stop that one, or give this one another folder",
        )
    path.unlink(missing_ok=True)


def _read(path: Path) -> Instance | None:
    try:
        return decode(path.read_bytes(), Instance)
    except (OSError, msgspec.DecodeError):
        return None
