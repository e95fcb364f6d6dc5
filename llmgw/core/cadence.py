"""When a status commit is due: soon enough to be of use, seldom enough to be read.

A verdict on a commit and a rollout's end are what somebody waits for. The rest
settles first, and comes at most once a minute.
"""

from __future__ import annotations

from llmgw.core.status import FleetStatus

VERDICT_S = 1.0
"""After a new commit: within two seconds of it, with the pass and the push."""
ARRIVED_S = 1.0
"""After the fleet came to be as asked."""
LOST_S = 10.0
"""After a node or a model was lost."""
SETTLE_S = 10.0
APART_S = 60.0


def due_in_s(committed: FleetStatus | None, now: FleetStatus, *, changed_s: float, committed_s: float) -> float:
    """Seconds until what is now should be committed; 0 at once.

    Args:
        committed: what the branch says. None: nothing yet.
        now: what is; its digest differs from the committed one.
        changed_s: since it first differed.
        committed_s: since the last commit of this process; infinite before the first.
    """
    if committed is None or committed.observed_commit != now.observed_commit or committed.problems != now.problems:
        return max(0.0, VERDICT_S - changed_s)
    if now.as_asked and not committed.as_asked:
        return max(0.0, ARRIVED_S - changed_s)
    if _lost(committed, now):
        return max(0.0, LOST_S - changed_s)
    return max(0.0, SETTLE_S - changed_s, APART_S - committed_s)


def _lost(committed: FleetStatus, now: FleetStatus) -> bool:
    nodes = {n.name: n.standing for n in committed.nodes}
    models = {m.name: m.state for m in committed.models}
    gone = any(n.standing != "usable" and nodes.get(n.name) == "usable" for n in now.nodes)
    down = any(
        models.get(m.name) == "ready" and m.state != "ready" and not any(p.ready for p in m.profiles)
        for m in now.models
    )
    return gone or down
