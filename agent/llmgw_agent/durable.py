"""Files that are whole after a power cut, and reading what somebody else may have damaged all the same."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Damaged(ValueError):
    """Bytes that are not what they should be. The text says where."""


def write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put `data` in place of what `path` holds; on disk when this returns."""
    # A name of its own for each writer: two of them never write into one file.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_text(path: Path) -> str | None:
    """What a file says. None when it is not there, cannot be read, or is no text."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def decode(data: bytes, kind: type[T]) -> T:
    """JSON as a value of this kind. Every way it can fail to be one is `Damaged`.

    Raises:
        Damaged: it is no such value, or is nested so deeply that no reader follows it.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError) as e:
        raise Damaged(str(e)) from None
    except RecursionError:
        raise Damaged("it is nested too deeply") from None


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a rename is, only once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_folder(folder: Path) -> Path:
    """`folder`, made if it was not there, readable by its owner only."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
