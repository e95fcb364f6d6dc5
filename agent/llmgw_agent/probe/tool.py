"""A driver's own program, asked in a child that is not waited for when the driver hangs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import Struct

DEADLINE_S = 20.0
"""A driver without persistence wakes each card first, which takes a second or two for each."""
MOST_BYTES = 16 << 20
"""Of what a program says: eight cards with all their clocks are one MiB."""


class Said(Struct, frozen=True):
    """What a program printed."""

    out: bytes
    err: bytes = b""
    code: int = 0

    @property
    def failure(self) -> str:
        """What it says is wrong: the first line, of what it printed beside its answer if there is any."""
        lines = (self.err[:4096] + b"\n" + self.out[:4096]).decode(errors="replace").split("\n")
        return next((line.strip()[:200] for line in lines if line.strip()), "") or f"it ended with code {self.code}"


class Silent(Exception):
    """The program cannot be asked: why, as a sentence."""


class Tool:
    """One program. Never asked again before it has ended: a driver that hangs would gather children that cannot."""

    def __init__(self, program: str) -> None:
        """Ask nothing yet.

        Args:
            program: its absolute path.
        """
        self.program = program
        self._name = program.rpartition("/")[2]
        self._last: asyncio.subprocess.Process | None = None

    async def ask(self, *words: str) -> Said:
        """What it says.

        Raises:
            Silent: it did not answer in time, or could not be run.
        """
        if self._last is not None and self._last.returncode is None:
            raise Silent(f"{self._name} was asked before and still hangs: the driver does, or a card")
        try:
            child = await asyncio.create_subprocess_exec(
                self.program,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as e:
            raise Silent(f"{self._name} could not be run: {e.strerror}") from None
        try:
            async with asyncio.timeout(DEADLINE_S):
                return Said(*await _ended(child))
        except TimeoutError:
            raise Silent(
                f"{self._name} does not answer within {DEADLINE_S:g} s: the driver hangs, or a card does"
            ) from None
        finally:
            await self._end(child)

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        """Killed, and waited for a moment only: in an uninterruptible call it ends when the driver lets it."""
        if child.returncode is None:
            with suppress(ProcessLookupError, TimeoutError):
                child.kill()
                await asyncio.wait_for(_ended(child), 1)
        self._last = child


async def _ended(child: asyncio.subprocess.Process) -> tuple[bytes, bytes, int]:
    """What it printed, and its code, once it has ended and nobody holds what it printed to any more."""
    out, err = await asyncio.gather(_most_of(child.stdout), _most_of(child.stderr))
    return out, err, await child.wait()


async def _most_of(stream: asyncio.StreamReader | None) -> bytes:
    """All of it, up to a bound; the rest is read and dropped, so that the program can end."""
    assert stream is not None, "it is a pipe"
    kept = bytearray()
    while block := await stream.read(1 << 16):
        kept += block[: MOST_BYTES - len(kept)]
    return bytes(kept)
