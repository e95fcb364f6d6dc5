"""What the YAML parser's own errors mean to the person who wrote the file."""

from __future__ import annotations

from yaml import YAMLError

from llmgw.catalog.problem import Finding, Place, Steps

_MEANINGS = (
    # What the parser says, why that is, and what to do. The first that is found in its words counts.
    ("exceeded maximum nesting", "it goes too many levels deep", "write it flatter"),
    (
        "mapping values are not allowed",
        "a second `: ` is on one line, or this line is indented differently from the one it belongs to",
        "quote text that has `: ` in it, or indent the line as the keys beside it",
    ),
    (
        "cannot start any token",
        "nothing unquoted may begin with a tab, `@`, a backtick or `%`",
        "indent with spaces, or quote the text",
    ),
    (
        "could not find expected ':'",
        "a line among keys has no `: ` after its key",
        "write `key: value` with a space after the colon, or indent text that belongs to the line before",
    ),
    (
        "did not find expected key",
        "this line is indented differently from the keys it stands among, or a quote ends before the text does",
        "indent it as the keys beside it, or quote the whole text",
    ),
    (
        "did not find expected '-' indicator",
        "this line stands among the items of a list and does not begin with `- `",
        "begin it with `- `, or indent it as the item it belongs to",
    ),
    (
        "did not find expected ',' or ']'",
        "a list that `[` began is not ended by `]`",
        "write `, ` between items and `]`",
    ),
    (
        "did not find expected ',' or '}'",
        "a mapping that `{` began is not ended by `}`",
        "write `, ` between keys and `}`",
    ),
    ("expected node content", "a bracket is closed that is not open, or a value is missing", "pair the brackets"),
    ("unexpected end of stream", "a quote is opened and not closed", "close it"),
    ("document indicator", "a quote is opened and not closed before `---`", "close it"),
    (
        "escape",
        "a backslash in double quotes begins an escape, and there is no such one",
        "use single quotes, or `\\\\`",
    ),
    ("undefined alias", "`*` begins an alias in YAML", "quote text that begins with `*`"),
    ("alias", "`*` and `&` begin aliases and anchors in YAML", "quote text that begins with `*` or `&`"),
    ("anchor", "`*` and `&` begin aliases and anchors in YAML", "quote text that begins with `*` or `&`"),
    ("tag", "`!` begins a tag in YAML", "quote text that begins with `!`"),
    ("directive", "`%` at the beginning of a line is a directive in YAML", "quote text that begins with `%`"),
    (
        "block sequence entries are not allowed",
        "a list begins in the middle of a line",
        "begin it on a line of its own",
    ),
    (
        "block scalar",
        "what follows `|` or `>` is not text on the lines below",
        "put the text on lines of its own, indented",
    ),
    ("tab", "a line is indented with a tab", "indent with spaces"),
    (
        "<document start>",
        "something follows the end of the file's one value",
        "indent it so that it belongs to the value",
    ),
)


def explain(error: YAMLError, at: Steps) -> Finding:
    """The finding of an error that ended the reading of a file at `at`."""
    problem = str(getattr(error, "problem", None) or error)
    words = f"{getattr(error, 'context', None) or ''} {problem}"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
    for needle, why, do in _MEANINGS:
        if needle in words:
            return Finding(at, "this is not YAML", why, do, place)
    return Finding(at, "this is not YAML", problem.splitlines()[0], "correct this line or the one before", place)
