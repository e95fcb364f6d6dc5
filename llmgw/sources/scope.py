"""Which entries of a repository matter, and what is said of those that cannot be read."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from typing import Literal

from dulwich.objects import S_ISGITLINK

from llmgw.catalog.parse import MODEL_FILE, SERVER_FILE
from llmgw.errors import Refused
from llmgw.sources.snapshot import Bad, Blob
from llmgw.units import KIB, MIB, show_bytes

MAX_TOTAL_BYTES = 64 * MIB
MAX_ENTRIES = 100_000
"""Entries looked at in one snapshot: a tree that contains itself ten times over,
ten levels deep, is a few hundred bytes to push."""
MAX_DEPTH = 16

FOLDERS = ("catalog", "keys", "locks")
SERVER = "server.yaml"

LFS_POINTER = b"version https://git-lfs.github.com/spec/"

LINK = ("is a symbolic link, which is not followed", "put the file itself there")
SUBMODULE = ("is a submodule, which is not followed", "commit the files themselves")


def most_bytes(path: str) -> int:
    """How large a file may be: what the catalog's own reading takes, and no more is read."""
    return (SERVER_FILE if path == SERVER else MODEL_FILE).bytes


class Reading:
    """What was found so far in one snapshot, within the bounds that hold for all of it."""

    def __init__(self) -> None:
        self.files: dict[str, Blob] = {}
        self._bad: dict[str, Bad] = {}
        self._entries = 0
        self._bytes = 0

    def child(self, parent: str, name: bytes) -> str | None:
        """The path of an entry that is worth a look.

        None is one that is not: hidden, or with a name that cannot be said in a
        log or a message, which is noted.
        """
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise Refused(
                "the repository was not read",
                why=f"there are more than {MAX_ENTRIES} entries under catalog/, keys/ and locks/",
                do="keep only the fleet's own files there",
            )
        if name.startswith(b".") and name not in (b".", b".."):
            return None
        shown = name.decode("utf-8", "backslashreplace")
        path = f"{parent}/{shown}" if parent else shown
        try:
            name.decode("utf-8")
        except UnicodeDecodeError:
            self.note(path, "has a name that is not UTF-8", "rename it")
            return None
        if name in (b"", b".", b"..") or "/" in shown or not shown.isprintable():
            shown = path.encode("unicode_escape").decode()
            self.note(shown, "has a name no file can safely have", "remove or rename it")
            return None
        return path

    def kind(self, path: str, mode: int) -> Literal["file", "folder"] | None:
        """What is to be read at this path; what cannot be read and should be is noted.

        Args:
            path: of an entry that `child` gave, or of one of the top.
            mode: of the entry, as git and `stat` have it; never that of a link's target.
        """
        if stat.S_ISLNK(mode):
            self.note(path, *LINK)
        elif S_ISGITLINK(mode):
            self.note(path, *SUBMODULE)
        elif stat.S_ISDIR(mode):
            return "folder" if self._wants_folder(path) else None
        elif not stat.S_ISREG(mode):
            self.note(path, "is neither a file nor a folder", "remove it")
        else:
            return "file" if self._wants_file(path) else None
        return None

    def _wants_file(self, path: str) -> bool:
        top, _, rest = path.partition("/")
        if top == SERVER:
            return True
        if not rest:
            self.note(path, "is a file, and a folder belongs there", "remove or rename it")
            return False
        end = rest[rest.rfind(".") :]
        if end.lower() in (".yaml", ".yml") and end != end.lower():
            self.note(path, f"ends in {end}, and names are read in small letters", f"rename it to end in {end.lower()}")
            return False
        if top == "catalog":
            return rest.endswith((".yaml", ".yml"))
        if rest.endswith(".yml"):
            self.note(path, f"ends in .yml, and only .yaml is read in {top}/", "rename it")
        return rest.endswith(".yaml")

    def _wants_folder(self, path: str) -> bool:
        top, *deeper = path.split("/")
        if top == SERVER:
            self.note(path, "is a folder", "put the fleet's file there")
        elif top != "catalog" and deeper:
            self.note(path, f"is a folder, and {top}/ is read without folders", "move its files up")
        elif len(deeper) >= MAX_DEPTH:
            self.note(path, f"is more than {MAX_DEPTH} folders deep", "move its files up")
        else:
            return True
        return False

    def keep(self, path: str, blob: Blob) -> None:
        """Takes a file, unless its content already shows that it is none of ours."""
        if len(blob.data) > (most := most_bytes(path)):
            do = "take out what no node is" if path == SERVER else "keep one model, or a few, in a file"
            self.note(path, f"is larger than {most // KIB} KiB", do)
        elif blob.data.startswith(LFS_POINTER):
            self.note(path, "is kept in Git LFS, and only its pointer is here", "commit the file itself")
        else:
            self._bytes += len(blob.data)
            if self._bytes > MAX_TOTAL_BYTES:
                raise Refused(
                    "the repository was not read",
                    why=f"the files of the catalog are over {show_bytes(MAX_TOTAL_BYTES)} together",
                    do="keep only models, keys and locks there",
                )
            self.files[path] = blob

    def note(self, path: str, why: str, do: str) -> None:
        self._bad[path] = Bad(path, why, do)

    def result(self) -> tuple[Mapping[str, Blob], tuple[Bad, ...]]:
        """The files and the bad entries, both in order of path."""
        return {path: self.files[path] for path in sorted(self.files)}, tuple(
            self._bad[path] for path in sorted(self._bad)
        )
