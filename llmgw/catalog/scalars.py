"""The scalars of YAML 1.2's core schema: what unquoted text stands for.

`no`, `on` and `yes` are text, `017` is seventeen, `0o17` is fifteen, and a
date is text: what an editor's YAML 1.2 says, and not what YAML 1.1 said.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

LONGEST_NUMBER = 1000
"""Characters. Python refuses to read or write integers of more than 4,300
digits, and takes quadratic time on the way there; no field is near it."""

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((f"{sign}{word}" for sign in ("", "+") for word in (".inf", ".Inf", ".INF")), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def resolve(text: str) -> Scalar:
    """What a plain, that is unquoted, scalar stands for.

    Raises:
        ValueError: a number of more than `LONGEST_NUMBER` characters.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    integer, other, decimal = _INTEGER.fullmatch(text), _OTHER_BASE.fullmatch(text), _FLOAT.fullmatch(text)
    if not (integer or other or decimal):
        return text
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters")
    if integer:
        return int(text)
    return int(text, 0) if other else float(text)
