"""What is in flight, per replica: the one place where it is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from llmgw.core.table import TableReplica
from llmgw.gateway.pick import Key, key_of


class Hold:
    """One slot of one replica, for as long as the `with` block lasts, however it ends."""

    __slots__ = ("_held", "_ledger", "key", "model", "replica")

    def __init__(self, ledger: Ledger, model: str, replica: TableReplica) -> None:
        self._ledger, self.model, self.replica = ledger, model, replica
        self.key = key_of(replica)
        self._held = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the slot back. A second time changes nothing."""
        if self._held:
            self._held = False
            self._ledger.give_back(self)

    def linger(self) -> None:
        """The request is over here and may not be in the engine: the slot stays taken until `settle`."""
        if self._held:
            self._held = False
            self._ledger.give_back(self, lingering=True)


class Ledger:
    """Slots taken by requests, and by requests that are gone and may still be at work in an engine."""

    def __init__(self, now: Callable[[], float], suspect_s: float) -> None:
        """`suspect_s` is how long a replica that was accused stays suspect."""
        self._now, self._suspect_s = now, suspect_s
        self.freed: Callable[[str], None] = lambda _: None
        """Called with the model's name whenever a slot of it became free."""
        self._live: Counter[Key] = Counter()
        self._lingering: Counter[Key] = Counter()
        self._models: Counter[str] = Counter()
        self._failed: dict[Key, float] = {}

    def take(self, model: str, replica: TableReplica) -> Hold:
        """A slot of this replica, whether one is free or not: `pick` has looked."""
        hold = Hold(self, model, replica)
        self._live[hold.key] += 1
        self._models[model] += 1
        return hold

    def give_back(self, hold: Hold, *, lingering: bool = False) -> None:
        """Called by the hold, once."""
        _less(self._live, hold.key)
        _less(self._models, hold.model)
        if lingering:
            self._lingering[hold.key] += 1
        else:
            self.freed(hold.model)

    def settle(self, key: Key, model: str, processing: int) -> None:
        """The engine has `processing` slots at work: what is over our live requests may linger, no more."""
        left = max(0, processing - self._live[key])
        if left < self._lingering[key]:
            self._lingering[key] = left
            if not left:
                del self._lingering[key]
            self.freed(model)

    def accuse(self, key: Key) -> None:
        """This replica did not answer."""
        self._failed = {k: at for k, at in self._failed.items() if self.suspect(k)}
        self._failed[key] = self._now()

    def taken(self, key: Key) -> int:
        return self._live[key] + self._lingering[key]

    def lingering(self, key: Key) -> int:
        return self._lingering[key]

    def suspect(self, key: Key) -> bool:
        failed = self._failed.get(key)
        return failed is not None and self._now() - failed < self._suspect_s

    def left_behind(self) -> int:
        """Slots taken by requests that are gone."""
        return self._lingering.total()

    def in_flight(self) -> dict[str, int]:
        """Requests in flight by model; those without any are not in it."""
        return dict(sorted(self._models.items()))


def _less(counter: Counter[Any], key: Any) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
