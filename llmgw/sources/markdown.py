"""Values in a page of Markdown: none leaves its cell or its line, or is read as markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text(value: str) -> str:
    """A value as it is, on one line."""
    line = " ".join(value.split()).replace("@", "@\u200b")
    for mark in ("\\", "`", "*", "[", "]", "<", ">", "|"):
        line = line.replace(mark, f"\\{mark}")
    return line


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, most: int, rest: str) -> str:
    """A table. Its cells have been through `text` where they are not our own.

    Args:
        head: of the columns.
        rows: one for each line.
        most: rows that are shown.
        rest: where all of them are.
    """
    listed = list(rows)
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *listed[:most])]
    lines.insert(1, "|" + "---|" * len(head))
    more = f"\n{len(listed) - most} more are in {rest}.\n" if len(listed) > most else ""
    return "\n".join(lines) + "\n" + more
