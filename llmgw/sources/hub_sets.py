"""The file sets of a repository: what belongs together as one model, one adapter or one projector."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from llmgw.catalog.forms import FILE_PATH
from llmgw.sources.hub import TreeFile
from llmgw.sources.selecting import PART, PICKLED, beside, projector, weights

USUAL = "Q4_K_M"
"""The quantisation that is meant where none is named: the fewest bits that cost next to nothing in quality."""

_QUANTISATION = re.compile(
    r"(?:^|[-._/])((?:UD-)?I?Q\d\w*|BF16|F16|F32|FP16|FP8|MXFP4\w*|NVFP4|TQ\d\w*)(?=$|[-._/])", re.IGNORECASE
)


class Kind(StrEnum):
    """What a file set is."""

    MODEL = "model"
    PROJECTOR = "projector"
    """The part of a model that sees or hears."""
    ADAPTER = "adapter"
    PICKLED = "pickled"
    """Weights whose loading runs whatever code is in them."""


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files that are one."""

    name: str
    """As `llmgw model add OWNER/NAME/…` takes it. Empty: the repository itself."""
    kind: Kind
    format: str
    """gguf, safetensors, or empty."""
    quantisation: str
    """As the name says it. Empty: it does not."""
    files: tuple[TreeFile, ...]
    parts: int
    """Files it was split over. More than there are: some are missing."""

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(size_of(file) for file in self.files)

    @property
    def whole(self) -> bool:
        """Whether every part is there."""
        return len(self.files) >= self.parts

    def added(self, repository: str, among: Iterable[FileSet]) -> str:
        """What `llmgw model add` is told for it: its quantisation, where that names no other set.

        Args:
            repository: that it is in.
            among: every set that could be meant.
        """
        found = _QUANTISATION.findall(self.name)
        word = found[-1] if found and self.format == "gguf" else ""
        if word and sum(word in other.name for other in among) == 1:
            return f"{repository}/{word}"
        return f"{repository}/{self.name}" if self.name else repository

    @property
    def first(self) -> str:
        """The file whose header says what it is."""
        return self.files[0].path


def size_of(file: TreeFile) -> int:
    """Bytes of a file, in LFS or not."""
    return max(file.lfs.size if file.lfs else file.size, 0)


def sha256_of(file: TreeFile) -> str | None:
    """The sum of a file. None: it is kept in git, which has another of it, or what is said is none."""
    return file.lfs.oid if file.lfs and re.fullmatch(r"[0-9a-f]{64}", file.lfs.oid) else None


def file_sets(files: Iterable[TreeFile]) -> tuple[tuple[FileSet, ...], int]:
    """Every file set of a listing, and how many weights have names that no node would write.

    Models come first, of these the smallest.
    """
    groups: dict[tuple[Kind, str, str], list[TreeFile]] = defaultdict(list)
    odd = 0
    for file in files:
        if not re.fullmatch(FILE_PATH, file.path):
            odd += weights(file.path)
        elif (key := _key(file.path)) is not None:
            groups[key].append(file)
    found = [_set(*key, sorted(members, key=lambda f: f.path)) for key, members in groups.items()]
    order = list(Kind)
    return tuple(sorted(found, key=lambda s: (order.index(s.kind), s.bytes, s.name))), odd


def quantisation(path: str) -> str:
    """The quantisation that a file's name says, or an empty text."""
    found = _QUANTISATION.findall(path.rpartition(".")[0])
    return str(found[-1]).upper() if found else ""


def _key(path: str) -> tuple[Kind, str, str] | None:
    """What kind of set a file belongs to, of which format, and which one. None: to none."""
    name, folder = PurePosixPath(path).name, str(PurePosixPath(path).parent)
    if path.endswith(".gguf"):
        part = PART.fullmatch(path)
        kind = Kind.PROJECTOR if projector(path) else Kind.MODEL
        return kind, "gguf", f"{part[1]}-*-of-{part[3]}{part[4]}" if part else path
    if path.endswith(".safetensors") and not beside(path):
        if name.startswith("adapter_model"):
            return Kind.ADAPTER, "safetensors", path
        return Kind.MODEL, "safetensors", "" if folder == "." else f"{folder}/*.safetensors"
    if path.endswith(PICKLED) and not re.search(r"(^|/)(optimizer|scheduler|training_args|rng_state)", path):
        if name.startswith("adapter_model"):
            return Kind.PICKLED, "", path
        return Kind.PICKLED, "", f"*{PurePosixPath(path).suffix}" if folder == "." else f"{folder}/*"
    return None


def _set(kind: Kind, format_: str, name: str, files: list[TreeFile]) -> FileSet:
    numbered = [int(part[3]) for file in files if (part := PART.fullmatch(file.path))]
    said = quantisation(files[0].path) if format_ == "gguf" else ""
    return FileSet(name, kind, format_, said, tuple(files), max(numbered, default=1))
