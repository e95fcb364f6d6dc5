"""What a model's files say of it, read over ranges: at most two requests and 128 KiB."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

from llmgw.errors import Refused
from llmgw.planning.gguf import read_header
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.safetensors import plain_json, shape_of_config
from llmgw.planning.shape import Facts, to_facts

Read = Callable[[str, int, int], bytes]
"""The bytes of one file of a source: its path, the first byte, and the one after the last."""

CONFIG = "config.json"

MOST_REQUESTS = 2
MOST_BYTES = 128 << 10
"""Every figure of a shape was in the first 64 KiB of all headers that were measured: they come before the tokenizer."""


class _TooFarError(Exception):
    """The header goes on where nobody reads it."""


class _Ranges:
    """A file that gives its first bytes, and no more than we will ask for."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read, self._left = read, MOST_REQUESTS

    def read(self, offset: int, size: int) -> bytes:
        if not self._left or offset >= MOST_BYTES:
            raise _TooFarError
        self._left -= 1
        return self._read(offset, min(offset + size, MOST_BYTES))


def facts_of(path: str, read: Read, sizes: Mapping[str, int | None]) -> Facts:
    """What planning needs of a model. Empty: its files say it further on than is read, or not in a way we know.

    Args:
        path: of the main file.
        read: gives the bytes of any of its files. May raise OperatorError.
        sizes: of every file, None where that is not known.

    Raises:
        Refused: a file is not what its name says.
    """
    try:
        if path.endswith(".gguf"):
            return to_facts(shape_of(read_header(_Ranges(partial(read, path)))))
        return _of_config(str(PurePosixPath(path).with_name(CONFIG)), read, sizes)
    except _TooFarError:
        return {}
    except Refused as e:
        raise Refused(f"{path}: {e.what}", why=e.why, do=e.do) from None


def _of_config(config: str, read: Read, sizes: Mapping[str, int | None]) -> Facts:
    """Of a safetensors model: its shape is in the configuration beside it, and its weight in its files' sizes."""
    if config not in sizes:
        return {}
    text = read(config, 0, MOST_BYTES)
    if len(text) >= MOST_BYTES:
        raise _TooFarError
    weights = [size for path, size in sizes.items() if path.endswith(".safetensors")]
    known = sum(size for size in weights if size is not None) if None not in weights else None
    return to_facts(shape_of_config(plain_json(text, CONFIG), weight_bytes=known))


def read_file(path: Path, start: int, end: int) -> bytes:
    """The bytes of a file of this machine.

    Raises:
        Refused: it cannot be read.
    """
    if path.exists() and not path.is_file():
        # A pipe would be waited on for ever.
        raise Refused(f"{path} cannot be read here", why="it is no regular file", do="name a file, or its folder")
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), end - start, start)
    except OSError as e:
        why = (e.strerror or type(e).__name__).lower()
        raise Refused(f"{path} cannot be read here", why=why, do="check its rights") from None
