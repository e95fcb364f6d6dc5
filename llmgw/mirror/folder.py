"""One version's folder on disk: what lies in it, and its files opened without being led elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from msgspec import Struct

from llmgw.mirror import names, weights


class Stamp(Struct, frozen=True, array_like=True):
    """What changes when a file's content does: a sum is known for as long as this stays."""

    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int
    """Set by the kernel alone, so a copy that keeps modification times is noticed too."""

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Listing(NamedTuple):
    """What a folder holds, both by path: its files, and what is wrong with the rest."""

    files: dict[str, Stamp]
    problems: dict[str, str]


def look(folder: Path) -> Listing:
    """List a version's folder. Links are not followed, they are problems.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    listing = Listing({}, {})
    for path, entry in sorted(_walk(folder, "")):
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it went while we looked
        problem = _problem(path, found)
        if problem:
            listing.problems[path] = problem
        else:
            listing.files[path] = Stamp.of(found)
    for path, problem in names.path_problems(listing.files):
        listing.problems[path] = problem
    return listing


def _problem(path: str, found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return f"{path!a} is a symbolic link; put the file itself in its place"
    if not stat.S_ISREG(found.st_mode):
        return f"{path!a} is not a regular file"
    if found.st_nlink != 1:
        return f"{path!a} has {found.st_nlink} hard links and can be changed through another; put a copy in its place"
    return weights.name_problem(path)


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.name in names.LEFT_OUT:
                    continue
                # Deeper than any name may lie, a folder is reported and not entered.
                if entry.is_dir(follow_symlinks=False) and path.count("/") < names.MAX_DEPTH:
                    yield from _walk(folder / entry.name, path + "/")
                else:
                    yield path, entry
    except FileNotFoundError:
        if not prefix:
            raise


def open_file(root: Path, *parts: str) -> int:
    """A descriptor of the regular file at `parts` below `root`, no part of which may be a link.

    Raises:
        OSError: there is none.
    """
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for n, part in enumerate(parts, start=1):
        last = os.O_NONBLOCK if n == len(parts) else os.O_DIRECTORY
        try:
            below = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | last, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def sync_tree(folder: Path) -> None:
    """Make every name below `folder` durable. The files' contents are already."""
    for path, _, _ in os.walk(folder, topdown=False):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
