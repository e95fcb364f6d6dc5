"""When the status branch begins anew, so that a clone of the repository stays small over years.

A commit says how many there are and when the first was made, so that nobody has to
count. What was before is kept under a name of its own, and named in the new beginning.
"""

from __future__ import annotations

import re
import time
from calendar import timegm
from collections.abc import Iterable
from typing import NamedTuple

from dulwich.objects import ObjectID
from dulwich.refs import Ref

from llmgw.sources.snapshot import Trailer

COMMITS = 20_000
"""Of 1 to 2 kB each: 20 to 40 MB."""
YEAR_S = 365 * 86_400

FORM = "%Y-%m-%dT%H:%M:%SZ"
NUMBER, BEGAN, BEFORE = "Llmgw-Seq", "Llmgw-Began", "Llmgw-Previous-Tip"


class Place(NamedTuple):
    """Where a commit stands in the branch."""

    number: int
    """From 1."""
    began: int
    """When the first was made, UTC seconds."""

    @property
    def trailers(self) -> dict[str, str]:
        """As a commit says it."""
        return {NUMBER: str(self.number), BEGAN: time.strftime(FORM, time.gmtime(self.began))}

    def after(self, now: float) -> Place:
        """Of the next commit. A beginning to come is of a clock that was wrong."""
        return Place(self.number + 1, min(self.began, int(now)))

    def is_due(self, now: float) -> bool:
        """Whether the next commit should begin anew."""
        return self.number >= COMMITS or now - self.began >= YEAR_S


def place_of(trailers: Iterable[Trailer], now: float) -> Place:
    """Of a commit that an earlier version made, or a person, nothing is known: it is counted from there."""
    known = {t.key: t.value for t in trailers}
    number = known.get(NUMBER, "")
    try:
        began = timegm(time.strptime(known.get(BEGAN, ""), FORM))
    except ValueError:
        began = int(now)
    return Place(int(number) if re.fullmatch("[0-9]{1,9}", number) else 0, began)


def first(now: float) -> Place:
    """Of a branch that begins."""
    return Place(1, int(now))


def archive(cluster: str, tip: ObjectID, now: float) -> Ref:
    """The name under which what was before is kept."""
    year = time.strftime("%Y", time.gmtime(now))
    return Ref(f"refs/llmgw/archive/{cluster}/{year}-{tip.decode()[:12]}".encode())
