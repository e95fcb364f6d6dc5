"""How far a plan can be relied on: what is said before it, and changes nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

from llmgw import __version__
from llmgw.cli.seen import Seen
from llmgw.core.wanted import Wanted
from llmgw.sources.git import Source
from llmgw.sources.snapshot import UNBORN, Snapshot


def unsure(source: Source, seen: Seen, based: Snapshot | None, found: Snapshot) -> Iterator[str]:
    """How far a plan can be relied on: who wrote what was seen, and whether others moved on meanwhile."""
    if seen.writer and seen.writer != __version__:
        yield (
            f"what is seen was written by llmgw {seen.writer}, and this is {__version__}: "
            "what they decide may differ; plan with the version that control runs"
        )
    carried_out = seen.base.commit if seen.base else ""
    start = based.commit if based else carried_out
    if start and UNBORN not in {start, found.commit} and not source.leads(start, found.commit):
        yield (
            f"the base {start[:8]} is not among the commits before {found.commit[:8]}: a plan merges nothing, so "
            "what was changed there since would show as taken back; merge or rebase first"
        )


def between(seen: Seen, base: Wanted | None) -> Iterator[str]:
    """That the fleet does not run what a plan starts from, where that asks for something else."""
    was = seen.base
    if was is None or base is None:
        return
    asked = [(w.server, {name: entry.model for name, entry in w.models.items()}) for w in (was, base)]
    # A commit that changes a page beside the catalog carries another id, and asks for the same.
    if asked[0] != asked[1]:
        yield (
            f"the fleet has carried out {was.commit[:8]} and not the base {base.commit[:8]}: "
            "what is between the two counts as done"
        )
