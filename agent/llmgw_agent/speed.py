"""How fast an engine writes one answer, worked out of what it counts.

An engine counts tokens and the time they took for all of its slots together, and adds a request
when that is over. What several of them took at once says nothing of one, so only stretches count
in which a single slot was at work.
"""

from __future__ import annotations

from msgspec import Struct

LEAST_TOKENS = 32
"""Fewer say nothing: the first token of an answer is counted with the prompt's time."""
LEAST_SHARE = 1e-3
"""Of all it has ever written: engines print six digits, so a smaller step is mostly rounding."""
ALONE = 1.05
"""Slots at work in a step, on average, up to which it counts as one."""
WEIGHT = 0.3
"""Of the newest stretch: one odd answer does not move the figure far, and ten do."""


class Work(Struct, frozen=True):
    """What an engine has counted since it started."""

    tokens: float
    """Written, of requests that are over."""
    seconds: float
    """That writing them took, summed over requests."""
    steps: float | None = None
    """Batches it worked through. None: it does not say."""
    slots: float | None = None
    """Slots that were at work, summed over the steps."""

    def since(self, earlier: Work) -> Work:
        """What came between."""
        known = None not in (self.steps, self.slots, earlier.steps, earlier.slots)
        return Work(
            self.tokens - earlier.tokens,
            self.seconds - earlier.seconds,
            (self.steps or 0) - (earlier.steps or 0) if known else None,
            (self.slots or 0) - (earlier.slots or 0) if known else None,
        )

    @property
    def alone(self) -> bool:
        """Whether one slot at a time was at work. An engine that does not say is not taken to have been."""
        return self.steps is not None and self.slots is not None and self.slots <= ALONE * self.steps


class Speed:
    """The speed of one engine's life, smoothed."""

    def __init__(self) -> None:
        self.tps: float | None = None
        """Tokens a second of one answer. None: no answer was written alone yet."""
        self._mark = Work(0.0, 0.0, 0.0, 0.0)
        self._was_alone = True

    def saw(self, now: Work) -> None:
        """Take in what the engine counts now."""
        step = now.since(self._mark)
        if step.tokens < 0 or step.seconds < 0:
            # It counts anew: another process, or one that forgot.
            self._mark, self._was_alone = now, False
            return
        if step.tokens < max(LEAST_TOKENS, LEAST_SHARE * now.tokens) or step.seconds <= 0:
            return
        # A request that ends in this stretch may have begun in the one before.
        if step.alone and self._was_alone:
            found = step.tokens / step.seconds
            self.tps = found if self.tps is None else self.tps + WEIGHT * (found - self.tps)
        self._mark, self._was_alone = now, step.alone
