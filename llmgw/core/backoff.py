"""Step 7 of a pass: what failed is tried again later each time, and then not any more.

Retrying is keyed on the outcome, the fingerprint that failed, and never on the
commit: a commit that changes nothing of it changes nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llmgw.core.memory import Failures
from llmgw.core.replicas import Replica
from llmgw_agent.protocol import Phase

FIRST_S = 5.0
LONGEST_S = 600.0
PARKED_AFTER = 5
"""Rounds that failed."""

PARKS_AT_ONCE = frozenset({"out_of_memory", "bad_flags"})
"""Causes that trying again does not cure, unless the same serves on another node."""

STEADY_S = 600.0
"""A replica ready for this long has made up for what failed before it."""


def delay_s(count: int) -> float:
    """Seconds from the failure of round `count` to the next try: doubling, and capped."""
    return float(min(FIRST_S * 2 ** min(max(count - 1, 0), 20), LONGEST_S))


def parked(failures: Failures) -> bool:
    """Whether only a change of the outcome can help."""
    return failures.count >= PARKED_AFTER or (failures.cause in PARKS_AT_ONCE and not failures.elsewhere)


def wait_s(failures: Failures | None, now: float) -> float:
    """Seconds until the next try; 0 now."""
    # A clock that was set back makes no wait longer.
    delay = delay_s(failures.count) if failures else 0.0
    return min(delay, max(0.0, failures.last_at + delay - now)) if failures else 0.0


def updated(known: Failures | None, replicas: Iterable[Replica], fingerprint: str, now: float) -> Failures | None:
    """What a profile's failures are after this look, or None where there are none to remember.

    Attempts are reported by the nodes, so a reconciler that lost its memory goes on
    where it was.

    Args:
        known: what was remembered.
        replicas: the profile's own, any generation.
        fingerprint: what is wanted now.
        now: UTC seconds.
    """
    mine = [r for r in replicas if r.fingerprint == fingerprint]
    before = known if known and known.fingerprint == fingerprint else None
    if any(r.serves and r.age_s >= STEADY_S for r in mine):
        before = None
    failed = sorted((r for r in mine if r.phase is Phase.FAILED), key=lambda r: (-r.attempts, r.age_s, r.key))
    if not failed:
        tries = max((r.attempts for r in mine if r.age_s < STEADY_S), default=0)
        return before or (Failures(fingerprint, tries, last_at=now, cause="", message="") if tries else None)
    worst = failed[0]
    count = max(before.count if before else 0, worst.attempts, 1)
    # A round is as old as when it was first seen to be over: whatever a node then says of its age, it is waited once.
    known_round = before is not None and count == before.count
    nodes = {*(before.nodes if before else ()), *(r.node for r in failed)}
    return Failures(
        fingerprint,
        count,
        last_at=before.last_at if before and known_round else max(now - max(0.0, r.age_s) for r in failed),
        cause=worst.dossier.cause if worst.dossier else "exited",
        message=worst.dossier.message if worst.dossier else "",
        nodes=tuple(sorted(nodes)),
        elsewhere=any(r.serves and r.node not in nodes for r in mine),
    )


def pruned(failures: Mapping[str, Failures], profiles: Iterable[str]) -> dict[str, Failures]:
    """Only what concerns a profile (`model/profile`) that is still wanted."""
    kept = set(profiles)
    return {key: value for key, value in sorted(failures.items()) if key in kept}
