"""Who served what, when: a line for every start, ready, stop and failure of a replica.

A line says what is known of it by itself, so that one can be read without the
others. They are made from one observation to the next, and never of what a node
said that is silent now: what runs there is not known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, structs

from llmgw.core.actions import Plan, Start, Stop
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.replicas import parts
from llmgw.core.status import FleetStatus
from llmgw.core.wanted import Wanted, WantedModel
from llmgw_agent.protocol import Phase, ReplicaReport

LONGEST = 300
"""Characters of a reason: it may quote an engine."""
LONGEST_WORD = 100
"""Characters of anything else that a node says."""
LONGEST_ID = 200
"""Characters of a replica's id: one that is longer is made of no names that a catalog may have."""
MOST_CARDS = 32

FOUND = "it ran already when control first heard of it"
GONE = "its node does not report it any more, and why is not known"
UNSEEN = "it failed between two looks, and why is not known any more"
NO_NODE = "{} is no node of this fleet any more: what it does now is not known"


class Kind(StrEnum):
    """What happened to a replica."""

    START = "start"
    """Its node began with it: fetched its weights, or started its engine."""
    READY = "ready"
    STOP = "stop"
    """It ended because that was asked, or is gone."""
    FAILED = "failed"
    """It ended by itself, or never came up."""


class Line(Struct, frozen=True, omit_defaults=True):
    """One thing that happened to one replica."""

    at: int
    """UTC seconds."""
    kind: Kind
    replica: str
    generation: int
    node: str
    cards: tuple[str, ...] = ()
    """UUIDs."""
    version: str = ""
    """Of its weights, `name/version`. Empty: they are read in place."""
    digest: str = ""
    """`sha256:` of the only file of its weights, or of the list of all. Empty: not known."""
    engine: str = ""
    build: str = ""
    """Of the engine. Empty: not known, or not yet."""
    fingerprint: str = ""
    commit: str = ""
    """The commit that asked for what it runs. Empty: an earlier one than is known."""
    author: str = ""
    reason: str = ""
    attempts: int = 0
    """Starts that ended in failure."""

    @property
    def sentence(self) -> str:
        """`m/gpu/0 failed on n1: out_of_memory: …`."""
        verb = {Kind.START: "starts", Kind.READY: "is ready", Kind.STOP: "stopped", Kind.FAILED: "failed"}[self.kind]
        return f"{self.replica} {verb} on {self.node}" + (f": {self.reason}" if self.reason else "")

    @property
    def model(self) -> str:
        return parts(self.replica)[0]

    @property
    def of(self) -> Of:
        return self.node, self.replica, self.generation


Of = tuple[str, str, int]
"""A replica where it is: node, id, generation."""


class Known(Struct, frozen=True):
    """What has been written down of what is not over yet."""

    last: Mapping[Of, Line] = {}
    """The last line of each replica that a node still reported. A stop ends it."""
    why: Mapping[tuple[Kind, str, int], str] = {}
    """Why a start or a stop was decided, by id and generation, until it is seen."""


def taken_up(status: FleetStatus, lines: Iterable[Line]) -> Known:
    """What an earlier control had written down.

    Args:
        status: as it was last committed. It knows of replicas that have run for longer than `lines` go back.
        lines: the youngest ones, oldest first. None at all: no history was written yet, and what runs begins one.
    """
    lines = list(lines)
    if not lines:
        return Known()
    last = {line.of: line for line in _of_status(status)}
    for line in lines:
        if line.kind is Kind.STOP:
            last.pop(line.of, None)
        else:
            last[line.of] = line
    return Known(last)


def record(known: Known, wanted: Wanted, seen: Observed, plan: Plan, now: float) -> tuple[tuple[Line, ...], Known]:
    """The lines of what happened since the last time, and what is known with them.

    Args:
        known: from the last time.
        wanted: what was asked for.
        seen: what nodes report.
        plan: what was decided from that: why it starts and stops what it does.
        now: UTC seconds.
    """
    why = dict(known.why)
    for action in plan.actions:
        if isinstance(action, Start | Stop):
            kind = Kind.START if isinstance(action, Start) else Kind.STOP
            why[kind, action.id, action.generation] = action.why
    lines: list[Line] = []
    last = dict(known.last)
    spoken = {n.name for n in seen.nodes if n.age_s is not None}
    there: set[Of] = set()
    for node in seen.nodes:
        for report in node.replicas if node.name in spoken else ():
            if len(report.id) > LONGEST_ID:
                continue
            there.add((node.name, report.id, report.generation))
            lines += _of_report(last, why, wanted, plan, node, report, now)
    for of in sorted(last.keys() - there):
        ended = _ended(last[of], why, spoken, {n.name for n in seen.nodes}, now)
        if ended is not None:
            del last[of]
            lines += ended
    expected = {(p.id, p.generation) for p in plan.placements} | {(r, g) for _, r, g in last}
    why = {key: text for key, text in why.items() if key[1:] in expected}
    return tuple(sorted(lines, key=lambda line: line.at)), Known(last, why)


