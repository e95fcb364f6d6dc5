"""How a command ends: the three lines, the JSON and the exit code of whatever stopped it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

from typer.exceptions import TyperException

from llmgw.errors import Misused, OperatorError, Refused

P = ParamSpec("P")
T = TypeVar("T")


class UnreadError(Exception):
    """Whoever read what was printed has gone. typer would make a failure of a BrokenPipeError."""


def unread(command: Callable[P, T]) -> Callable[P, T]:
    """The same command, which says in our own way that nobody reads it."""

    @wraps(command)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            raise UnreadError from None

    return called


def flush() -> None:
    """Write what was printed, while a failure can still be told.

    Raises:
        UnreadError: nobody reads it.
        OSError: it cannot be written.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise UnreadError from None


def silence() -> None:
    """What is left to print is not printed: Python would try once more at its end, and fail there again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def misused(error: TyperException) -> OperatorError:
    """A command line that was not understood, in the form of every other error."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "llmgw"
    said = error.format_message().strip().rstrip(".")
    # A value's type is checked by a library that calls a value `Input`.
    said = said.replace("Value error, ", "").replace("Input should", "it should")
    return Misused(f"{command} cannot be called like this", why=f"{said[:1].lower()}{said[1:]}", do=f"{command} --help")


def of_system(error: OSError) -> OperatorError:
    """What the operating system refused. A failed write does not say where it was going."""
    why = error.strerror or type(error).__name__
    if error.filename is not None:
        return Refused(f"{os.fsdecode(error.filename)} cannot be used", why=why, do="name another, or see who owns it")
    return OperatorError(
        "not all of it could be written", why=why, do="see to the place it was written to, and call it again"
    )


def tell(error: OperatorError, arguments: Sequence[str]) -> int:
    """Say it to people, and on stdout to a program that asked for JSON. The exit code."""
    print(f"error: {error}", file=sys.stderr)
    if _wants_json(arguments):
        said = {"what": error.what, "why": error.why, "do": error.do, "code": int(error.code)}
        with suppress(OSError):
            print(json.dumps({"error": said}, indent=2, ensure_ascii=False), flush=True)
    return int(error.code)


def _wants_json(arguments: Sequence[str]) -> bool:
    pairs = zip(arguments, (*arguments[1:], ""), strict=True)
    return any(a in ("--json", "--format=json") or (a, then) == ("--format", "json") for a, then in pairs)
