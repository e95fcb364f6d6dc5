"""What control said it would do about a commit, and what of that it has done: a value that passes carry on."""

from __future__ import annotations

from msgspec import Struct


class Move(Struct, frozen=True, order=True):
    """A start or a stop, and where. Not of which number: that is of whoever was gone first."""

    verb: str
    """start | stop."""
    profile: str
    """`model/profile`."""
    node: str

    @property
    def words(self) -> str:
        return f"{self.verb} {self.profile} on {self.node}"


class Outcome(Struct, frozen=True, omit_defaults=True):
    """What a status says of a promise."""

    digest: str
    state: str
    """under way | as planned | differs."""
    identity: str = ""
    """Of everything that was wanted."""
    differences: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """As a person reads it."""
        return f"{self.state} (plan {self.digest})"


class Promise(Struct, frozen=True):
    """What control said it would do about a commit, and what it has done."""

    commit: str
    identity: str
    digest: str
    planned: dict[str, tuple[tuple[Move, ...], ...]] = {}
    """By model, step by step. What stands in one step is done in any order."""
    done: dict[str, dict[str, Move]] = {}
    """By model, in order: by the replica's id, generation and node, so that what is sent again counts once."""
    others: dict[str, int] = {}
    """GiB of memory and cards that others held of each node when it was planned."""
    met: dict[str, str] = {}
    """What a plan cannot know, in the order it was met: by a node, a profile or a version, a sentence."""
    quiet_since: float | None = None
    over: bool = False
    """The fleet came to rest: nothing that happens later is held against it."""
    differences: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """As the status has it."""
        state = "under way" if not self.over else "differs" if self.differences else "as planned"
        return Outcome(self.digest, state, self.identity, self.differences)
