"""The errors of `llmgw_agent.errors`, and the exit codes that mean the same in every command."""

from __future__ import annotations

from enum import IntEnum

from llmgw_agent.errors import OperatorError, Refused, Unreachable

__all__ = ["Exit", "Misused", "OperatorError", "Refused", "Unreachable"]


class Exit(IntEnum):
    """What a command's exit code means."""

    DONE = 0
    PROBLEM = 1
    CHANGES = 2
    """Only with --detailed-exitcode."""
    UNREACHABLE = 3
    REFUSED = 4
    HELD = 5
    """Held, or not placeable."""
    USAGE = 64


class Misused(OperatorError):
    """A command was called with words it does not know."""

    code = int(Exit.USAGE)
