"""Why a replica failed: from an engine's exit and its last lines, a class and the first line that caused it."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from llmgw_agent.errors import Refused
from llmgw_agent.process import Exit
from llmgw_agent.protocol import Dossier

READ_BYTES = 256 << 10
"""How much of the end of a log is looked at. A load prints far less."""
TAIL_LINES = 40
LINE_CHARACTERS = 400

Signs = Sequence[tuple[str, str]]
"""Pairs of a cause and a pattern that shows it in a log line."""


class Fault(Refused):
    """What stops a replica. The agent does not try again by itself: control decides that."""

    def __init__(self, cause: str, what: str, *, why: str, do: str) -> None:
        super().__init__(what, why=why, do=do)
        self.cause = cause

    def dossier(self, lines: Sequence[str] = ()) -> Dossier:
        return Dossier(self.cause, self.sentence, log_tail=tail(lines))


def last_lines(log: Path, *, secret: str = "") -> list[str]:
    """The end of an engine's log, without empty lines and without its key. Empty when there is no log."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - READ_BYTES))
            text = file.read(READ_BYTES).decode(errors="replace")
    except OSError:
        return []
    if secret:
        text = text.replace(secret, "(key)")
    # A terminal's colours and progress bars are no part of what it said.
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r", "\n")
    lines = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.split("\n"))
    return [line for line in lines if line]


def tail(lines: Sequence[str]) -> tuple[str, ...]:
    """As many of the last lines as a report carries."""
    return tuple(line[:LINE_CHARACTERS] for line in lines[-TAIL_LINES:])


def causal(lines: Sequence[str], signs: Signs) -> tuple[str, str] | None:
    """The first line that shows a cause, and that cause.

    The first, because what follows it is consequences: "see the root cause
    above" is what an engine says last.
    """
    for line in lines:
        for cause, pattern in signs:
            if re.search(pattern, line, re.IGNORECASE):
                return cause, line[:LINE_CHARACTERS]
    return None


def of_exit(how: Exit, lines: Sequence[str], signs: Signs, *, kernel_out_of_memory: bool) -> Dossier:
    """What is known of an engine that ended by itself.

    `kernel_out_of_memory`: whether the kernel ended something for want of
    memory while this engine ran.
    """
    cause, message = causal(lines, signs) or ("", "")
    if how.signal == signal.SIGKILL and kernel_out_of_memory:
        cause, message = "out_of_memory", "the kernel ended it for want of host memory"
    elif how.signal == signal.SIGILL:
        cause, message = "device", "it uses instructions this processor lacks; install a build for this machine"
    elif not cause and how.signal in {signal.SIGKILL, signal.SIGTERM, signal.SIGINT}:
        cause, message = "killed", f"it was ended from outside with {signal_name(how.signal)}"
    elif not cause:
        cause, message = "exited", _last_word(how, lines)
    return Dossier(cause, message, exit_code=how.code, signal=how.signal, log_tail=tail(lines))


def without_reason(how: Exit) -> Dossier:
    """What is known of an engine that ended, where looking for the reason failed."""
    return Dossier("exited", _last_word(how, []), exit_code=how.code, signal=how.signal)


def of_silence(cause: str, message: str, lines: Sequence[str], signs: Signs) -> Dossier:
    """What is known of an engine that stood still: our own sentence, and the line that may be why."""
    found = causal(lines, signs)
    return Dossier(cause, f"{message}; its log says: {found[1]}" if found else message, log_tail=tail(lines))


def signal_name(number: int) -> str:
    """`SIGKILL`; and `signal 40` for one that has no name of its own, as real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_word(how: Exit, lines: Sequence[str]) -> str:
    if how.signal is not None:
        ended = f"it ended with {signal_name(how.signal)}"
    else:
        ended = "it ended" if how.code is None else f"it ended with code {how.code}"
    loud = [line for line in lines if re.search(r"\berror\b|\bfatal\b|\bE\b|failed|exception", line, re.IGNORECASE)]
    said = loud[0] if loud else lines[-1] if lines else ""
    return f"{ended}: {said[:LINE_CHARACTERS]}" if said else f"{ended} and printed nothing"
