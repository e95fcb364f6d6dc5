"""One version as it was last looked at: what is known of it, and so whether it is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llmgw.core.holdings import Failure, Holding, HoldingState, WantedFile
from llmgw.mirror.folder import Listing
from llmgw.mirror.records import KeptFile, Record
from llmgw_agent.fetch.download import shown_url


@dataclass(frozen=True)
class Version:
    """A record, and what lies in the folder it speaks of. Replaced, never changed."""

    record: Record
    listing: Listing
    since: float
    """Monotonic: when the listing last changed."""
    damage: str = ""
    """What hashing it again has found wrong."""

    @cached_property
    def kept(self) -> tuple[KeptFile, ...]:
        """Files that are as they were when they were hashed."""
        return tuple(f for f in self.record.files if self.listing.files.get(f.path) == f.stamp)

    @cached_property
    def served(self) -> dict[str, KeptFile]:
        """What the byte port may give, by path. Empty unless the version is whole."""
        return {f.path: f for f in self.kept} if self.state is HoldingState.PRESENT else {}

    @cached_property
    def unsure(self) -> tuple[str, ...]:
        """Files whose sums are not known any more, or not yet."""
        known = {f.path for f in self.kept}
        return tuple(path for path in self.listing.files if path not in known)

    @cached_property
    def failure(self) -> Failure | None:
        """Why it is not served, where waiting does not help."""
        if damage := self.damage or self._missing():
            do = "look at the disk; asked for again, it is put aside and fetched anew"
            return Failure("digest", f"damaged: {damage}", do, lasting=False)
        problems = [*self.listing.problems.values(), *(f.problem for f in self.kept if f.problem)]
        if problems:
            more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            do = f"correct the files in {self.record.key}/, or remove it"
            return Failure("refused", "; ".join(problems[:5]) + more, do)
        return None

    @cached_property
    def state(self) -> HoldingState:
        if self.failure:
            return HoldingState.FAILED
        return HoldingState.VERIFYING if self.unsure else HoldingState.PRESENT

    @cached_property
    def holding(self) -> Holding:
        """The same for the management API."""
        record = self.record
        return Holding(
            record.name,
            record.version,
            self.state,
            origin=record.origin,
            from_=record.from_,
            files=tuple(f.weight_file for f in self.served.values()),
            total_bytes=sum(stamp.bytes for stamp in self.listing.files.values()),
            done_bytes=sum(f.bytes for f in self.kept),
            failure=self.failure,
        )

    def is_what(self, wanted: Sequence[WantedFile]) -> bool:
        """Whether this is the content that is asked for, as far as its sums are known yet.

        By sums where they are given. Without one, by where a file was had from; what
        a person put here under this name is taken at their word.
        """
        known = {f.path: f for f in self.kept}
        return self.listing.files.keys() == {w.path for w in wanted} and all(
            w.bytes in {None, self.listing.files[w.path].bytes} and (w.path not in known or _is_what(known[w.path], w))
            for w in wanted
        )

    def _missing(self) -> str:
        """What a version the mirror has published lacks by now. One that came by hand may change."""
        if not self.record.fetched:
            return ""
        for f in self.record.files:
            stamp = self.listing.files.get(f.path)
            if stamp is None and f.path not in self.listing.problems:
                return f"{f.path} is gone"
            if stamp is not None and stamp.bytes != f.bytes:
                return f"{f.path} has {stamp.bytes} bytes, and {f.bytes} were published"
        return ""


def _is_what(mine: KeptFile, wanted: WantedFile) -> bool:
    if wanted.sha256 is not None:
        return wanted.sha256 == mine.sha256
    return mine.url in {"", shown_url(wanted.url)}
