"""Names a version and its files may have: they become paths here and on every node, and parts of URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MAX_FILES = 10_000
MAX_PATH_BYTES = 200
MAX_DEPTH = 4

LEFT_OUT = frozenset({".cache", ".DS_Store", ".git", ".gitattributes", ".gitignore"})
"""What downloaders and desktops leave beside weights: neither listed nor served. Any other hidden name is most
likely a copy that is under way."""

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
"""The catalog's, in a test the same. Not imported from there: it would cost this process pydantic."""

_NAME = re.compile(NAME)
# Neither `.` nor `_` begins a name: hidden files are left by programs that copy,
# and `_` marks the mirror's own folders.
_SEGMENT = re.compile(r"[A-Za-z0-9+-][A-Za-z0-9._+-]*")


def is_name(text: str) -> bool:
    """Whether a model or a version may be called this."""
    return _NAME.fullmatch(text) is not None


def name_problems(name: str, version: str) -> Iterator[str]:
    """What is wrong with the two names, if anything."""
    for what, text in (("name", name), ("version", version)):
        if not is_name(text):
            yield (
                f"{what} {_shown(text)}: it is at most 63 of a-z, 0-9, dot, dash and underscore, "
                "beginning with a letter or digit"
            )


def path_problems(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every path of a version that is wrong, alone or beside the others, and why."""
    given = list(paths)
    seen: dict[str, str] = {}
    if len(given) > MAX_FILES:
        yield given[MAX_FILES], f"there are {len(given)} files, and a version has at most {MAX_FILES}"
        return
    for path in given:
        if problem := _path_problem(path):
            yield path, f"file {_shown(path)}: {problem}"
        elif (folded := path.casefold()) in seen:
            # Two files here would be one on a disk that does not tell a from A.
            yield path, f"file {_shown(path)}: {_shown(seen[folded])} is the same where case does not count"
        else:
            seen[folded] = path
    for folded, path in sorted(seen.items()):
        for n, letter in enumerate(folded):
            if letter == "/" and folded[:n] in seen:
                yield path, f"file {_shown(path)}: {_shown(seen[folded[:n]])} is a file, and cannot be a folder too"


def _path_problem(path: str) -> str:
    if len(path) > MAX_PATH_BYTES:
        return f"its path is longer than {MAX_PATH_BYTES} characters"
    segments = path.split("/")
    if len(segments) > MAX_DEPTH:
        return f"it lies more than {MAX_DEPTH} folders deep"
    if not all(_SEGMENT.fullmatch(segment) and not segment.endswith(".") for segment in segments):
        return (
            "each part of its path is made of letters, digits, dot, dash, plus and underscore, "
            "and begins with neither dot nor underscore"
        )
    return ""


def _shown(text: str) -> str:
    """Quoted, with what a terminal would obey or hide made visible."""
    return ascii(text if len(text) <= 80 else text[:80] + "...")
