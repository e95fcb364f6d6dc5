"""The processes of one machine: started together, started again when one ends, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw.errors import Exit, OperatorError, Refused, Unreachable

AGAIN_S = (1.0, 30.0)
"""Before a process that ended is started again: the first wait, doubling to the longest."""
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Program:
    """One process to keep running."""

    name: str
    argv: Sequence[str]
    log: Path
    """Where what it prints goes."""
    stops: int
    """Its turn when all are stopped: the lowest first, and those of one turn together."""
    stop_s: float = 10.0
    """What it may take to end when it is told to."""
    after: Sequence[str] = ()
    """What is run where it did not end well: it clears away what the process left."""


class Processes:
    """Keeps programs running until they are stopped."""

    def __init__(self, programs: Sequence[Program], *, say: Callable[[str], None]) -> None:
        """Start nothing yet.

        Args:
            programs: in the order in which they start; each says when it stops.
            say: tells the person what happens to them.
        """
        self._programs, self._say = programs, say
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = False
        self.answered = False
        """Whether all have answered once. Until then one that ends by itself cannot be started as it is told to."""

    async def keep(self) -> None:
        """Start all, and start again what ends, for ever.

        Raises:
            OperatorError: one cannot be started as it is told to.
        """
        async with asyncio.TaskGroup() as tasks:
            for program in self._programs:
                tasks.create_task(self._keep(program))

    async def _keep(self, program: Program) -> None:
        wait, longest = AGAIN_S
        while not self._stopping:
            began = time.monotonic()
            process = await self._start(program)
            code = await process.wait()
            if self._stopping:
                return
            if not self.answered and code > 0:
                raise _could_not_start(program, code)
            lived = time.monotonic() - began
            wait = AGAIN_S[0] if lived > longest else wait
            self._say(f"{program.name} ended with {code} and is started again in {wait:.0f}s; see {program.log}")
            await asyncio.sleep(wait)
            wait = min(wait * 2, longest)

    async def _start(self, program: Program) -> asyncio.subprocess.Process:
        program.log.parent.mkdir(parents=True, exist_ok=True)
        with program.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *program.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Its own session: Ctrl-C at the terminal reaches us alone, and we stop them in order.
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._running[program.name] = process
        return process

    async def stop(self) -> None:
        """End all, one after another, in bounded time."""
        self._stopping = True
        for turn in sorted({program.stops for program in self._programs}):
            await asyncio.gather(*(self._stop(program) for program in self._programs if program.stops == turn))

    async def _stop(self, program: Program) -> None:
        process = self._running.get(program.name)
        if process is None:
            return
        if process.returncode is None:
            await self._end(program, process)
        if process.returncode and program.after:
            await self._clear(program)

    async def _end(self, program: Program, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(program.stop_s):
                await process.wait()
        except TimeoutError:
            self._say(f"{program.name} did not end in {program.stop_s:.0f}s and was killed")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _clear(self, program: Program) -> None:
        with program.log.open("ab") as log:
            clearing = await asyncio.create_subprocess_exec(
                *program.after, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(program.stop_s):
                await clearing.wait()


def _end_with_parent() -> None:
    """In the child: be told to end when this process is killed, so that nothing stays behind."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:
        os._exit(1)


def _could_not_start(program: Program, code: int) -> OperatorError:
    """The process's own words, where it ended with some."""
    said = _last_error(program.log)
    kind = {int(Exit.UNREACHABLE): Unreachable, int(Exit.REFUSED): Refused}.get(code, OperatorError)
    if said is not None:
        return kind(said[0], why=said[1], do=said[2])
    return OperatorError(
        f"{program.name} ended with {code} at once", why="it does not say why", do=f"see {program.log}"
    )


def _last_error(log: Path) -> tuple[str, str, str] | None:
    """What, why and what to do of the last error that a process printed."""
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace")[-20_000:].splitlines()
        for at in range(len(lines) - 1, -1, -1):
            if not lines[at].startswith("error: "):
                continue
            rest = [line.strip() for line in lines[at + 1 :]]
            why = next((line.removeprefix("because ") for line in rest if line.startswith("because ")), "")
            do = next((line.removeprefix("next: ") for line in rest if line.startswith("next: ")), "")
            return lines[at].removeprefix("error: "), why, do
    return None
