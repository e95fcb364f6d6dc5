"""What is expected of replicas that start, beside those that run: memory, speed, and where a claim is too small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llmgw.core.actions import Start
from llmgw.core.learning import Foretold, foretold
from llmgw.core.observed import Observed
from llmgw.core.occupancy import Fit
from llmgw.core.simulate import Course
from llmgw.core.wanted import WantedModel
from llmgw.units import show_gib
from llmgw_agent.protocol import split_id


def expected(entry: WantedModel, starts: Iterable[Start], course: Course) -> Iterator[Foretold]:
    """What is expected of the first replica that starts of each profile.

    Args:
        entry: whose they are.
        starts: of it.
        course: in which they start.
    """
    first: dict[str, Start] = {}
    for start in sorted(starts, key=lambda s: s.id):
        first.setdefault(split_id(start.id)[1], start)
    for _, start in sorted(first.items()):
        yield from _foretold(entry, course.end, course, start.node, start.id)


def expected_now(entry: WantedModel, estimates: Iterable[Foretold], course: Course) -> Iterator[Foretold]:
    """The same of one replica that runs now of each of these profiles, to be held against what is expected.

    Args:
        entry: as it runs now.
        estimates: what is expected.
        course: before which it runs.
    """
    seen = course.steps[0].before if course.steps else course.end
    for one in estimates:
        there = [
            (r.id, n.name)
            for n in seen.nodes
            for r in n.replicas
            if split_id(r.id)[:2] == (entry.model.name, one.profile)
        ]
        for rid, node in sorted(there, key=lambda at: (at[1] != one.node, at))[:1]:
            yield from _foretold(entry, seen, course, node, rid)


def _foretold(entry: WantedModel, seen: Observed, course: Course, node: str, rid: str) -> Iterator[Foretold]:
    runs = course.memory.learned.published.runs
    at = next((n for n in seen.nodes if n.name == node), None)
    report = next((r for r in at.replicas if r.id == rid), None) if at else None
    if at and report and (found := foretold(entry, at, report, runs)):
        yield found


def too_little(estimates: Iterable[Foretold], fits: Iterable[Fit]) -> Iterator[str]:
    """Where more is expected to be taken than is claimed, or than there is: sentences.

    Args:
        estimates: what is expected.
        fits: of the same model, what each start claims and finds.
    """
    claims = {split_id(fit.id)[1]: fit for fit in fits}
    for one in estimates:
        fit = claims.get(one.profile)
        if fit is None:
            continue
        if one.host_bytes is not None and one.host_bytes > fit.claim_bytes:
            needs, claim = show_gib(one.host_bytes), show_gib(fit.claim_bytes)
            yield f"{one.profile}: {needs} of memory are expected, and {claim} are claimed: raise its memory_gib"
        if one.card_bytes is not None and one.card_bytes > sum(card.free_bytes for card in fit.cards):
            yield f"{one.profile}: its cards have less than the {show_gib(one.card_bytes)} that are expected of them"
