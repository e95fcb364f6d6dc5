"""`llmgw model updates` and `llmgw model update`: what is new upstream, and having it. Nothing updates by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from json import dumps
from typing import Annotated, Any

import typer

from llmgw.catalog.check import read_fleet
from llmgw.catalog.lock import Lock, asked, lock_path, write
from llmgw.catalog.model import Model
from llmgw.catalog.origin import MAIN, Place, origin, pinned
from llmgw.catalog.written import Written
from llmgw.cli.asked import HubUrl, MirrorKey, Reach, TokenFile, Via
from llmgw.cli.change import Change, How, carry_out
from llmgw.cli.render import count
from llmgw.cli.upstreams import AT_ONCE, look
from llmgw.cli.workcopy import Branch, Commit, Json, Name, Push, Repo, WorkCopy
from llmgw.core.resolved import Resolved, ResolvedFile
from llmgw.errors import Exit, OperatorError, Refused
from llmgw.sources.locking import Look, lock_of
from llmgw.units import show_bytes

SHORT = 12
"""Digits of a commit's id that make a version of it."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that is another upstream than it was when it was locked."""

    path: str
    before_bytes: int | None = None
    after_bytes: int | None = None
    kind: str = "changed"
    """added, removed or changed."""


@dataclass(frozen=True, slots=True)
class News:
    """What is new of one model's source."""

    model: str
    revision: str = ""
    before: str = ""
    """The commit it is locked at."""
    after: str = ""
    files: tuple[FileChange, ...] = ()
    """Empty: its files are the same."""
    bytes: int = 0
    """To fetch, of what is added or changed, as far as sizes are known."""
    failed: str = ""
    error: OperatorError | None = field(default=None, compare=False)


def updates(
    name: Annotated[str | None, typer.Argument(help="This model; else every one that is locked.")] = None,
    via: Via = None,
    hub: HubUrl = None,
    token_file: TokenFile = None,
    mirror_key_file: MirrorKey = None,
    repo: Repo = None,
    json: Json = False,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 when something is new.")
    ] = False,
) -> None:
    """List sources whose upstream moved past what is locked, with the files that changed."""
    copy = WorkCopy.find(repo)
    named = _entry(copy, name).name if name else None
    locks = {n: lock for n, lock in copy.catalog.locks.items() if named in {None, n}}
    if named and not locks:
        raise Refused(f"{named} is not locked", why="nothing says what it is now", do=f"llmgw lock {named}")
    models = {entry.model.name: entry.model for entry in copy.catalog.models}
    reach = Reach(via, hub, token_file, mirror_key_file)
    with look(reach, copy.catalog.server, facts=False) as looks, ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda item: _news(models[item[0]], item[1], looks), locks.items()))
    if json:
        listed = [
            {k: v for k, v in asdict(news).items() if k != "error"} for news in found if news.files or news.failed
        ]
        print(dumps(listed, indent=2))
    else:
        _show(found)
    if failed := [news.error for news in found if news.error]:
        raise typer.Exit(int(failed[0].code))
    raise typer.Exit(Exit.CHANGES if detailed_exitcode and any(news.files for news in found) else Exit.DONE)


