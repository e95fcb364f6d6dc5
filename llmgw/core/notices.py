"""Who is told of which problem now: once when it has lasted, once when it is over, and never again in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from llmgw.catalog.notifications import Notification
from llmgw.core.problems import Trouble
from llmgw.units import show_duration


class Told(Struct, frozen=True):
    """One problem, as far as one receiver is concerned."""

    trouble: Trouble
    since: float
    """When it was first seen, UTC seconds."""
    told: bool = False
    """Whether the receiver knows of it."""


class Notice(Struct, frozen=True):
    """One message."""

    receiver: str
    cluster: str
    state: str
    """begins | over | test."""
    kind: str
    subject: str
    why: str
    next: str
    since: int
    """UTC seconds."""
    text: str
    """All of it, for people."""


Memory = Mapping[tuple[str, str], Told]
"""By receiver, and kind and subject of the problem."""


def due(
    cluster: str,
    receivers: Iterable[Notification],
    found: Iterable[Trouble],
    owners: Mapping[str, str],
    before: Memory,
    now: float,
) -> tuple[tuple[Notice, ...], dict[tuple[str, str], Told]]:
    """What is to be sent now, and what is then remembered.

    Args:
        cluster: the fleet, as a message names it.
        receivers: of server.yaml.
        found: every problem there is now.
        owners: of models, by name.
        before: what the last call returned.
        now: UTC seconds.
    """
    notices: list[Notice] = []
    after: dict[tuple[str, str], Told] = {}
    # What is wrong is what it is, however many replicas are ready of it meanwhile: a new reason is no new message.
    problems: dict[str, Trouble] = {}
    for trouble in found:
        problems.setdefault(f"{trouble.kind} {trouble.subject}", trouble)
    for receiver in sorted(receivers, key=lambda r: r.name):
        for key, trouble in sorted(problems.items()):
            if trouble.kind not in receiver.on or not _concerns(receiver, trouble, owners):
                continue
            at = (receiver.name, key)
            known = before.get(at)
            # A clock that was set back makes nothing last longer than it did.
            since = min(known.since if known else now, now)
            told = known is not None and known.told
            if not told and now - since >= receiver.for_:
                notices.append(_begins(receiver.name, cluster, trouble, since))
                told = True
            after[at] = Told(trouble, since, told)
    names = {receiver.name for receiver in receivers}
    for at, known in sorted(before.items()):
        if at not in after and known.told and at[0] in names:
            notices.append(_over(at[0], cluster, known, now))
    return tuple(notices), after


def trial(receiver: str, cluster: str, now: float) -> Notice:
    """A message that says only that messages arrive."""
    text = f"{cluster}: this is a test; nothing is wrong, and {receiver} is told when something is"
    return Notice(receiver, cluster, "test", "test", "notifications", "a test", "", int(now), text)


def _concerns(receiver: Notification, trouble: Trouble, owners: Mapping[str, str]) -> bool:
    """Whether it is of a model of these owners, or of no model."""
    model = trouble.subject.partition("/")[0]
    return receiver.owners is None or model not in owners or owners[model] in receiver.owners


def _begins(receiver: str, cluster: str, trouble: Trouble, since: float) -> Notice:
    do = f"; next: {trouble.next}" if trouble.next else ""
    text = f"{cluster}: {trouble.subject}: {trouble.why}{do}"
    return Notice(
        receiver, cluster, "begins", trouble.kind, trouble.subject, trouble.why, trouble.next, int(since), text
    )


def _over(receiver: str, cluster: str, known: Told, now: float) -> Notice:
    trouble = known.trouble
    lasted = show_duration(max(0.0, now - known.since))
    text = f"{cluster}: over after {lasted}: {trouble.subject}: {trouble.why}"
    return Notice(receiver, cluster, "over", trouble.kind, trouble.subject, trouble.why, "", int(known.since), text)
