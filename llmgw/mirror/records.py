"""What the mirror remembers of each version, one small file each: whose it is, and its sums."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from llmgw.mirror.folder import Stamp
from llmgw.net.decoding import decode
from llmgw_agent import durable
from llmgw_agent.protocol import WeightFile

log = logging.getLogger(__name__)


class KeptFile(Struct, frozen=True, omit_defaults=True):
    """One file, and its sum while it is as the stamp says."""

    path: str
    bytes: int
    sha256: str
    stamp: Stamp | None = None
    """None until it is published."""
    url: str = ""
    """Where it was had from, without query and userinfo. Empty for one that came by hand."""
    problem: str = ""
    """Why its content is refused."""

    @property
    def weight_file(self) -> WeightFile:
        return WeightFile(self.path, self.bytes, self.sha256)


class Record(Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """One version."""

    name: str
    version: str
    origin: str = "hand"
    from_: str = ""
    files: tuple[KeptFile, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.name}/{self.version}"

    @property
    def fetched(self) -> bool:
        """Whether the mirror itself had it from somewhere: then its content never changes."""
        return any(f.url for f in self.files)


def digest(files: Sequence[WeightFile]) -> str:
    """One sum over all of a version: paths, sizes and sums, sorted by path."""
    canonical = msgspec.json.encode([[f.path, f.bytes, f.sha256] for f in sorted(files)])
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


class Records:
    """The records' folder: `<name>/<version>.json`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> dict[str, Record]:
        """By key. One that cannot be read is left out and said: its version is then hashed again, as if by hand."""
        records = {}
        for path in sorted(self._folder.glob("*/*.json")):
            try:
                record = decode(path.read_bytes(), Record)
                if self._path(record.name, record.version) != path:
                    raise msgspec.DecodeError(f"it is of {record.key!a}")  # noqa: TRY301 - one way to leave it out
            except (OSError, msgspec.DecodeError) as e:
                log.warning("the record %s cannot be read and is not used: %s", path, e)
                continue
            records[record.key] = record
        return records

    def save(self, record: Record) -> None:
        """On disk when this returns."""
        path = self._path(record.name, record.version)
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700)
            durable.sync_folder(self._folder)
        durable.write(path, msgspec.json.encode(record))

    def forget(self, name: str, version: str) -> None:
        path = self._path(name, version)
        with suppress(IsADirectoryError):  # not ours
            path.unlink(missing_ok=True)
        with suppress(OSError):  # other versions have records there
            path.parent.rmdir()

    def _path(self, name: str, version: str) -> Path:
        return self._folder / name / f"{version}.json"
