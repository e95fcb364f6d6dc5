"""How much context fits, whatever decides it."""

from __future__ import annotations

from collections.abc import Callable

STEP_TOKENS = 256
"""A context that is lowered is a multiple of this: engines round to it themselves."""
LEAST_CONTEXT = 4096
"""A place with room for fewer tokens does not hold a model that has more."""


def most_context(fits: Callable[[int], bool], wanted: int) -> int:
    """The most tokens that fit, up to what is wanted; 0: none do.

    Args:
        fits: whether so many tokens do; fewer always do where more do.
        wanted: more are not asked for.
    """
    if fits(wanted):
        return wanted
    return STEP_TOKENS * most(lambda steps: fits(steps * STEP_TOKENS), (wanted - 1) // STEP_TOKENS)


def most(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number that fits, up to a limit; 0: not even 1 does.

    Args:
        fits: whether a number does; smaller ones always do where larger ones do.
        limit: more is not tried.
    """
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
