"""A file before and after, as a diff that people read and `git apply` takes."""

from __future__ import annotations

from difflib import unified_diff


def unified(path: str, before: bytes | None, after: bytes | None) -> str:
    """The lines that differ, with those around them. Carriage returns are in it as they are in the file.

    Args:
        path: of the file, from the top of the repository.
        before: None: it was not there.
        after: None: it is removed.
    """
    lines = unified_diff(
        _lines(before),
        _lines(after),
        f"a/{path}" if before is not None else "/dev/null",
        f"b/{path}" if after is not None else "/dev/null",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(data: bytes | None) -> list[str]:
    # Not splitlines: a lone carriage return is no line end to git, nor is a form feed.
    *whole, rest = (data or b"").decode("utf-8").split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]
