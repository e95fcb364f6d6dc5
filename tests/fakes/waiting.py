"""Waiting for something to become true, with a bound and a sentence when it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def until(what: Callable[[], T], *, within_s: float = 10.0, said: str = "") -> T:
    """The first truthy value of `what()`.

    Raises:
        AssertionError: it stayed falsy; the text says what was waited for.
    """
    deadline = time.monotonic() + within_s
    while not (value := what()):  # a condition of another process: there is no event to wait for
        assert time.monotonic() < deadline, f"after {within_s} s still not: {said or what}"
        await asyncio.sleep(0.01)
    return value


def until_now(what: Callable[[], T], *, within_s: float = 10.0, said: str = "") -> T:
    """The same where no loop runs."""
    deadline = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < deadline, f"after {within_s} s still not: {said or what}"
        time.sleep(0.01)
    return value
