"""What strangers wrote on a hub, as it may be shown: on one line, bounded, and nothing in it acts on a terminal."""

from __future__ import annotations

import re

_MOST_CHARACTERS = 1 << 16
"""More of a text is never looked at."""

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a title, or a link
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # a colour, or a move of the cursor
    r"|\x1b[ -/]*[0-~]?"
)
_FRONT_MATTER = re.compile(r"\A\s*---[^\n]*\n(?:.*?\n)?---[^\n]*(?:\n|\Z)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_CODE = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_IMAGE = re.compile(r"!\[[^\[\]\n]{0,300}\]\([^()\n]{0,500}\)")
_LINK = re.compile(r"\[([^\[\]\n]{0,300})\]\([^()\n]{0,500}\)")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,500}>")
_MARKS = re.compile(r"[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}(?!\w)|^\s*>\s?", re.MULTILINE)
_NO_PROSE = re.compile(r"\s*(#|\||[-=*_]{3,}\s*$|[-*+] |\d+\. |\[!)")
"""How a line of a heading, a table, a rule or a list begins."""
_LEAST_WORDS = 4
"""Of a paragraph: fewer are a row of badges or the name once more."""


def plain(text: object, limit: int = 80) -> str:
    """A text of a hub on one line, without escapes and what else does not print. What is no text is empty.

    Args:
        text: whatever the hub gave.
        limit: characters; more are cut, which a … says.
    """
    if not isinstance(text, str):
        return ""
    seen = _ESCAPES.sub("", text[:_MOST_CHARACTERS])
    line = " ".join("".join(c if c.isprintable() else " " for c in seen).split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def first_paragraph(markdown: str, limit: int = 600) -> str:
    """The first paragraph of prose of a README, without its marks. Empty: it has none.

    Args:
        markdown: the file, or its beginning.
        limit: characters.
    """
    text = markdown[:_MOST_CHARACTERS].replace("\r\n", "\n")
    text = _CODE.sub("", _COMMENT.sub("", _FRONT_MATTER.sub("", text, count=1)))
    for block in re.split(r"\n[ \t]*\n", text):
        lines = [line for line in block.split("\n") if not _NO_PROSE.match(line)]
        prose = plain(_MARKS.sub("", _TAG.sub("", _LINK.sub(r"\1", _IMAGE.sub("", "\n".join(lines))))), limit)
        if len(re.findall(r"\w+", prose)) >= _LEAST_WORDS:
            return prose
    return ""
