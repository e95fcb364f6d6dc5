"""The header of a model's main file, read over ranges: at most two requests and 128 KiB."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from llmgw.core.resolved import Fact
from llmgw.errors import Refused
from llmgw.planning.gguf import read_header
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.shape import to_facts

Read = Callable[[str, int, int], bytes]
"""The bytes of one file of a source: its path, the first byte, and the one after the last."""

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


def facts_of(path: str, read: Read) -> dict[str, Fact | list[Fact]]:
    """What planning needs of a model. Empty: its header says it further on than is read, or not in a way we know.

    Args:
        path: of the main file.
        read: gives its bytes. May raise OperatorError.

    Raises:
        Refused: the file is not what its name says.
    """
    if not path.endswith(".gguf"):
        return {}
    try:
        return to_facts(shape_of(read_header(_Ranges(partial(read, path)))))
    except _TooFarError:
        return {}
    except Refused as e:
        raise Refused(f"{path}: {e.what}", why=e.why, do=e.do) from None


def read_file(path: Path, start: int, end: int) -> bytes:
    """The bytes of a file of this machine.

    Raises:
        Refused: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), end - start, start)
    except OSError as e:
        why = (e.strerror or type(e).__name__).lower()
        raise Refused(f"{path} cannot be read here", why=why, do="check its rights") from None
