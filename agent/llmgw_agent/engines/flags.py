"""Which flags a program knows, asked of the program itself just before it is started.

Builds of one engine differ, and a flag one of them does not know ends it at
once. The probe never runs what it finds; a start is about to run it anyway.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path

HELP_S = 15.0
"""A build for cards looks for them before it prints its help."""

_known: dict[tuple[tuple[str, ...], int, int], frozenset[str]] = {}


async def known(argv: tuple[str, ...], env: dict[str, str]) -> frozenset[str]:
    """Every flag in the help of `argv`, or none when it does not print any in time."""
    key = (argv, *_stamp(argv[0]))
    if key not in _known:
        found = frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", await said((*argv, "--help"), env)))
        if not found:
            return found
        _known[key] = found
    return _known[key]


def _stamp(program: str) -> tuple[int, int]:
    """Changes when the program is replaced. What is not there is found out when it is run."""
    try:
        stat = Path(program).stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


async def said(argv: tuple[str, ...], env: dict[str, str]) -> str:
    """What a program prints that is asked about itself; empty when it does not end in time."""
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(HELP_S):
            out, _ = await child.communicate()
    except TimeoutError:
        return ""
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError, TimeoutError):
                child.kill()
                await asyncio.wait_for(child.wait(), 2)
    return out.decode(errors="replace")
