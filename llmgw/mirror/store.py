"""The mirror's folder of published versions. The directory is the truth; the records only know its sums.

<root>/<model>/<version>/<path>   published whole by one rename, or copied in by hand
<root>/_incoming/                 fetches under way (fetches.py); never served
<root>/_state/                    records
<root>/_quarantine/               what was found damaged or unexplained; never served, kept a week
<root>/_trash/                    removed, and on its way to being deleted
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from llmgw.core.holdings import HoldingState
from llmgw.errors import Refused
from llmgw.mirror import folder, names
from llmgw.mirror.folder import Listing, Stamp
from llmgw.mirror.records import KeptFile, Record, Records
from llmgw.mirror.version import Version
from llmgw.net.clock import steady
from llmgw_agent import durable

log = logging.getLogger(__name__)

SETTLE_S = 5.0
"""A folder that came by hand is hashed once nothing in it has changed for this long."""
QUARANTINE_S = 7 * 86_400.0


class Store:
    """Every published version. Its methods may be called from any thread."""

    def __init__(self, root: Path, *, settle_s: float = SETTLE_S) -> None:
        self.root = root
        self.settle_s = settle_s
        self.problem = ""
        """Why the disk could not be looked at the last time, or empty."""
        self.incoming, self.state = root / "_incoming", root / "_state"
        self._trash, self._quarantine = root / "_trash", root / "_quarantine"
        self._records = Records(self.state)
        self._now = steady()
        self._identity = (0, 0)
        # Held while the disk is changed or looked at. What only asks does not
        # take it: it reads `_versions`, whose values are replaced whole.
        self._lock = threading.RLock()
        self._versions: dict[str, Version] = {}
        self._said: set[str] = set()

    def make_folders(self) -> None:
        """Make what is not there yet.

        Raises:
            Refused: the root cannot be used.
        """
        try:
            self.root.mkdir(exist_ok=True, mode=0o755)
            for path in (self.incoming, self.state, self._trash, self._quarantine):
                durable.private_folder(path)
                if path.stat().st_dev != self.root.stat().st_dev:
                    raise Refused(
                        f"{path} is on another disk than {self.root}",
                        why="a version is published by renaming it, which works within one filesystem only",
                        do=f"remove what is mounted at {path}",
                    )
        except OSError as e:
            raise self.unusable(e) from e

    def open(self) -> None:
        """Take in everything that is there, and compare it with the records.

        Raises:
            OSError: it cannot be read.
        """
        self._identity = _identity(self.root)
        for record in self._records.load().values():
            self._versions[record.key] = Version(record, Listing({}, {}), time.monotonic())
        self.look()

    def look(self) -> None:
        """Take in what has changed on the disk since the last look.

        Raises:
            OSError: the disk cannot be read. What is known stays as it was.
        """
        self.expect_disk()
        there = {(name, version) for name, version in self._folders()}
        known = {(v.record.name, v.record.version) for v in self.versions()}
        for name, version in sorted(there | known):
            self.look_at(name, version)
        self.problem = ""

    def expect_disk(self) -> None:
        """Asked before anything is concluded from what is not on the disk.

        Raises:
            OSError: ENODEV: another folder is there now. Most likely the disk was unmounted,
                and the empty folder below says nothing of what it holds.
        """
        if _identity(self.root) != self._identity:
            raise OSError(errno.ENODEV, "it is not the folder the mirror was started with", str(self.root))

    def cannot_look(self, error: OSError) -> None:
        """Say that the last look failed; what is known stays as it was."""
        problem = f"{error.filename or self.root}: {error.strerror}"
        if problem != self.problem:
            log.error("the mirror cannot look at its folder: %s", problem)
        self.problem = problem

    def look_at(self, name: str, version: str) -> None:
        """The same for one version.

        Raises:
            OSError: the disk is not the one that is known.
        """
        key = f"{name}/{version}"
        with self._lock:
            self.expect_disk()
            old = self._versions.get(key)
            try:
                listing = folder.look(self.root / name / version)
            except (FileNotFoundError, NotADirectoryError):
                self._forget(key)
                return
            except OSError as e:
                listing = Listing({}, {"": f"the folder cannot be read: {e.strerror}"})
            if old is None and not (listing.files or listing.problems):
                return
            if old is not None and old.record.fetched:
                # Later additions are no part of what was published.
                paths = {"", *(f.path for f in old.record.files)}
                files = {path: stamp for path, stamp in listing.files.items() if path in paths}
                listing = Listing(files, {path: why for path, why in listing.problems.items() if path in paths})
            elif not (listing.files or listing.problems):
                self._forget(key)
                return
            if old is None:
                log.info("a version was found that came by hand", extra={"model": name, "version": version})
                self._versions[key] = Version(Record(name, version), listing, time.monotonic())
            elif old.listing != listing:
                self._versions[key] = replace(old, listing=listing, since=time.monotonic())

    def versions(self) -> list[Version]:
        """Every version, sorted."""
        return [version for _, version in sorted(self._versions.copy().items())]

    def version(self, key: str) -> Version | None:
        """The one called `name/version`."""
        return self._versions.get(key)

    def open_file(self, version: Version, file: KeptFile) -> int | None:
        """A descriptor of a published file. None where it is not any more what was published."""
        record = version.record
        try:
            descriptor = folder.open_file(self.root, record.name, record.version, *file.path.split("/"))
        except OSError:
            return None
        found = os.fstat(descriptor)
        if Stamp.of(found) == file.stamp and found.st_nlink == 1:
            return descriptor
        os.close(descriptor)
        return None

    def publish(self, tree: Path, record: Record) -> None:
        """Make `tree` the version that `record` speaks of; its files are on the disk, checked.

        The order is what a power cut leaves whole: files, record, one rename, its
        folder. rename(2) replaces an empty folder and nothing else, so of two that
        publish one wins, and what somebody has put there meanwhile stays.

        Args:
            tree: a folder on the same filesystem that nobody else writes to.
            record: its files without stamps, which are taken here.

        Raises:
            OSError: it could not be published; ENOTEMPTY where there is something already.
        """
        for file in record.files:
            (tree / file.path).chmod(0o444)
        for path, _, _ in os.walk(tree):
            Path(path).chmod(0o755)
        folder.sync_tree(tree)
        stamps = {f.path: Stamp.of((tree / f.path).lstat()) for f in record.files}
        files = [msgspec.structs.replace(f, stamp=stamps[f.path]) for f in record.files]
        record = msgspec.structs.replace(record, files=tuple(sorted(files, key=lambda f: f.path)))
        model = self.root / record.name
        with self._lock:
            self.expect_disk()
            if record.key in self._versions:
                raise FileExistsError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(model / record.version))
            model.mkdir(exist_ok=True, mode=0o755)
            durable.sync_folder(self.root)
            self._records.save(record)
            try:
                tree.rename(model / record.version)
            except OSError:
                self._records.forget(record.name, record.version)
                raise
            durable.sync_folder(model)
            self._versions[record.key] = Version(record, Listing(stamps, {}), time.monotonic())

    def remove(self, key: str) -> bool:
        """Take a version away. Gone at once for everybody; its bytes are freed by `sweep`."""
        return self._move_out(key, self._trash)

    def set_aside(self, key: str) -> bool:
        """Take a damaged version away and keep it for a week."""
        return self._move_out(key, self._quarantine)

    def next_to_verify(self) -> tuple[Version, str] | None:
        """A file whose sum is to be found, once nobody writes to its version any more."""
        try:
            self.expect_disk()
        except OSError:
            return None  # the next look says that
        for version in self.versions():
            settled = version.record.fetched or time.monotonic() - version.since >= self.settle_s
            if version.state is HoldingState.VERIFYING and settled:
                return version, version.unsure[0]
        return None

    def verified(self, version: Version, file: KeptFile) -> None:
        """What hashing a file has found. Ignored where the file has changed since."""
        key = version.record.key
        with self._lock:
            now = self._versions.get(key)
            if now is None or now.listing.files.get(file.path) != file.stamp:
                return
            before = next((f for f in now.record.files if f.path == file.path), None)
            if before is not None and now.record.fetched:
                file = msgspec.structs.replace(file, url=before.url)
                if before.sha256 != file.sha256:
                    wrong = f"{file.path} has the sha256 {file.sha256}, and {before.sha256} was published"
                    self._versions[key] = replace(now, damage=wrong if file.sha256 else file.problem)
                    return
            others = (f for f in now.record.files if f.path != file.path and f.path in now.listing.files)
            files = tuple(sorted((*others, file), key=lambda f: f.path))
            record = msgspec.structs.replace(now.record, files=files)
            try:
                self._records.save(record)
            except OSError as e:  # a full disk: it is hashed again after the next start
                log.warning("the sums of %s could not be written down: %s", key, e.strerror)
            self._versions[key] = replace(now, record=record)

    def free_bytes(self) -> int:
        """What may still be written on its disk.

        Raises:
            OSError: it cannot be asked, or is not the one that is known.
        """
        self.expect_disk()
        disk = os.statvfs(self.root)
        return disk.f_bavail * disk.f_frsize

    def removed_bytes(self) -> int:
        """What was removed and is not deleted yet. It is free soon."""
        found = 0
        for parent, _, files in os.walk(self._trash):
            for name in files:
                with suppress(OSError):  # deleted meanwhile
                    found += (Path(parent) / name).lstat().st_blocks * 512
        return found

    def discard(self, path: Path, *, keep: bool = False) -> None:
        """Take a folder of `_incoming` away, to be deleted soon or kept for a week."""
        try:
            os.utime(path, times=(self._now(), self._now()))
            path.rename((self._quarantine if keep else self._trash) / f"{path.name}.{secrets.token_hex(4)}")
        except FileNotFoundError:
            return

    def sweep(self) -> None:
        """Delete what was removed, and what has been aside for a week."""
        old = self._now() - QUARANTINE_S
        aged = [path for path in self._quarantine.iterdir() if path.lstat().st_mtime < old]
        for path in (*self._trash.iterdir(), *aged):
            shutil.rmtree(path, ignore_errors=True)

    def unusable(self, error: OSError) -> Refused:
        """What a disk that cannot be read means at the start."""
        return Refused(
            f"the mirror cannot use {self.root}",
            why=f"{error.filename or self.root}: {error.strerror}",
            do="create the folder, owned by the user the mirror runs as",
        )

    def _move_out(self, key: str, to: Path) -> bool:
        with self._lock:
            self.expect_disk()
            version = self._versions.get(key)
            if version is None:
                return False
            self._forget(key)
            record = version.record
            path = self.root / record.name / record.version
            aside = to / f"{record.name}.{record.version}.{secrets.token_hex(4)}"
            path.rename(aside)
            os.utime(aside, times=(self._now(), self._now()))
            with suppress(OSError):  # other versions are still in it
                path.parent.rmdir()
            durable.sync_folder(self.root)
            return True

    def _forget(self, key: str) -> None:
        version = self._versions.get(key)
        if version is not None:
            self._records.forget(version.record.name, version.record.version)
            del self._versions[key]

    def _folders(self) -> Iterator[tuple[str, str]]:
        """The name and version of every folder that can be one."""
        for model in self._named(self.root):
            for version in self._named(model):
                yield model.name, version.name

    def _named(self, parent: Path) -> Iterator[Path]:
        for entry in sorted(parent.iterdir()):
            if entry.name.startswith(("_", ".")) or entry.name == "lost+found":
                continue
            usable = names.is_name(entry.name) and entry.is_dir() and not entry.is_symlink()
            if usable:
                yield entry
            elif str(entry) not in self._said:
                self._said.add(str(entry))
                log.warning("%a is left out: a version is a folder NAME/VERSION of lower-case names", str(entry))


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
