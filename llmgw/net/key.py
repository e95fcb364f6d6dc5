"""A bearer key in a file, read at each use so that it can be changed."""

from __future__ import annotations

from pathlib import Path

from llmgw.errors import Refused


def read_key(path: Path) -> str:
    """The key in a file.

    Raises:
        Refused: it cannot be read, or holds none.
    """
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise Refused(f"the key file {path} cannot be read", why=str(e), do="name another file, or make it") from None
    if not key:
        raise Refused(f"the key file {path} is empty", why="it should hold one key", do="write the key into it")
    return key
