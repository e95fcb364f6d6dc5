"""A search carried out: pages of the hub, what of them is looked at, and what becomes a row."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from llmgw.cli.explore_fit import Judge
from llmgw.cli.explore_look import AT_ONCE, Looked, look_at_all
from llmgw.cli.explore_rows import Row, row_of
from llmgw.errors import OperatorError
from llmgw.sources.hub import Hub
from llmgw.sources.hub_search import Search, search


@dataclass(frozen=True, slots=True)
class Wish:
    """What a listing is to hold."""

    search: Search
    limit: int
    """Rows."""
    looks: int
    """Repositories that are looked at, at most: three requests each."""
    most_bytes: int | None
    """Of a file set."""
    every: bool
    """Whether what does not run is among the rows."""
    now: float
    """Seconds since 1970, which ages are counted from."""


@dataclass(slots=True)
class Gathered:
    """What came of it."""

    rows: list[Row] = field(default_factory=list)
    hidden: Counter[str] = field(default_factory=Counter)
    """What does not run, by why."""
    left_out: Counter[str] = field(default_factory=Counter)
    """What a filter took out here, by which."""
    looked_at: int = 0
    unreadable: int = 0
    """Entries of the hub that name no repository."""
    more: bool = False
    """Whether there may be others."""
    ended: OperatorError | None = None
    """Why it ended before it was done."""

    def smallest(self, limit: int) -> None:
        """Keep so many rows, the smallest first. Those of no known size come last."""
        self.more = self.more or len(self.rows) > limit
        self.rows = sorted(self.rows, key=lambda row: (row.bytes is None, row.bytes, row.id))[:limit]


def gather(hub: Hub, pool: ThreadPoolExecutor, wish: Wish, judge: Judge, until: float) -> Gathered:
    """Rows in the hub's order, until there are enough or enough was looked at.

    Args:
        hub: is asked.
        pool: of `AT_ONCE`.
        wish: what is searched for.
        judge: says what runs here.
        until: monotonic time after which nothing is waited for.

    Raises:
        OperatorError: the search itself fails. What fails later is in the answer, beside what was found.
    """
    done = Gathered()
    for page in search(hub, wish.search):
        done.unreadable += page.unreadable
        kept = []
        for found in page.found:
            if missed := wish.search.missed(found):
                done.left_out[missed] += 1
            else:
                kept.append(found)
        for start in range(0, len(kept), AT_ONCE):
            looked, done.ended = look_at_all(pool, hub, kept[start : start + AT_ONCE], until)
            for each in looked:
                done.looked_at += 1
                _add(done, each, judge, wish)
                if len(done.rows) == wish.limit or done.looked_at == wish.looks:
                    done.more = not page.last or each.found is not kept[-1]
                    return done
            if done.ended is not None:
                return done
        done.more = page.last and page.onward
    return done


def _add(done: Gathered, looked: Looked, judge: Judge, wish: Wish) -> None:
    """A row, or the count of those that are none."""
    wanted = [s for s in looked.models if wish.search.format in ("", s.format)]
    models = [s for s in wanted if wish.most_bytes is None or s.bytes <= wish.most_bytes]
    if looked.models and not models:
        done.left_out["max-size" if wanted else "format"] += 1
        return
    row = row_of(looked, judge.of(looked, models), wish.now)
    if row.verdict.runs or wish.every:
        done.rows.append(row)
    if not row.verdict.runs:
        done.hidden[row.verdict.kind] += 1
