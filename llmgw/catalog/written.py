"""A model, or a node, as it is written in its file: what the commands that edit work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from llmgw.catalog import edit, schema
from llmgw.catalog.document import Document, Value
from llmgw.catalog.edit import File
from llmgw.catalog.fields import Strict
from llmgw.catalog.model import Model
from llmgw.catalog.problem import Steps, label
from llmgw.catalog.shared import NO_SHARED, Shared, apply
from llmgw.errors import Refused

DEFAULT_PRIORITY = 100


@dataclass(frozen=True, slots=True)
class Written:
    """One mapping of a file that can be edited, with every step from it."""

    file: File
    base: Steps
    """The way to it in its file."""
    kind: type[Strict] = Model
    """What it is: its keys have an order of their own."""
    shared: Shared = NO_SHARED
    """What server.yaml says that it is read with."""

    @property
    def raw(self) -> dict[str, Any]:
        """What is written, as plain values: whether or not it is good."""
        value = self.file.read().value_at(self.base)
        return value if isinstance(value, dict) else {}

    @property
    def read(self) -> Document:
        """Its file as if it wrote all that it is read with: what a command decides on."""
        document = self.file.read()
        return apply(self.shared, document, [self.base])[0] if document.whole else document

    @property
    def merged(self) -> dict[str, Any]:
        """What is written, over what it is read with: whether or not it is good."""
        value = self.read.value_at(self.base)
        return value if isinstance(value, dict) else {}

    def inherited(self, at: Steps) -> str:
        """Where in server.yaml the value at `at` is from: `blocks.small.scaling`. Empty: it is of its own file."""
        origin = self.read.origin((*self.base, *at))
        return label(origin) if origin else ""

    @property
    def stopped(self) -> bool:
        return bool(self.merged.get("state") == "stopped")

    def running(self) -> Written:
        """Not stopped by its own file, nor by what it is read with."""
        started = self.clear(("state",), "running") if self.raw.get("state") == "stopped" else self
        return started.put(("state",), "running") if started.stopped else started

    @property
    def name(self) -> str:
        return str(self.raw.get("name", ""))

    def put(self, at: Steps, value: Value) -> Written:
        """With a value at `at`."""
        order = tuple(schema.node(self.kind, at[:-1]).get("properties", ()))
        return replace(self, file=edit.put(self.file, (*self.base, *at), value, order=order))

    def append(self, at: Steps, value: Value) -> Written:
        """With one more item in the list at `at`."""
        order = tuple(schema.node(self.kind, at[:-1]).get("properties", ()))
        return replace(self, file=edit.append(self.file, (*self.base, *at), value, order=order))

    def drop(self, at: Steps) -> Written:
        """Without what is at `at`, if it is there."""
        there = self.file.read().spot((*self.base, *at)) is not None
        return replace(self, file=edit.drop(self.file, (*self.base, *at))) if there else self

    def clear(self, at: Steps, otherwise: Value) -> Written:
        """Without what is at `at`; where a comment would go with it, with `otherwise` in its place."""
        without = self.drop(at)
        kept = without.file.data.count(b"#") == self.file.data.count(b"#")
        return without if kept else self.put(at, otherwise)

    @property
    def profiles(self) -> list[Mapping[str, Any]]:
        """Those there are, in the order they are written, each with what it is read with."""
        found = self.merged.get("profiles")
        return [p if isinstance(p, dict) else {} for p in found] if isinstance(found, list) else []

    @property
    def counts(self) -> dict[str, int]:
        """How many replicas each profile has, of those that are counted."""
        counted = ((str(p.get("name", "")), p.get("replicas")) for p in self.profiles)
        return {name: count for name, count in counted if type(count) is int}

    def profile(self, name: str) -> int:
        """The index of a profile.

        Raises:
            Refused: there is none of that name.
        """
        names = [str(p.get("name", "")) for p in self.profiles]
        if name not in names:
            raise unknown(f"{self.name} has no profile {name}", name, names, "profiles")
        return names.index(name)


def unknown(what: str, name: str, names: Iterable[str], noun: str) -> Refused:
    """That something is not there, with the nearest thing that is."""
    known = sorted(set(names))
    close = get_close_matches(name, known, n=1)
    shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return Refused(
        what,
        why=f"the {noun} are {shown}" if known else f"there are no {noun}",
        do=f"did you mean {close[0]}?" if close else "name one of these" if known else "add one first",
    )
