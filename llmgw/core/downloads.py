"""What a course brings over the network, and what that leaves of disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from msgspec import Struct

from llmgw.core.actions import Fetch
from llmgw.core.filesystems import sharing
from llmgw.core.observed import Observed
from llmgw.core.simulate import Course
from llmgw.core.wanted import Wanted

MIRROR = "the mirror"


class Download(Struct, frozen=True, order=True):
    """One version that is brought to one place."""

    model: str
    """Whose it is."""
    to: str
    """A node, or the mirror."""
    version: str
    """`name/version`."""
    bytes: int | None
    """None: nobody has said."""
    seconds: float | None
    """At the rate that was measured to there. None: none was."""


class DiskLeft(Struct, frozen=True, order=True):
    """What is left of one disk, in bytes, before anything is freed there."""

    at: str
    before: int
    after: int | None
    """None: the size of something that arrives is not known."""


def downloads(course: Course, wanted: Wanted) -> tuple[Download, ...]:
    """Everything that is fetched, by model and place. Nodes that share a disk fetch once."""
    sizes = _sizes(course, wanted)
    owners = {w.version_key: n for n, w in wanted.models.items() if not w.model.source.is_path}
    rate = _mirror_rate(course.steps[0].before) if course.steps else None
    shared = sharing(course.end.nodes)
    found: dict[tuple[str, str], Download] = {}
    for step in course.steps:
        for action in step.actions:
            if isinstance(action, Fetch):
                key = f"{action.name}/{action.version}"
                known = [f.bytes for f in action.files if f.bytes is not None]
                size = sum(known) if known and len(known) == len(action.files) else sizes.get(key)
                seconds = size / rate if size and rate else None
                found[MIRROR, key] = Download(owners.get(key, action.name), MIRROR, key, size, seconds)
        was = {node.name: {v.key for v in node.versions} for node in step.before.nodes}
        for node in step.after.nodes:
            first = shared.get(node.name, (node.name,))[0]
            for key in sorted({v.key for v in node.versions} - was[node.name]):
                name = owners.get(key, key.partition("/")[0])
                found.setdefault((first, key), Download(name, node.name, key, sizes.get(key), None))
    return tuple(sorted(found.values(), key=lambda d: (d.model, d.to, d.version)))


def disks_left(course: Course, brought: tuple[Download, ...]) -> tuple[DiskLeft, ...]:
    """Of every disk that something is brought to, and that says what is free on it."""
    start = course.steps[0].before if course.steps else course.end
    free = {n.name: n.inventory.disk_free_bytes for n in start.nodes if n.inventory}
    free[MIRROR] = start.mirror.disk_free_bytes if start.mirror else None
    left = []
    for at in sorted({d.to for d in brought}):
        before, sizes = free.get(at), [d.bytes for d in brought if d.to == at]
        if before is not None:
            known = [size for size in sizes if size is not None]
            left.append(DiskLeft(at, before, before - sum(known) if len(known) == len(sizes) else None))
    return tuple(left)


def _sizes(course: Course, wanted: Wanted) -> Mapping[str, int]:
    """Bytes of each version, as far as a lock, the mirror or a node has said."""
    return dict(_known(course, wanted))


def _known(course: Course, wanted: Wanted) -> Iterator[tuple[str, int]]:
    start = course.steps[0].before if course.steps else course.end
    for node in start.nodes:
        yield from ((v.key, v.bytes) for v in node.versions if v.state == "held" and v.bytes)
    for key, files in course.memory.files.items():
        yield key, sum(f.bytes for f in files)
    for holding in start.mirror.holdings if start.mirror else ():
        if holding.total_bytes:
            yield holding.key, holding.total_bytes
    for entry in wanted.models.values():
        if entry.lock and entry.lock.total_bytes is not None:
            yield entry.version_key, entry.lock.total_bytes


def _mirror_rate(seen: Observed) -> float | None:
    """Bytes a second that the mirror fetches with now. None: it fetches nothing, and keeps no older rate."""
    rates = [h.rate_bytes_s for h in (seen.mirror.holdings if seen.mirror else ()) if h.rate_bytes_s]
    return median(rates) if rates else None
