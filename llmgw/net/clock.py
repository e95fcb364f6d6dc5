"""The time of day as decisions use it: one reading, and then only what has passed since."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady(
    wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
) -> Callable[[], float]:
    """UTC seconds that grow as fast as time does.

    Somebody who sets the machine's clock, or a time server that corrects it by a
    day, must not end a grace, a backoff or a retention. What was wrong at the start
    stays as wrong until the process is started again.
    """
    offset = wall() - monotonic()
    return lambda: offset + monotonic()
