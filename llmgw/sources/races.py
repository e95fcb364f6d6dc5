"""Trying again what somebody else's push got in the way of, a bounded number of times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from llmgw.errors import Unreachable
from llmgw.sources.branch import Busy

T = TypeVar("T")

TRIES = 5
FIRST_WAIT_S = 0.02
"""Doubled at each try, and spread: two writers that met once should not meet again."""


def until_won(attempt: Callable[[int], tuple[bool, T]], *, shown: str, branch: str) -> T:
    """The value of the first attempt that won.

    Args:
        attempt: given the number of tries before it; says whether it won, and its
            value. It looks anew where the branch is, and makes its commit for that.
        shown: the repository, for the error.
        branch: likewise.

    Raises:
        Unreachable: every one was lost.
    """
    why, do = "", ""
    for tries in range(TRIES):
        try:
            won, value = attempt(tries)
        except Busy:
            why, do = "it was locked", "if no git is at work there, remove the .lock file beside the branch"
        else:
            if won:
                return value
            why, do = "others pushed to it", "nothing: it is tried again"
        time.sleep(FIRST_WAIT_S * 2**tries * random.uniform(0.5, 1.5))  # noqa: S311 - spreads, hides nothing
    raise Unreachable(
        f"nothing was written to {branch} of {shown}",
        why=f"{why} each of the {TRIES} times",
        do=do,
    )