def update(
    name: Name,
    version: Annotated[
        str, typer.Option("--version", help="What the new files are kept as; else the commit.", show_default=False)
    ] = "",
    to: Annotated[
        str, typer.Option("--to", help="A branch, tag or commit; else what the source follows.", show_default=False)
    ] = "",
    via: Via = None,
    hub: HubUrl = None,
    token_file: TokenFile = None,
    mirror_key_file: MirrorKey = None,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Take what is new upstream: write the new pin, version and lock, and say what that would do."""
    copy = WorkCopy.find(repo)
    written = copy.model(name)
    model = _entry(copy, name)
    with look(Reach(via, hub, token_file, mirror_key_file), copy.catalog.server) as looks:
        found = looks(_followed(model, to))
    known = copy.catalog.locks.get(model.name)
    same = known is not None and not _changes(known.files, found.files)
    if same and known is not None and known.commit == (found.commit or None):
        print(f"{model.name} is what it is upstream: nothing is changed.")
        return
    edited = _repinned(written, model, found.commit)
    if not same:
        edited = _reversioned(edited, model, version or found.commit[:SHORT])
    later = _reread(copy, edited, model)
    files = {edited.file.path: edited.file.data, lock_path(model.name): write(lock_of(later, found))}
    said = f"{model.name} is {later.source.version} afterwards" + (
        f", at {found.commit[:SHORT]}." if found.commit else "."
    )
    change = Change(f"{model.name}: updated to {later.source.version}", files, (said,), model=model.name)
    carry_out(copy, change, How(commit, branch, push, json))


def _entry(copy: WorkCopy, name: str) -> Model:
    """A model that is good in itself, whether or not its lock is.

    Raises:
        Refused: there is none, or its file has problems.
    """
    written = copy.model(name).name
    found = [entry.model for entry in copy.catalog.read if entry.model.name == written]
    if not found or found[0].source_ is None:
        mine = copy.catalog.problems_of(written)
        why = mine[0].line_form() if mine else "it has no source of its own"
        raise Refused(f"{written} cannot be looked at", why=why, do="llmgw validate lists every problem")
    return found[0]


def _reread(copy: WorkCopy, edited: Written, model: Model) -> Model:
    """The model as its edited file says it is."""
    files = {path: blob.data for path, blob in copy.now.files.items()} | {edited.file.path: edited.file.data}
    return next((e.model for e in read_fleet(files).read if e.model.name == model.name), model)


def _followed(model: Model, to: str = "") -> dict[str, Any]:
    """The source as it would be asked for now: a commit that was written down follows the main branch."""
    words = asked(model.source)
    found = origin(words)
    if found is None or found.place is not Place.HUB:
        if to:
            raise Refused(f"{model.name} has no revisions", why="its source is no repository", do="leave --to out")
        return words
    return pinned(words, to or (found.revision if found.moves else MAIN))


def _news(model: Model, lock: Lock, looks: Look) -> News:
    words = _followed(model)
    followed = origin(words)
    try:
        found: Resolved = looks(words)
    except OperatorError as e:
        return News(model.name, failed=str(e), error=e)
    files = _changes(lock.files, found.files)
    return News(
        model.name,
        followed.revision if followed else "",
        lock.commit or "",
        found.commit,
        files,
        sum(change.after_bytes or 0 for change in files),
    )


def _changes(before: Iterable[Any], after: Iterable[ResolvedFile]) -> tuple[FileChange, ...]:
    """Files that differ, as far as both sides say."""
    was: Mapping[str, Any] = {file.path: file for file in before}
    now = {file.path: file for file in after}
    found = [FileChange(path, was[path].bytes, kind="removed") for path in was.keys() - now.keys()]
    found += [FileChange(path, after_bytes=now[path].bytes, kind="added") for path in now.keys() - was.keys()]
    for path in was.keys() & now.keys():
        pairs = ((was[path].bytes, now[path].bytes), (was[path].sha256, now[path].sha256))
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            found.append(FileChange(path, was[path].bytes, now[path].bytes))
    return tuple(sorted(found, key=lambda change: change.path))


def _repinned(written: Written, model: Model, commit: str) -> Written:
    """With the new commit where the old one is written. A branch stays: the lock has its commit."""
    words = asked(model.source)
    found = origin(words)
    if found is None or found.moves or found.place is not Place.HUB or not isinstance(written.raw.get("source"), dict):
        return written
    if found.revision in str(words["from"]):
        return written.put(("source", "from"), str(words["from"]).replace(found.revision, commit, 1))
    return written.put(("source", "revision"), commit)


def _reversioned(written: Written, model: Model, version: str) -> Written:
    """Under a new version: what is held under the old one stays what it is.

    Raises:
        Refused: it is the old one, or there is none to be had.
    """
    if not version or version == model.source.version:
        raise Refused(
            f"{model.name} is not updated",
            why="its files are others, and a version never changes what it holds",
            do="name a new one: --version 2026-12",
        )
    return written.put(("source", "version"), version)


def _show(found: Iterable[News]) -> None:
    news = [one for one in found if one.files]
    for one in news:
        at = (
            f"{one.before[:SHORT]} to {one.after[:SHORT]} of {one.revision}"
            if one.after
            else "its URL gives another file"
        )
        print(f"{one.model}: {at}: {count(len(one.files), 'file')}, {show_bytes(one.bytes)} to fetch")
        for change in one.files:
            sign = {"added": "+", "removed": "-", "changed": "~"}[change.kind]
            sizes = [show_bytes(n) for n in (change.before_bytes, change.after_bytes) if n is not None]
            print(f"  {sign} {change.path}  {' to '.join(sizes)}".rstrip())
        print(f"  next: llmgw model update {one.model}")
    for one in found:
        if one.failed:
            print(f"{one.model}: not known: {one.failed}")
    others = sum(1 for one in found if not one.files and not one.failed)
    print(f"{len(news)} with news, {others} as they are locked")
