"""What differs from the commit that is carried out, since when and by whom, as far as can be known.

The reconciler's own decisions say what is not as it should be: whatever it would
do, or holds back, is a difference. What nobody decides about is added: a node that
does not obey, and versions that somebody brought to the mirror by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from llmgw.core.actions import Fetch, Plan, Start, Stop
from llmgw.core.history import Kind, Line
from llmgw.core.model_status import ModelStatus
from llmgw.core.observed import Observed
from llmgw.core.replicas import parts
from llmgw.core.status import FleetStatus
from llmgw.core.wanted import Wanted, WantedModel
from llmgw_agent.protocol import Phase


class Difference(Struct, frozen=True, omit_defaults=True):
    """One thing that is not as the commit asks."""

    kind: str
    """older_form | missing | too_much | kept | node | mirror | held | branch"""
    subject: str
    what: str
    why: str = ""
    """What is done about it or keeps it so. Empty: that is not known."""
    since: int = 0
    """UTC seconds. 0: not known."""
    by: str = ""
    """Whose doing it is. Empty: nobody's that is known."""


def differences(
    wanted: Wanted, seen: Observed, plan: Plan, status: FleetStatus, lines: Sequence[Line]
) -> tuple[Difference, ...]:
    """All of them, sorted by what they are of.

    Args:
        wanted: what is carried out.
        seen: what nodes and the mirror said.
        plan: what is decided from that.
        status: the same, in the terms of a status.
        lines: of history, oldest first: they say since when.
    """
    asked = {name: entry.outcomes for name, entry in wanted.models.items()}
    found = [
        *_older(wanted, seen, asked, plan),
        *(d for m in status.models for d in _counts(m, wanted.models.get(m.name), seen, plan, lines)),
        *(Difference("kept", n, "it is kept as it was before", w.frozen) for n, w in wanted.models.items() if w.frozen),
        *(Difference("held", "removals", text) for text in wanted.held),
        *_nodes(seen, status),
        *_mirror(seen, plan),
    ]
    return tuple(sorted(found, key=lambda d: (d.subject, d.kind, d.what)))


def _older(wanted: Wanted, seen: Observed, asked: Mapping[str, Mapping[str, str]], plan: Plan) -> Iterator[Difference]:
    """Replicas that run another form than is asked for."""
    stops = {(a.id, a.generation): a.why for a in plan.actions if isinstance(a, Stop)}
    for node in seen.nodes:
        for report in node.replicas:
            model, profile, _ = parts(report.id)
            outcome = asked.get(model, {}).get(profile)
            if outcome is None or report.fingerprint in ("", outcome):
                continue
            entry = wanted.models[model]
            yield Difference(
                "older_form",
                report.id,
                f"on {node.name} it runs another form than {entry.path} asks for",
                stops.get((report.id, report.generation)) or _why(plan, report.id, f"{model}/{profile}", model),
                entry.since,
                entry.author,
            )


def _why(plan: Plan, *subjects: str) -> str:
    """What keeps the first of these from being done, that is said of any: what only a change can help goes first."""
    said = sorted((not h.stalled, subjects.index(h.subject), h.why) for h in plan.held if h.subject in subjects)
    return said[0][2] if said else ""


def _counts(
    model: ModelStatus, entry: WantedModel | None, seen: Observed, plan: Plan, lines: Sequence[Line]
) -> Iterator[Difference]:
    # What is to be stopped is not counted any more in a status, and runs.
    run = Counter(parts(r.id)[:2] for node in seen.nodes for r in node.replicas if r.phase is Phase.READY)
    for p in model.profiles:
        subject = f"{model.name}/{p.name}"
        mine = [line for line in lines if parts(line.replica)[:2] == (model.name, p.name)]
        if p.ready < p.wanted:
            starts = [a.why for a in plan.actions if isinstance(a, Start) and parts(a.id)[:2] == (model.name, p.name)]
            ids = [h.subject for h in plan.held if h.subject.startswith(f"{subject}/")]
            why = _why(plan, subject, *ids, model.name) or next(iter(starts), "")
            if not why and p.starting:
                why = f"{p.starting} of it {'is' if p.starting == 1 else 'are'} starting"
            ended = next((n for n in reversed(mine) if n.kind in (Kind.STOP, Kind.FAILED)), None)
            since, by = _of_commit_or(entry, ended)
            yield Difference("missing", subject, f"{p.ready} of {p.wanted} are ready", why, since, by)
        elif (running := run[model.name, p.name]) > p.wanted:
            stops = [a.why for a in plan.actions if isinstance(a, Stop) and parts(a.id)[:2] == (model.name, p.name)]
            asked = f"{p.wanted} asked for" if entry is not None else "no file of the catalog asks for any"
            what = f"{running} {'runs' if running == 1 else 'run'}, and {asked}"
            why = next(iter(stops), "") or _why(plan, subject, model.name)
            since, by = _of_commit_or(entry, None)
            yield Difference("too_much", subject, what, why, since, by)


def _of_commit_or(entry: WantedModel | None, ended: Line | None) -> tuple[int, str]:
    """Since when and by whom: what ended last, if that was after the commit that asks for it."""
    asked = entry.since if entry is not None else 0
    if ended is not None and ended.at >= asked:
        return ended.at, f"{ended.replica} {'failed' if ended.kind is Kind.FAILED else 'stopped'}: {ended.reason}"
    return asked, entry.author if entry is not None else ""


def _nodes(seen: Observed, status: FleetStatus) -> Iterator[Difference]:
    trouble = {n.name: n.trouble for n in seen.nodes}
    for node in status.nodes:
        if node.standing in ("silent", "lost"):
            yield Difference("node", f"node {node.name}", f"it is {node.standing}: what runs there is not known")
        if trouble.get(node.name):
            yield Difference("node", f"node {node.name}", f"it does not obey: {trouble[node.name]}")
        yield from (Difference("node", f"node {node.name}", c.why, c.next) for c in node.conditions)


def _mirror(seen: Observed, plan: Plan) -> Iterator[Difference]:
    for holding in seen.mirror.holdings if seen.mirror is not None else ():
        if holding.origin == "hand":
            yield Difference("mirror", holding.key, "somebody brought it to the mirror by hand", "it is never removed")
    for action in plan.actions:
        if isinstance(action, Fetch):
            yield Difference("mirror", f"{action.name}/{action.version}", "the mirror does not hold it", action.why)


def edited(commits: Iterable[tuple[int, str, Sequence[str]]]) -> tuple[Difference, ...]:
    """Of status commits that are not control's: each as its time, its author and the files that it changed."""
    return tuple(
        Difference(
            "branch",
            "status branch",
            f"edited by hand: {', '.join(files[:5])}{f' and {len(files) - 5} more' if len(files) > 5 else ''}",
            "control writes its own files again; leave the branch to it",
            at,
            author,
        )
        for at, author, files in commits
    )
