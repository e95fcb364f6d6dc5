"""Model files on this machine: a GGUF file or its parts, a header alone, or a folder of safetensors."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from llmgw.errors import OperatorError, Refused
from llmgw.planning.gguf import MAGIC, Header, read_header
from llmgw.planning.gguf_bytes import Damaged
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.need import Files
from llmgw.planning.safetensors import (
    MOST_INDEX_BYTES,
    MOST_TEXT_BYTES,
    index_files,
    plain_json,
    read_file_header,
    shape_of_config,
)
from llmgw.planning.shape import ModelShape
from llmgw.sources.header import CONFIG

INDEX = "model.safetensors.index.json"
NAME_ONE = (
    "name a GGUF file, a folder of safetensors, OWNER/NAME, hf://…, https://…, or the name of a model of the catalog"
)


class OnDisk:
    """A regular file's bytes.

    Raises:
        Refused: it is no regular file: a pipe would be waited on for ever.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_file():
            raise Refused(f"{path} cannot be read", why="it is no regular file", do=NAME_ONE)
        self._path = path

    def read(self, offset: int, length: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(length)


def here(path: Path, size_bytes: int | None) -> Files:
    """The model at a path.

    Args:
        path: of a file, or of a folder with one model in it.
        size_bytes: of all files, where the file is a header alone.

    Raises:
        OperatorError: it is none, cannot be read, or is damaged.
    """
    try:
        if path.is_dir():
            return _folder(path)
        if path.suffix == ".safetensors":
            return _folder(path.parent)
        return _gguf(path, size_bytes)
    except OSError as e:
        raise unreadable(path, e) from None


def unreadable(path: Path, error: OSError) -> Refused:
    """That a path cannot be read."""
    return Refused(f"{path} cannot be read", why=error.strerror or str(error), do=NAME_ONE)


def _folder(folder: Path) -> Files:
    """The one model that is in a folder."""
    if (folder / CONFIG).is_file():
        return _safetensors(folder)
    found = sorted(p for p in folder.glob("*.gguf") if not re.search(r"-0000[2-9]-of-|-000[1-9]\d-of-", p.name))
    if len(found) != 1:
        why = f"it has {len(found)} GGUF models" if found else f"it has no {CONFIG} and no GGUF file"
        raise Refused(f"{folder} was not estimated", why=why, do=NAME_ONE)
    return _gguf(found[0], None)


def _safetensors(folder: Path) -> Files:
    files = sorted(folder.glob("*.safetensors"))
    index = folder / INDEX
    named = index_files(OnDisk(index).read(0, MOST_INDEX_BYTES + 1)) if index.is_file() else ()
    missing = sorted(set(named) - {path.name for path in files})
    if missing or not files:
        why = (
            f"{len(missing)} of its {len(named)} files are not there, {missing[0]} first" if missing else "it has none"
        )
        raise Refused(f"{folder} was not estimated", why=f"of safetensors {why}", do="fetch the rest of them")
    weights = sum(read_file_header(OnDisk(path)).tensor_bytes for path in files)
    text = OnDisk(folder / CONFIG).read(0, MOST_TEXT_BYTES + 1)
    shape = shape_of_config(plain_json(text, CONFIG), weight_bytes=weights)
    return Files(folder.resolve().name, shape, sum(path.stat().st_size for path in files))


def _gguf(path: Path, size_bytes: int | None) -> Files:
    header, found = gguf_header(path)
    if header.kind != "model":
        what = {"adapter": "an adapter of another model", "mmproj": "the part of a model that sees or hears"}
        raise Refused(
            f"{path} was not estimated",
            why=f"it is {what[header.kind]}, and runs with one only",
            do="name the model, and this file with " + ("--lora" if header.kind == "adapter" else "--mmproj"),
        )
    shape = shape_of(header)
    return Files(path.name, shape, found if size_bytes is not None else _all_parts(path, header, found, shape))


def gguf_header(path: Path) -> tuple[Header, int]:
    """A file's header, with its tensors where they are there, and the file's size.

    Raises:
        OperatorError: it cannot be read, or is not to be believed.
    """
    try:
        # It is on this disk, so the vocabulary costs nothing to go past.
        return read_header(OnDisk(path), tensors=True), path.stat().st_size
    except OSError as e:
        raise unreadable(path, e) from None
    except Damaged as e:
        whole = _shape_only(path)
        if whole is None:
            raise Refused(f"{path}: {e.what}", why=e.why, do=e.do) from None
        return whole, path.stat().st_size


def _shape_only(path: Path) -> Header | None:
    """The header of a file that was cut before its tensors: a range of its first bytes, say."""
    try:
        return read_header(OnDisk(path))
    except (OperatorError, struct.error):
        return None


def _all_parts(path: Path, header: Header, found: int, shape: ModelShape) -> int:
    """The bytes of every part; of a header alone, what its tensors take."""
    name, _, _ = path.name.partition("-00001-of-")
    others = sorted(path.parent.glob(f"{name}-*-of-{header.parts:05}.gguf")) if header.parts > 1 else []
    if header.parts > 1 and len(others) != header.parts:
        why = f"{len(others)} of its {header.parts} parts are beside it"
        raise Refused(f"{path} was not estimated", why=why, do="give the bytes of all parts with --size")
    if others:
        return sum(gguf_bytes(part) for part in others)
    if shape.weights is not None and found < shape.weights.total:
        return header.bytes + shape.weights.total
    return found


def gguf_bytes(path: Path) -> int:
    """The size of a file that begins as a GGUF does.

    Raises:
        Refused: it does not, or cannot be read.
    """
    try:
        is_gguf = OnDisk(path).read(0, len(MAGIC)) == MAGIC
        found = path.stat().st_size
    except OSError as e:
        raise unreadable(path, e) from None
    if not is_gguf:
        raise Refused(f"{path} cannot be read", why="it does not begin with GGUF", do="name a GGUF file")
    return found
