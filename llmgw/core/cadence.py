"""When a status commit is due: soon enough to be of use, seldom enough to be read.

A verdict on a commit and a rollout's end are what somebody waits for. The rest
settles first, and comes at most once a minute.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from llmgw.core.problems import problems
from llmgw.core.status import FleetStatus, NodeNow

VERDICT_S = 1.0
"""After a new commit: within two seconds of it, with the pass and the push."""
ARRIVED_S = 1.0
"""After the fleet came to be as asked."""
LOST_S = 10.0
"""After a node or a model was lost, or something else came to need a person."""
SETTLE_S = 10.0
APART_S = 60.0
SELDOM_S = 600.0
"""Between commits that only bring what others take of memory and disk: while weights arrive it moves all the time."""
BUSY = 6
"""Commits within an hour, after which all that nobody waits for is as seldom: a night in which everything goes wrong
is to be read in the morning."""
HOUR_S = 3600.0
MOVED_GIB = 2


def worth_writing(committed: FleetStatus | None, now: FleetStatus) -> bool:
    """Whether there is anything new to commit."""
    return committed is None or now.digest != committed.digest or figures_moved(committed, now)


def figures_moved(committed: FleetStatus, now: FleetStatus) -> bool:
    """Whether what others take of a node, or its free disk, is over 2 GiB from what is written: plans count on it."""
    known = {n.name: n.now for n in committed.nodes}
    return any(n.name in known and _moved(known[n.name], n.now) for n in now.nodes)


def _moved(was: NodeNow | UnsetType, now: NodeNow | UnsetType) -> bool:
    if was is UNSET or now is UNSET:
        return was is not now
    pairs = [
        (was.memory_used_by_others_gib, now.memory_used_by_others_gib),
        (was.disk_free_gib, now.disk_free_gib),
        *(
            (was.cards_held_gib.get(c, 0), now.cards_held_gib.get(c, 0))
            for c in {*was.cards_held_gib, *now.cards_held_gib}
        ),
    ]
    return any(
        (a is None) != (b is None) or (a or 0) - (b or 0) not in range(-MOVED_GIB, MOVED_GIB + 1) for a, b in pairs
    )


def due_in_s(
    committed: FleetStatus | None, now: FleetStatus, *, changed_s: float, committed_s: float, in_hour: int = 0
) -> float:
    """Seconds until what is now should be committed; 0 at once.

    Args:
        committed: what the branch says. None: nothing yet.
        now: what is; its digest differs from the committed one.
        changed_s: since it first differed.
        committed_s: since the last commit of this process; infinite before the first.
        in_hour: commits of this process within the last hour.
    """
    if committed is None or _verdict(committed) != _verdict(now):
        return max(0.0, VERDICT_S - changed_s)
    if now.as_asked and not committed.as_asked:
        return max(0.0, ARRIVED_S - changed_s)
    if _lost(committed, now):
        return max(0.0, LOST_S - changed_s)
    apart = SELDOM_S if in_hour >= BUSY or now.digest == committed.digest else APART_S
    return max(0.0, SETTLE_S - changed_s, apart - committed_s)


def _verdict(status: FleetStatus) -> tuple[object, ...]:
    """What somebody waits for who pushed something, or who looks whether control is well."""
    trouble = tuple(c for c in status.trouble if c.kind != "flapping")
    return status.observed_commit, status.problems, trouble


def _lost(committed: FleetStatus, now: FleetStatus) -> bool:
    nodes = {n.name: n.standing for n in committed.nodes}
    models = {m.name: m.state for m in committed.models}
    gone = any(n.standing != "usable" and nodes.get(n.name) == "usable" for n in now.nodes)
    down = any(
        models.get(m.name) == "ready" and m.state != "ready" and not any(p.ready for p in m.profiles)
        for m in now.models
    )
    return gone or down or _new(committed, now)


def _new(committed: FleetStatus, now: FleetStatus) -> bool:
    """Whether something needs a person that did not."""
    return not {t.key for t in problems(now) if not t.waits} <= {t.key for t in problems(committed)}
