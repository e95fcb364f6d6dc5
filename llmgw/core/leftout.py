"""When a pass cannot be decided: which models it fails for, so that all the others' goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from llmgw.core.actions import Plan
from llmgw.core.wanted import Wanted

MOST = 5
"""Models that are singled out. More than that are no odd ones: something all have in common is wrong."""


def culprits(decide: Callable[[Wanted], Plan], wanted: Wanted) -> tuple[str, ...]:
    """The models without which a pass is decided. Empty: it cannot be, whatever is left out.

    Finds one in as many passes as it takes to halve their number until one is left.
    """
    names = sorted(wanted.models)
    found: list[str] = []
    while not _decides(decide, without(wanted, found)):
        if len(found) == MOST or not _decides(decide, without(wanted, names)):
            return ()
        # Without the first `high` it works, and without the first `low` it does not.
        low, high = 0, len(names)
        while high - low > 1:
            middle = (low + high) // 2
            works = _decides(decide, without(wanted, {*found, *names[:middle]}))
            low, high = (low, middle) if works else (middle, high)
        found.append(names[high - 1])
    return tuple(sorted(found))


def without(wanted: Wanted, names: Collection[str]) -> Wanted:
    """The same without some models, of which whatever runs is kept: that they are not there proves nothing."""
    if not names:
        return wanted
    models = {name: entry for name, entry in wanted.models.items() if name not in names}
    return replace(wanted, models=models, complete=False)


def _decides(decide: Callable[[Wanted], Plan], wanted: Wanted) -> bool:
    try:
        decide(wanted)
    except Exception:  # noqa: BLE001  whatever it is: it is looked for, and said by whoever calls
        return False
    return True