def _of_report(
    last: dict[Of, Line],
    why: Mapping[tuple[Kind, str, int], str],
    wanted: Wanted,
    plan: Plan,
    node: NodeSeen,
    report: ReplicaReport,
    now: float,
) -> list[Line]:
    """What its report says that was not written down, and keeps it in `last`."""
    of = (node.name, report.id, report.generation)
    before = last.get(of)
    kinds = _kinds(before, report)
    if not kinds:
        return []
    if report.phase is Phase.STOPPED and before is None:
        return []
    base = _line(wanted, plan, node, report)
    if before is not None and before.commit and before.fingerprint == base.fingerprint:
        # A commit that changed nothing of what runs, as one of a count, did not ask for this one.
        base = structs.replace(base, commit=before.commit, author=before.author)
    found: list[Line] = []
    # Backwards: what came before a start was not after it, whatever an age is rounded to.
    latest = now
    for kind in reversed(kinds):
        reason = why.get((kind, report.id, report.generation), "")
        if kind is Kind.START:
            reason = "tried again" if before is not None else reason or FOUND
        elif kind is Kind.FAILED:
            reason = f"{report.dossier.cause}: {report.dossier.message}" if report.dossier else UNSEEN
        began = report.started_age_s if kind is Kind.START and report.started_age_s is not None else report.age_s
        latest = min(latest, now - max(0.0, began))
        at = max(int(latest), before.at if before is not None else 0)
        found.insert(0, structs.replace(base, at=at, kind=kind, reason=_short(reason, LONGEST)))
    if found[-1].kind is Kind.STOP:
        last.pop(of, None)
    else:
        last[of] = found[-1]
    return found


def _kinds(before: Line | None, report: ReplicaReport) -> tuple[Kind, ...]:
    """What happened between what was written down and what is reported."""
    was = before.kind if before else None
    again = before is not None and report.attempts > before.attempts
    if again and was is not Kind.FAILED and report.phase is not Phase.FAILED:
        return (Kind.FAILED, *_kinds(None, report))
    match report.phase:
        case Phase.FETCHING | Phase.STARTING:
            return () if was is Kind.START else (Kind.START,)
        case Phase.READY:
            return () if was is Kind.READY else (Kind.READY,) if was is Kind.START else (Kind.START, Kind.READY)
        case Phase.FAILED if was is Kind.FAILED:
            return (Kind.START, Kind.FAILED) if again else ()
        case Phase.FAILED:
            return (Kind.FAILED,) if was else (Kind.START, Kind.FAILED)
        case Phase.STOPPED:
            return () if was is Kind.FAILED else (Kind.STOP,)
        case Phase.DRAINING | Phase.STOPPING:
            # It may serve what it has until it is gone.
            return () if was else (Kind.START,)


def _ended(
    line: Line, why: Mapping[tuple[Kind, str, int], str], spoken: set[str], nodes: set[str], now: float
) -> list[Line] | None:
    """The line of a replica that is not reported; none of one that had failed before. None: it is not over."""
    if line.node in nodes and line.node not in spoken:
        return None
    if line.kind is Kind.FAILED:
        return []
    reason = why.get((Kind.STOP, line.replica, line.generation), GONE)
    if line.node not in nodes:
        reason = NO_NODE.format(line.node)
    return [structs.replace(line, at=int(now), kind=Kind.STOP, reason=_short(reason, LONGEST))]


def _line(wanted: Wanted, plan: Plan, node: NodeSeen, report: ReplicaReport) -> Line:
    model, profile = parts(report.id)[:2]
    entry = wanted.models.get(model)
    asked = entry if entry is not None and entry.outcomes.get(profile) == report.fingerprint else None
    return Line(
        0,
        Kind.START,
        report.id,
        report.generation,
        node.name,
        cards=tuple(_short(d, LONGEST_WORD) for d in report.devices[:MOST_CARDS]),
        version=_short(report.version, LONGEST_WORD * 2),
        digest=_digest(asked, plan, report.version),
        engine=_short(report.engine, LONGEST_WORD),
        build=_short(report.engine_version, LONGEST_WORD),
        fingerprint=_short(report.fingerprint, LONGEST_WORD),
        commit=asked.commit if asked else "",
        author=asked.author if asked else "",
        attempts=report.attempts,
    )


def _digest(entry: WantedModel | None, plan: Plan, version: str) -> str:
    """Of weights as the mirror holds or held them, else as their lock has them."""
    sums = {f.path: f.sha256 for f in plan.memory.files.get(version, ())}
    if not sums and entry is not None and entry.lock is not None and entry.version_key == version:
        sums = {f.path: f.sha256 for f in entry.lock.files if f.sha256 is not None}
        sums = sums if len(sums) == len(entry.lock.files) else {}
    if len(sums) < 2:
        return "".join(f"sha256:{one}" for one in sums.values())
    # As `sha256sum` prints it, so that a person can make it again.
    listed = "".join(f"{one}  {path}\n" for path, one in sorted(sums.items()))
    return f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}"


def _of_status(status: FleetStatus) -> Iterator[Line]:
    for node in status.nodes:
        for r in node.replicas:
            if r.phase is Phase.STOPPED:
                continue
            began = {Phase.FETCHING: Kind.START, Phase.STARTING: Kind.START, Phase.FAILED: Kind.FAILED}
            yield Line(
                0,
                began.get(r.phase, Kind.READY),
                r.id,
                r.generation,
                node.name,
                cards=r.devices,
                version=r.version,
                fingerprint=r.fingerprint,
                attempts=r.attempts,
            )


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
