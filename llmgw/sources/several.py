"""A fleet's repository in several places: the first is followed, and while it is away the next that goes on from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from llmgw.errors import Unreachable
from llmgw.sources.git import Source
from llmgw.sources.snapshot import Snapshot, Trailer

log = logging.getLogger(__name__)


class Several:
    """Several sources as one. What was followed is never gone back from."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.shown = sources[0].shown
        self._sources = tuple(sources)
        self._at = sources[0]
        """Whose commit is followed."""
        self._last: Snapshot | None = None
        self._away_since = ""
        self.trouble = ""

    def poll(self) -> Snapshot:
        first = self._sources[0]
        try:
            found = first.poll()
        except Unreachable as e:
            return self._elsewhere(e)
        if self._away_since:
            log.info("the repository can be read again", extra={"repository": first.shown})
            self._away_since = ""
        if self._lags(found):
            assert self._last is not None
            self.trouble = (
                f"{first.shown} answers again and lacks commit {self._last.commit[:12]}, which was followed from "
                f"{self._at.shown} meanwhile; next: push that commit there"
            )
            return self._last
        return self._followed(first, found, "")

    def leads(self, old: str, new: str) -> bool:
        return self._at.leads(old, new)

    def held(self) -> Snapshot | None:
        return self._last or self._at.held()

    def at(self, rev: str) -> Snapshot:
        return self._at.at(rev)

    def trailers_since(self, commit: str | None, *, until: str = "") -> tuple[Trailer, ...]:
        return self._at.trailers_since(commit, until=until)

    def watch_paths(self) -> tuple[Path, ...]:
        return tuple(path for source in self._sources for path in source.watch_paths())

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _elsewhere(self, error: Unreachable) -> Snapshot:
        first = self._sources[0]
        self._away_since = self._away_since or time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
        for source in self._sources[1:]:
            try:
                found = source.poll()
            except Unreachable as e:
                log.info("another place of the repository is away too: %s", e.sentence)
                continue
            if self._last is None or source.leads(self._last.commit, found.commit):
                trouble = f"{first.shown} is away since {self._away_since}: {error.why}; {source.shown} is followed"
                return self._followed(source, found, trouble)
            log.warning(
                "another place of the repository does not go on from what is followed",
                extra={"repository": source.shown, "commit": found.commit, "since": self._last.commit},
            )
        raise Unreachable(f"{error.what}, since {self._away_since}", why=error.why, do=error.do) from None

    def _lags(self, found: Snapshot) -> bool:
        """Whether the first place is behind what was followed elsewhere while it was away."""
        first, last = self._sources[0], self._last
        if self._at is first or last is None or found.commit == last.commit:
            return False
        return not first.leads(last.commit, found.commit) and self._at.leads(found.commit, last.commit)

    def _followed(self, source: Source, found: Snapshot, trouble: str) -> Snapshot:
        if trouble and self._at is not source:
            log.warning("%s", trouble)
        self._at, self._last, self.trouble = source, found, trouble
        return found
