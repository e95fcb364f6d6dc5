"""`llmgw explore OWNER/NAME`: the card of one repository, each of its file sets, and what was made of the same base."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from msgspec import Struct

from llmgw.catalog.origin import MAIN
from llmgw.cli.explore_fit import PICKLED, Judge, Verdict
from llmgw.cli.explore_look import Looked
from llmgw.cli.explore_rows import FORMAT_VERSION, WIDTH, age, days_since, short, size, tokens
from llmgw.cli.render import count
from llmgw.errors import OperatorError, Unreachable
from llmgw.sources.hub import Hub
from llmgw.sources.hub_page import Related, card, held, paragraph, related, shape_of
from llmgw.sources.hub_search import Found
from llmgw.sources.hub_sets import USUAL, FileSet, Kind, sha256_of, size_of
from llmgw.sources.hub_text import plain

MOST_READ = 60
"""File sets whose own headers are read: two requests each. The others are taken to be like the first."""


class SetFile(Struct, frozen=True):
    """One file of a set."""

    path: str
    bytes: int
    sha256: str | None
    """None: the hub says none, or one that is none."""


class Set(Struct, frozen=True):
    """One file set."""

    name: str
    """Of its one file, or the pattern of several. Empty: the repository itself."""
    add: str
    """What `llmgw model add` is told."""
    kind: str
    format: str
    quantisation: str
    bytes: int
    parts: int
    files: tuple[SetFile, ...]
    verdict: Verdict | None
    """None: it runs with a model only."""


class Other(Struct, frozen=True):
    """Another repository."""

    id: str
    downloads: int | None


class Repository(Struct, frozen=True):
    """What one repository holds. Empty and None are unknown."""

    format_version: str
    endpoint: str
    fleet: str
    id: str
    commit: str
    gated: str
    licence: str
    base_model: str
    architecture: str
    context: int | None
    parameters: int | None
    downloads: int | None
    likes: int | None
    age_days: int | None
    changed_days: int | None
    description: str
    """The first paragraph of its README."""
    sets: tuple[Set, ...]
    related_to: str
    adapters: tuple[Other, ...] | None
    """That say they were made of `related_to`. None: the hub did not say."""
    quantised: tuple[Other, ...] | None
    """The same with fewer bits."""
    notes: tuple[str, ...]


def repository_of(
    hub: Hub, pool: ThreadPoolExecutor, named: tuple[str, str], judge: Judge, *, now: float, until: float
) -> Repository:
    """One repository, looked at in every file set.

    Args:
        hub: is asked.
        pool: of threads that ask it.
        named: the repository, and its revision.
        judge: says what runs here.
        now: seconds since 1970.
        until: monotonic time after which nothing more is waited for.

    Raises:
        OperatorError: it is not there, or the hub cannot be asked.
    """
    found = card(hub, *named)
    holds = held(hub, found.id, found.commit or named[1])
    bare = Looked(found, holds)
    text = pool.submit(paragraph, hub, found.id, holds)
    beside = pool.submit(related, hub, found)
    shapes = {s.name: pool.submit(shape_of, hub, found.id, holds, s) for s in bare.models[:MOST_READ]}
    asked: list[Future[Any]] = [text, beside, *shapes.values()]
    wait(asked, max(0.0, until - time.monotonic()))
    notes = []
    looked: dict[str, Looked] = {}
    for name, future in shapes.items():
        problem = future.exception() if future.done() else _late()
        if isinstance(problem, OperatorError):
            looked[name] = replace(bare, problem=problem)
        elif problem is not None:
            raise problem
        else:
            looked[name] = replace(bare, shape=future.result())
    # Of a gated one it is said once, and what to do.
    reasons = {plain(each.problem.what, 200) for each in looked.values() if each.problem and not found.gated}
    notes += [f"Not read, and judged by its size: {why}." for why in sorted(reasons)[:3]]
    first = next((each.shape for each in looked.values() if each.shape), None)
    notes += [f"{count(holds.odd, 'file')} with a name that no node would write left out."] if holds.odd else []
    near = beside.result() if beside.done() else Related(found.id, None, None)
    return Repository(
        FORMAT_VERSION,
        hub.endpoint,
        judge.how,
        found.id,
        found.commit or (named[1] if named[1] != MAIN else ""),
        found.gated,
        found.licence,
        found.base_model,
        replace(bare, shape=first).architecture,
        (first.context if first else 0) or found.context,
        found.parameters,
        found.downloads,
        found.likes,
        days_since(found.created_at, now),
        days_since(found.modified_at, now),
        text.result() if text.done() else "",
        tuple(_set(s, looked.get(s.name, replace(bare, shape=first)), judge) for s in holds.sets),
        near.of,
        _others(near.adapters),
        _others(near.quantised),
        tuple(notes),
    )


def _late() -> Unreachable:
    return Unreachable("some of it took too long", why="the hub is slow", do="give it longer: --within 300")


def _set(file_set: FileSet, looked: Looked, judge: Judge) -> Set:
    files = tuple(SetFile(f.path, size_of(f), sha256_of(f)) for f in file_set.files)
    return Set(
        file_set.name,
        file_set.added(looked.found.id, looked.models),
        file_set.kind.value,
        file_set.format,
        file_set.quantisation,
        file_set.bytes,
        len(file_set.files),
        files,
        _verdict(file_set, looked, judge),
    )


def _verdict(file_set: FileSet, looked: Looked, judge: Judge) -> Verdict | None:
    if file_set.kind is Kind.MODEL and not file_set.whole:
        missing = f"does not run: {len(file_set.files)} of its {file_set.parts} parts are here"
        return Verdict(runs=False, kind="incomplete", text=missing)
    if file_set.kind is Kind.PICKLED:
        return PICKLED
    return judge.of_set(looked, file_set).verdict if file_set.kind is Kind.MODEL else None


def _others(found: tuple[Found, ...] | None) -> tuple[Other, ...] | None:
    return None if found is None else tuple(Other(each.id, each.downloads) for each in found)


def repository_text(found: Repository) -> str:
    """A repository for people, at most `WIDTH` wide but for names and sums."""
    return "\n".join(_lines(found))


def _lines(found: Repository) -> Iterator[str]:
    yield f"{found.id}  {found.commit[:12]}"
    trained = f"trained for {tokens(found.context)} tokens" if found.context else ""
    size_ = f"{short(found.parameters)} parameters" if found.parameters else ""
    yield from _said(found.architecture, size_, trained, found.licence or "no licence is said")
    yield from _said(
        f"of {found.base_model}" if found.base_model else "", f"gated ({found.gated})" if found.gated else ""
    )
    yield from _said(
        f"{short(found.downloads)} downloads" if found.downloads is not None else "",
        f"{short(found.likes)} likes" if found.likes is not None else "",
        f"{age(found.age_days)} old" if found.age_days is not None else "",
        f"changed {age(found.changed_days)} ago" if found.changed_days is not None else "",
    )
    if found.description:
        yield ""
        yield from _wrap(found.description)
    yield ""
    for each in found.sets:
        yield from _set_lines(each)
    if not found.sets:
        yield "It has no weights."
    yield from _beside(found)
    for note in found.notes:
        yield from textwrap.wrap(note, WIDTH)
    yield f"Judged by {found.fleet}."
    yield from _next(found)


def _said(*words: str) -> list[str]:
    text = ", ".join(word for word in words if word)
    return _wrap(text) if text else []


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _set_lines(each: Set) -> Iterator[str]:
    """A file set, its verdict and its sums."""
    parts = count(each.parts, "file") if each.parts > 1 else ""
    what = "" if each.kind == Kind.MODEL else each.kind
    label = ", ".join(word for word in (what, each.quantisation, parts) if word)
    name = each.name or (each.files[0].path if each.parts == 1 else f"*.{each.format}")
    yield f"{size(each.bytes):>10}  {name}" + (f"  ({label})" if label else "")
    if each.verdict is not None:
        yield from textwrap.wrap(
            each.verdict.text, WIDTH, initial_indent=" " * 12, subsequent_indent=" " * 14, break_on_hyphens=False
        )
    if each.files[0].sha256:
        more = f" and {len(each.files) - 1} more: --json" if len(each.files) > 1 else ""
        yield f"     sha256 {each.files[0].sha256}{more}"


def _beside(found: Repository) -> Iterator[str]:
    for title, others in (("Adapters", found.adapters), ("Quantisations", found.quantised)):
        if others:
            yield ""
            yield f"{title} of {found.related_to}, by downloads:"
            yield from (f"{short(other.downloads):>10}  {other.id}" for other in others)
        elif others is None:
            yield f"{title} of {found.related_to}: the hub does not say."
    yield ""


def _next(found: Repository) -> Iterator[str]:
    runs = [each for each in found.sets if each.verdict is not None and each.verdict.runs]
    usual = next((each for each in runs if each.quantisation == USUAL), runs[0] if runs else None)
    if usual is not None:
        yield f"next: llmgw model add {usual.add}"
    elif any(each.kind == Kind.MODEL for each in found.sets):
        yield "Nothing of it runs here."
    if found.gated:
        page = f"{found.endpoint}/{found.id}"
        yield f"It is gated: accept its terms at {page},"
        yield "      and give the token of that account: --token-file FILE, or HF_TOKEN"
