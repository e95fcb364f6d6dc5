"""Everything that is not as it should be, as values: the README, problems.yaml and notifications are made of these.

A problem that only takes time is one too: it is marked, and nobody has to get up for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct, structs

from llmgw.core.holdings import HoldingState
from llmgw.core.status import FleetStatus, HoldingStatus, ModelStatus, NodeStatus

KINDS = {
    "git_unreachable": "the repository cannot be read",
    "not_admitted": "a commit is not carried out: its signature, or its history",
    "status_branch": "the status branch cannot be written, or another writes it too",
    "internal": "a bug of llmgw",
    "flapping": "something changes to and fro, and is shown anew every ten minutes",
    "held": "a guard keeps a commit from removing what it would",
    "catalog": "a file of the repository cannot be used",
    "mirror_away": "the mirror does not answer",
    "node_silent": "a node does not report",
    "card_error": "a card is not well, or cannot be asked",
    "node": "a node is not trusted with anything new, or does not obey",
    "disk": "a disk has no room",
    "fetch_failed": "weights could not be had",
    "parked": "a profile failed too often and is not tried again",
    "frozen": "a model is kept as it was before a commit",
    "model_not_ready": "fewer replicas of a model are ready than are asked for",
    "waiting": "something of a model is not done yet",
}
"""Every kind there is, the gravest first: problems are sorted so."""

_RANK = {kind: rank for rank, kind in enumerate(KINDS)}


class Trouble(Struct, frozen=True, omit_defaults=True):
    """One problem."""

    kind: str
    subject: str
    """A model, a profile (`model/profile`), `node NAME`, a version, a file, or a part of control."""
    why: str
    """Stays the same as long as the reason does."""
    next: str = ""
    """What a person can do about it. Empty: nothing has to be done."""
    since: int = 0
    """When it was first written, UTC seconds. 0: it has not been yet."""
    waits: bool = False
    """Whether waiting may be enough."""

    @property
    def key(self) -> str:
        """The same for as long as it is the same problem for the same reason."""
        return f"{self.kind} {self.subject}: {self.why}"


def problems(status: FleetStatus) -> tuple[Trouble, ...]:
    """All of a status: what needs a person first, then by kind and subject, each once."""
    found = {t.key: t for t in _all(status)}
    dated = (structs.replace(t, since=status.since.get(t.key, 0)) for t in found.values())
    return tuple(sorted(dated, key=lambda t: (t.waits, _RANK[t.kind], t.subject, t.why)))


def dated(status: FleetStatus, before: FleetStatus | None, now: float) -> FleetStatus:
    """The same, with the time at which each of its problems began: where it was written before, that time."""
    known = before.since if before else {}
    # A time to come is of a clock that was wrong.
    since = {t.key: min(known.get(t.key, int(now)), int(now)) for t in problems(status)}
    return structs.replace(status, since=dict(sorted(since.items())))


def _all(status: FleetStatus) -> Iterator[Trouble]:
    for c in status.trouble:
        yield Trouble(c.kind or "internal", c.subject, c.why, c.next)
    for text in status.held:
        why, _, do = text.partition("; ")
        yield Trouble("held", "removals", why, do)
    for text in status.problems:
        where, why, do = _file(text)
        yield Trouble("catalog", where, why, do)
    if status.mirror is not None:
        if not status.mirror.reachable:
            yield Trouble(
                "mirror_away",
                "mirror",
                "it cannot be reached: what it holds now is not known",
                "see whether it runs and control can reach it; what nodes hold goes on serving",
            )
        for holding in status.mirror.holdings:
            yield from _holding(holding)
    for node in status.nodes:
        yield from _node(node)
    for model in status.models:
        yield from _model(model, status)


def _file(text: str) -> tuple[str, str, str]:
    """`catalog/a.yaml:3:1: it is broken; mend it` as where, why and what to do."""
    found = re.fullmatch(r"(\S+?\.ya?ml(?::\d+)*):? (.*)", text, re.DOTALL)
    where, said = (found[1].rstrip(":"), found[2]) if found else ("catalog", text)
    why, _, do = said.partition("; ")
    return where, why, do


def _holding(holding: HoldingStatus) -> Iterator[Trouble]:
    # What a model waits for is said of the model.
    if holding.state is HoldingState.FAILED and holding.failure and not holding.models:
        failure = holding.failure
        subject = f"{holding.name}/{holding.version}"
        yield Trouble("fetch_failed", subject, failure.message, failure.do, waits=not failure.lasting)


_STANDING = {
    "silent": "it is silent: what runs there holds its place",
    "lost": "it is lost: what ran there is replaced elsewhere",
    "unknown": "it has not reported yet",
}


def _node(node: NodeStatus) -> Iterator[Trouble]:
    subject = f"node {node.name}"
    if why := _STANDING.get(node.standing):
        do = f"see whether {node.name} is on, its agent runs there, and reaches control"
        yield Trouble("node_silent", subject, why, do, waits=node.standing == "unknown")
    if node.inventory and node.inventory.card_problem:
        do = f"see what its driver says, on {node.name}: nvidia-smi"
        yield Trouble("card_error", subject, node.inventory.card_problem, do)
    for c in node.conditions:
        yield Trouble(c.kind or "node", subject, c.why, c.next)
    for version in node.versions:
        if version.state == "failed":
            yield Trouble("fetch_failed", subject, f"{version.key} could not be had: {version.why}", waits=True)


def _model(model: ModelStatus, status: FleetStatus) -> Iterator[Trouble]:
    # A file's problem and the models that it keeps as they were are one thing to mend.
    if model.frozen and not any(p in model.frozen or p.startswith(f"{model.path}:") for p in status.problems):
        why, _, do = model.frozen.partition("; ")
        yield Trouble("frozen", model.name, why, do)
    short = [p for p in model.profiles if p.ready < p.wanted]
    general = "model_not_ready" if short else "waiting"
    for c in model.conditions:
        # Of seven replicas that find no node for one reason, it is said once.
        subject = c.subject.rpartition("/")[0] if c.subject.count("/") > 1 else c.subject
        yield Trouble(c.kind or general, subject, c.why, c.next, waits=not c.stalled)
    if short and not model.conditions:
        ready = ", ".join(f"{p.ready} of {p.wanted} {p.name} replicas are ready" for p in short)
        yield Trouble("model_not_ready", model.name, ready, waits=model.state != "stalled")
