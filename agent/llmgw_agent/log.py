"""Logs: one JSON object a line on stderr, or plain text on a terminal. Set up here and nowhere else."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

# What every record has by itself; all else came in through `extra` and is a field of its own.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, object]:
    """What was given as `extra`: model, node, commit and the like, sorted by name."""
    return {name: value for name, value in sorted(vars(record).items()) if name not in _OWN}


def _when(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class JsonLine(logging.Formatter):
    """{time, level, event, …extra fields}; a traceback, where there is one, is a field."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _when(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= fields(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLine(logging.Formatter):
    """The same for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        more = "".join(f" {name}={value}" for name, value in fields(record).items())
        text = f"{_when(record).astimezone():%H:%M:%S} {record.levelname.lower():7} {record.getMessage()}{more}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def setup(level: str = "info", *, stream: TextIO | None = None) -> None:
    """Send everything that is logged to `stream`, stderr when it is None. Called once, by a process's main."""
    to = stream or sys.stderr
    handler = logging.StreamHandler(to)
    handler.setFormatter(TextLine() if to.isatty() else JsonLine())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # These say each request at `info`, which is a line a second and tells an operator nothing.
    for chatty in ("httpx", "httpcore", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
