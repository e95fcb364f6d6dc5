"""A file as it was read: a plain value, and where each part of it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from llmgw.catalog.problem import Finding, Place, Steps
from llmgw.catalog.scalars import Scalar

Value: TypeAlias = dict[str, Any] | list[Any] | Scalar


class Spot(NamedTuple):
    """Where a value is, and where its parts are."""

    place: Place
    key: Place | None
    """Where its key is, of a value in a mapping."""
    raw: str | None
    """A scalar as it is written, without quotes: `1.10` is the number 1.1."""
    parts: dict[str, Spot] | list[Spot] | None
    origin: Steps | None = None
    """The way to it in server.yaml, of a value that was brought in from there."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file as it was read. With findings it is not to be used, only to be explained."""

    value: Value
    findings: tuple[Finding, ...]
    whole: bool
    """False: reading ended before the file did, and `value` is what came until then."""
    root: Spot | None = None
    unsure: frozenset[Steps] = frozenset()
    """Values that a finding is about, and mappings that lack keys because of one."""

    def value_at(self, at: Steps) -> Any:
        """The value at `at`, which is there."""
        here: Any = self.value
        for step in at:
            here = here[step]
        return here

    def spot(self, at: Steps) -> Spot | None:
        """Where the value at `at` is, or None when there is no such value."""
        here = self.root
        for step in at:
            parts = here.parts if here else None
            if isinstance(parts, dict) and isinstance(step, str):
                here = parts.get(step)
            elif isinstance(parts, list) and isinstance(step, int) and step < len(parts):
                here = parts[step]
            else:
                return None
        return here

    def place(self, at: Steps) -> Place:
        """Where the value at `at` is, or the nearest thing around it that is there."""
        for end in range(len(at), -1, -1):
            if found := self.spot(at[:end]):
                return found.place
        return Place(1, 1)

    def origin(self, at: Steps) -> Steps | None:
        """The way in server.yaml to the value at `at`, or None where it is of this file."""
        here = self.root
        for depth, step in enumerate(at):
            parts = here.parts if here else None
            if isinstance(parts, dict) and isinstance(step, str):
                here = parts.get(step)
            elif isinstance(parts, list) and isinstance(step, int) and step < len(parts):
                here = parts[step]
            else:
                return None
            if here is not None and here.origin is not None:
                return (*here.origin, *at[depth + 1 :])
        return None

    def key_place(self, at: Steps) -> Place:
        """Where the key of the value at `at` is; the value's own place in a list."""
        found = self.spot(at)
        return found.key if found and found.key else self.place(at)

    def raw(self, at: Steps) -> str | None:
        """The scalar at `at` as it is written, or None when there is none."""
        found = self.spot(at)
        return found.raw if found else None
