"""The forms that text in the catalog may have: patterns that an editor checks too, and what each is in words."""

from __future__ import annotations

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
"""Names of models, profiles and nodes: they are parts of paths, ids and URLs."""

ALIAS = r"^[a-z0-9][a-z0-9._:/-]{0,126}$"
SHA256 = r"^[0-9a-f]{64}$"
_PORT = r"([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
URL = rf"^https?://(\[[0-9A-Fa-f:.]+\]|[^\s/@?#:\[\]]+)(:{_PORT})?(/[^\s@?#]*)?$"
ADDRESS = r"^[A-Za-z0-9.:-]+$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
CRON = r"^\S+( \S+){4}$"
ZONE = r"^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"
DAY = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"
URL_PATH = r"^/[^\s?#]*$"
USER = r"^[a-z_][a-z0-9_-]*$"
PLATFORM = r"^[a-z0-9]+-[a-z0-9_]+$"
COMMIT = r"^[0-9a-f]{40}$"
FACT = r"^[a-z][a-z0-9_.]{0,63}$"
FILE_PATH = r"^[A-Za-z0-9+-][A-Za-z0-9._+-]*(/[A-Za-z0-9+-][A-Za-z0-9._+-]*){0,3}$"
"""Of a file within a version: what the mirror keeps and every disk can hold."""

_DURATION = r"(\d+(\.\d+)?(ms|[smhdw]))+"
_SIZE = r"\d{1,15}(\.\d{1,6})?(B|[KMGT]i?B)"
_NUMBER = r"\d{1,6}(\.\d{1,4})?"
DURATION = rf"^{_DURATION}$"
AUTO = rf"^(auto|{_DURATION})$"
SIZE = rf"^{_SIZE}$"
GIB_SIZE = rf"^({_SIZE})$"
SIZE_SPAN = rf"^({_SIZE}(\.\.({_SIZE})?)?|\.\.{_SIZE})$"
SPAN = rf"^({_NUMBER}\.\.({_NUMBER})?|\.\.{_NUMBER})$"

FORMS = {
    NAME: "a name of at most 63 lower-case letters, digits, `.`, `_` and `-`, the first a letter or digit",
    ALIAS: "an alias of at most 127 characters: those of a name, and `/` and `:`",
    SHA256: "a sha256 of 64 hexadecimal digits in lower case",
    URL: "an http or https URL without user, query or fragment, its port from 1 to 65535",
    ADDRESS: "an IP address or a host name, without a port",
    CRON: "five fields of cron: minute, hour, day of the month, month, day of the week",
    ZONE: "a time zone by its name in the IANA database",
    DAY: "a date as year, month and day",
    URL_PATH: "the path of a URL, which begins with `/`, without query and fragment",
    USER: "a user of a Unix system, in lower case",
    PLATFORM: "a system and a processor, with `-` between them",
    COMMIT: "a commit of 40 hexadecimal digits in lower case",
    FACT: "a name of at most 64 lower-case letters, digits, `.` and `_`, the first a letter",
    FILE_PATH: "a path of at most four parts, of letters, digits, `.`, `_`, `+` and `-`, none beginning with `.`",
    DURATION: "a duration like `90s`, `15m` or `1h30m`, or a number of seconds, at most a year",
    AUTO: "`auto`, a duration like `90s` or `15m`, or a number of seconds, at most a year",
    SIZE: "a size like `24GiB` or `80GB`, or a number of bytes",
    GIB_SIZE: "a number of GiB above 0, at most 1000000, or a size like `24GiB`",
    SIZE_SPAN: "a range of sizes like `24GiB..`, `..48GB` or `40GB..80GB`, or one size like `48GB`",
    SPAN: "a range like `2..4`, `8.0..` or `..9.0`",
}
"""What a pattern asks for, in words: for problems and for the reference."""

LIKE = {
    NAME: "qwen3-8b",
    ALIAS: "org/qwen3:8b",
    URL: "http://10.0.0.2:8081",
    ADDRESS: "10.0.0.5",
    CRON: "0 7 * * 1-5",
    ZONE: "Europe/Berlin",
    DAY: "2027-01-31",
    URL_PATH: "/health",
    USER: "root",
    PLATFORM: "linux-x86_64",
    FACT: "rope.scale",
    FILE_PATH: "q4/model-00001-of-00002.gguf",
    DURATION: "15m",
    AUTO: "15m",
    SIZE: "24GiB",
    GIB_SIZE: "24GiB",
    SIZE_SPAN: "80GB..",
    SPAN: "8.0..",
}
"""An example of each form that has one worth showing."""
