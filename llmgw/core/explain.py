"""What happened between two statuses, in a subject line and a body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmgw.core.status import FleetStatus, ModelStatus

SUBJECT = 72
"""Characters of a commit's subject."""
LINES = 50
"""Transitions a body lists."""


def transitions(before: FleetStatus | None, now: FleetStatus) -> list[str]:
    """One line for each thing that changed, what is wrong first."""
    return [
        *_trouble(before, now),
        *_models(before, now),
        *_nodes(before, now),
        *_promise(before, now),
        *_estimates(before, now),
    ]


def message(before: FleetStatus | None, now: FleetStatus) -> tuple[str, str]:
    """Subject and body of a status commit."""
    return message_of(transitions(before, now) or [_rest(before, now)])


def _rest(before: FleetStatus | None, now: FleetStatus) -> str:
    if before is not None and before.digest == now.digest:
        return "what others hold of memory or disk moved"
    return f"{now.cluster} is seen at {now.observed_commit[:12]}"


def message_of(lines: Sequence[str]) -> tuple[str, str]:
    """Subject and body of a commit that these lines tell of, the most important first."""
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    first = lines[0] if len(lines[0]) + len(more) <= SUBJECT else f"{lines[0][: SUBJECT - len(more) - 1]}…"
    body = [*lines[:LINES]] + ([f"and {len(lines) - LINES} more"] if len(lines) > LINES else [])
    return first + more, "\n".join(body)


def summary(model: ModelStatus) -> str:
    """`7/7 gpu, 4/4 cpu ready`."""
    counts = ", ".join(f"{p.ready}/{p.wanted} {p.name}" for p in model.profiles)
    return f"{counts} ready" if counts else "nothing runs"


def _trouble(before: FleetStatus | None, now: FleetStatus) -> Iterator[str]:
    known = {*before.problems, *before.held} if before else set()
    yield from (text for text in (*now.held, *now.problems) if text not in known)
    was, is_now = ({(c.subject, c.kind): c for c in of.trouble} if of else {} for of in (before, now))
    yield from (f"{c.subject}: {c.why}" for key, c in is_now.items() if was.get(key) != c)
    yield from (f"{c.subject}: well again" for key, c in was.items() if key not in is_now)
    if before and before.problems and not now.problems:
        yield "every file of the catalog can be used again"
    if before and before.mirror and now.mirror and before.mirror.reachable != now.mirror.reachable:
        yield "the mirror can be reached again" if now.mirror.reachable else "the mirror cannot be reached"


def _models(before: FleetStatus | None, now: FleetStatus) -> Iterator[str]:
    known = {m.name: m for m in before.models} if before else {}
    for model in now.models:
        was = known.pop(model.name, None)
        if was and was.stable == model.stable:
            continue
        new = [c for c in model.conditions if was is None or c not in was.conditions]
        trouble = next((c for c in new if c.stalled), None)
        if trouble is not None:
            yield f"{trouble.subject}: {trouble.why}"
        elif was is None or was.profiles != model.profiles or was.state != model.state:
            yield f"{model.name}: {summary(model)}" + ("" if model.state == "ready" else f", {model.state}")
        elif new:
            yield f"{new[0].subject}: {new[0].why}"
    yield from (f"{name}: gone" for name in known)


def _nodes(before: FleetStatus | None, now: FleetStatus) -> Iterator[str]:
    known = {n.name: n for n in before.nodes} if before else {}
    for node in now.nodes:
        was = known.get(node.name)
        if was is None or (was.standing, was.drained) != (node.standing, node.drained):
            yield f"node {node.name}: {node.word}"


def _promise(before: FleetStatus | None, now: FleetStatus) -> Iterator[str]:
    was = before.promise if before else None
    if now.promise and now.promise != was and now.promise.state != "under way":
        yield now.promise.sentence
        yield from now.promise.differences


def _estimates(before: FleetStatus | None, now: FleetStatus) -> Iterator[str]:
    if before and before.estimates != now.estimates:
        yield f"estimates: {len(now.estimates.runs)} runs say what they were worth"
