"""Repositories of a hub, looked at for what running them takes: several at a time, and within a bound.

One request lists a repository's files, and at most two ranges of one of them
give its shape; its other file sets differ in size alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from llmgw.errors import OperatorError, Unreachable
from llmgw.planning.shape import ModelShape
from llmgw.sources.hub import Hub
from llmgw.sources.hub_page import Held, held, shape_of
from llmgw.sources.hub_search import Found
from llmgw.sources.hub_sets import USUAL, FileSet, Kind
from llmgw.sources.hub_text import plain

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Looked:
    """One repository, and what is in it."""

    found: Found
    held: Held | None = None
    """None: it could not be listed."""
    shape: ModelShape | None = None
    """Of its models. None: nobody can tell, or may."""
    problem: OperatorError | None = None
    """Why one of these is not known."""

    @property
    def architecture(self) -> str:
        """As its header says it, else as the hub does. A header is a stranger's word too."""
        return plain(self.shape.architecture if self.shape else "", 40) or self.found.architecture

    @property
    def models(self) -> tuple[FileSet, ...]:
        """Whole file sets that an engine reads, the usual one first, then the largest below it, then what is larger."""
        sets = [s for s in (self.held.sets if self.held else ()) if s.kind is Kind.MODEL and s.whole]
        usual = next((s for s in sets if s.quantisation == USUAL), None)
        if usual is None:
            return tuple(sorted(sets, key=lambda s: (s.format != "gguf", s.bytes)))
        below = sorted((s for s in sets if s is not usual and s.bytes <= usual.bytes), key=lambda s: -s.bytes)
        return (usual, *below, *(s for s in sets if s.bytes > usual.bytes))


def look_at(hub: Hub, found: Found) -> Looked:
    """One repository. What is wrong with it is in the answer.

    Raises:
        Unreachable: the hub does not answer any more.
    """
    if found.disabled:
        return Looked(found)
    try:
        listed = held(hub, found.id, found.commit)
    except Unreachable:
        raise
    except OperatorError as e:
        return Looked(found, problem=e)
    bare = Looked(found, listed)
    if not bare.models:
        return bare
    try:
        return replace(bare, shape=shape_of(hub, found.id, listed, bare.models[0]))
    except Unreachable:
        raise
    except OperatorError as e:
        return replace(bare, problem=e)


def look_at_all(
    pool: ThreadPoolExecutor, hub: Hub, found: Iterable[Found], until: float
) -> tuple[list[Looked], OperatorError | None]:
    """Every repository that could be looked at, in order, and why no more could.

    Args:
        pool: of `AT_ONCE`. Whoever closes the hub's connections ends what still waits in it.
        hub: is asked.
        found: the repositories.
        until: monotonic time after which nothing is waited for.
    """
    asked = [pool.submit(look_at, hub, each) for each in found]
    wait(asked, max(0.0, until - time.monotonic()))
    looked: list[Looked] = []
    for future in asked:
        if not future.done():
            why = "looking at what was found took too long"
            return looked, Unreachable("not all of it was looked at", why=why, do="give it longer: --within 300")
        if isinstance(error := future.exception(), Unreachable):
            return looked, error
        looked.append(future.result())
    return looked, None
