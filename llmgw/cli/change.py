"""An edit carried out: its diff and its plan shown, the file written, and committed where that is asked for."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile

import typer
from msgspec import Struct

from llmgw.catalog.check import SERVER, Catalog
from llmgw.catalog.problem import shorten
from llmgw.catalog.spans import comments
from llmgw.catalog.written import Written
from llmgw.cli.diff import unified
from llmgw.cli.plan import foresee, last_trailers
from llmgw.cli.plan_text import plan_text
from llmgw.cli.render import as_json, count
from llmgw.cli.seen import Seen, look, operator
from llmgw.cli.workcopy import WorkCopy
from llmgw.core.preview import Preview
from llmgw.core.wanted import judge
from llmgw.errors import Exit, OperatorError, Refused
from llmgw.sources.author import Author
from llmgw.sources.reading import catalog_of
from llmgw.sources.snapshot import UNBORN, Blob, Snapshot

FORMAT_VERSION = "1.0"
"""Of the JSON: a minor one adds, a major one changes."""


@dataclass(frozen=True, slots=True)
class How:
    """What is to be done with the edit besides writing it."""

    commit: bool = False
    branch: str = ""
    push: bool = False
    json: bool = False

    @property
    def commits(self) -> bool:
        """A branch and a push are of a commit."""
        return self.commit or self.push or bool(self.branch)


@dataclass(frozen=True, slots=True)
class Change:
    """What a command wants written."""

    subject: str
    """Of the commit, should it be one: what is true afterwards."""
    files: Mapping[str, bytes | None]
    """Content by path from the top of the working copy; None: the file is removed."""
    said: tuple[str, ...] = ()
    """Sentences that come before the diff."""
    trailers: tuple[str, ...] = ()
    """Lines at the end of the commit's message that control acts on."""
    model: str = ""
    """The one it is of; empty: none, it is the fleet's."""
    removes: bool = False
    """That model goes, and with it all that is said of it."""

    @staticmethod
    def of(written: Written, subject: str, said: tuple[str, ...] = (), model: str = "") -> Change:
        """The change of one file."""
        return Change(subject, {written.file.path: written.file.data}, said, model=model)


class Done(Struct, frozen=True):
    """What a command that edits did: the JSON of it."""

    format_version: str
    files: tuple[str, ...]
    """That were edited; empty: nothing had to be."""
    said: tuple[str, ...]
    diff: str
    plan: Preview | None
    """None: nothing had to be edited, or it cannot be known."""
    no_plan: str = ""
    commit: str = ""
    branch: str = ""
    pushed: str = ""


def carry_out(copy: WorkCopy, change: Change, how: How) -> None:
    """Show an edit, write it, and commit it where that is asked for.

    Raises:
        Refused: it would make a file wrong that is not; nothing is written.
    """
    files = {path: data for path, data in change.files.items() if data != _data(copy, path)}
    diff = "".join(unified(path, _data(copy, path), data) for path, data in sorted(files.items()))
    if not files:
        _show(how, Done(FORMAT_VERSION, (), (*change.said, "Nothing is changed: it is so already."), "", None))
        return
    proposed = _proposed(copy, files)
    after = catalog_of(proposed)
    to_lock = _new_problems(copy.catalog, after, files)
    plan, why = _plan(copy, proposed)
    wrong = _still_wrong(copy.catalog, after, change)
    gone = () if change.removes else _gone_comments(copy, files)
    said = (*change.said, *gone, *to_lock, *wrong, *_new_notes(copy.catalog, after))
    done = Done(FORMAT_VERSION, tuple(sorted(files)), said, diff, plan, why)
    author = Author(copy.root)
    if how.commits:
        author.ready(done.files, how.branch, push=how.push)
    if not how.json:
        _show(how, done)
    _write(copy, files)
    if how.commits:
        done = _commit(copy, author, done, change, how)
    elif not how.json:
        _say_how_to_commit(copy, change, done)
    if how.json:
        _show(how, done)
    raise typer.Exit(Exit.PROBLEM if wrong else _exit_code(plan, change))


def _data(copy: WorkCopy, path: str) -> bytes | None:
    return copy.now.files[path].data if path in copy.now.files else None


def _proposed(copy: WorkCopy, files: Mapping[str, bytes | None]) -> Snapshot:
    """The working copy as it will be."""
    kept = {path: blob for path, blob in copy.now.files.items() if path not in files}
    edited = {path: Blob("", data) for path, data in files.items() if data is not None}
    return replace(copy.now, files=dict(sorted({**kept, **edited}.items())), identity="", dirty=True)


def _plan(copy: WorkCopy, proposed: Snapshot) -> tuple[Preview | None, str]:
    """What the edit would do, or None and why that is not known."""
    seen = see(copy)
    if seen.base is None:
        # Where nothing is known of the fleet, the files as they were are what the edit is compared with.
        before = judge(copy.catalog, commit=copy.now.commit, committed_at=copy.now.committed_at, last=None)
        seen = replace(seen, base=before)
    trailers = last_trailers(copy.source, seen, copy.now) if copy.now.commit != UNBORN else ()
    try:
        return foresee(proposed, seen, trailers), ""
    except OperatorError as e:
        return None, e.sentence


def see(copy: WorkCopy) -> Seen:
    """What is known of the fleet: from control if it answers, else from the status branch."""
    cluster = copy.catalog.server.cluster if copy.catalog.server else ""
    repo = str(copy.root)
    for how in ("auto", "branch") if cluster else ():
        try:
            return look(how, repo, cluster, operator(None, None))
        except OperatorError:
            # An edit is no reason to stop: where what is seen is from is said.
            continue
    return look("none", repo, cluster, None)


def _new_problems(before: Catalog, after: Catalog, files: Mapping[str, bytes | None]) -> list[str]:
    """What has to be locked again after the edit.

    Raises:
        Refused: something would be wrong that is not: nothing becomes so by a command.
    """
    # What was wrong already is no reason to refuse an edit, which moves the lines of it.
    known = {(p.path, p.what, p.why, p.model) for p in before.problems}
    new = [p for p in after.problems if (p.path, p.what, p.why, p.model) not in known]
    wrong = [p for p in new if not p.do.endswith(f"llmgw lock {p.model}")]
    if wrong:
        raise Refused(
            f"{', '.join(sorted(files))} was not edited",
            why=f"it would be wrong: {wrong[0].what}; {wrong[0].why}",
            do=wrong[0].do,
        )
    return [f"It has to be locked again before it counts: llmgw lock {p.model} ({p.what})." for p in new]


def _still_wrong(before: Catalog, after: Catalog, change: Change) -> list[str]:
    """That the edit has no effect, since what it is of was wrong before and still is."""
    known = {(p.path, p.what, p.why, p.model) for p in before.problems}
    mine = (p for p in after.problems if (p.model == change.model if change.model else p.path == SERVER))
    left = [p for p in mine if (p.path, p.what, p.why, p.model) in known]
    more = f", and {count(len(left) - 1, 'more problem')}" if len(left) > 1 else ""
    return [f"The edit has no effect until {p.where} is mended: {p.what}{more}; {p.do}." for p in left[:1]]


def _gone_comments(copy: WorkCopy, files: Mapping[str, bytes | None]) -> list[str]:
    """What a person wrote beside something that is taken out."""
    gone: list[str] = []
    for path, data in sorted(files.items()):
        before = _data(copy, path)
        by_hand = not path.startswith("locks/")
        if by_hand and before and data and before.count(b"#") > data.count(b"#"):
            was, now = (Counter(comments(text.decode().removeprefix("\ufeff"))) for text in (before, data))
            gone += (was - now).elements()
    return [f"A comment goes with what is taken out: {shorten(comment)}" for comment in gone]


def _new_notes(before: Catalog, after: Catalog) -> list[str]:
    """What is written now and does not act yet."""
    known = {(note.path, note.field) for note in before.notes}
    return [
        f"`{note.field}` is planned: it is checked, and does not act yet."
        for note in after.notes
        if (note.path, note.field) not in known
    ]


def _show(how: How, done: Done) -> None:
    if how.json:
        print(as_json(done))
        return
    for sentence in done.said:
        print(sentence)
    if done.diff:
        print(f"\n{done.diff}" if done.said else done.diff)
    if done.plan is not None:
        print(plan_text(done.plan))
    elif done.no_plan:
        print(f"no plan: {done.no_plan}")


def _write(copy: WorkCopy, files: Mapping[str, bytes | None]) -> None:
    try:
        for path, data in files.items():
            file, before = copy.root / path, _data(copy, path)
            if before is not None and file.read_bytes() != before:
                raise Refused(
                    f"{path} was not written", why="it has been changed meanwhile", do="call the command again"
                )
            if data is None:
                file.unlink()
            else:
                _replace(file, data)
    except OSError as e:
        raise Refused(f"{path} was not written", why=(e.strerror or str(e)).lower(), do="check its rights") from None


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: whoever watches it never reads half of it."""
    path.parent.mkdir(exist_ok=True)
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o644
    with NamedTemporaryFile(dir=path.parent, prefix=".llmgw-", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            new = Path(file.name)
            new.chmod(mode)
            new.replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def _put_back(copy: WorkCopy, paths: tuple[str, ...]) -> None:
    for path in paths:
        before = _data(copy, path)
        if before is None:
            (copy.root / path).unlink(missing_ok=True)
        else:
            _replace(copy.root / path, before)


def _commit(copy: WorkCopy, author: Author, done: Done, change: Change, how: How) -> Done:
    message = (
        "\n\n".join(
            [
                change.subject,
                *(("\n".join(change.trailers),) if change.trailers else ()),
            ]
        )
        + "\n"
    )
    try:
        made = author.commit(done.files, message, how.branch)
    except Refused as e:
        # What is refused is not written, so that the command can be called again.
        _put_back(copy, done.files)
        files = ", ".join(done.files)
        raise Refused(f"{files} was not committed, and is as it was", why=e.why, do=e.do) from None
    said = [f"committed {made.id[:8]} to {made.branch}: {change.subject}"]
    if made.left:
        said.append(f"staged before, and left alone: {', '.join(made.left)}")
    if not how.json:
        print("\n" + "\n".join(said))
    pushed = author.push(made.branch) if how.push else ""
    if pushed and not how.json:
        print(f"pushed to {pushed}")
    return Done(
        done.format_version,
        done.files,
        (*done.said, *said[1:]),
        done.diff,
        done.plan,
        done.no_plan,
        made.id,
        made.branch,
        pushed,
    )


def _say_how_to_commit(copy: WorkCopy, change: Change, done: Done) -> None:
    words = [f"-m {shlex.quote(text)}" for text in (change.subject, *change.trailers)]
    new = [path for path in done.files if path not in copy.committed]
    try:
        ignored = Author(copy.root).ignored(new) if new else ()
    except Refused:
        # Without the git program it is not known, and nobody commits here.
        ignored = ()
    if ignored:
        print(f"\nwritten and not committed: git ignores {', '.join(ignored)}; take it out of .gitignore first")
        return
    add = f"git add {shlex.join(new)} && " if new else ""
    print(f"\nwritten and not committed: {add}git commit {' '.join(words)} -- {shlex.join(done.files)}")


def _exit_code(plan: Preview | None, change: Change) -> Exit:
    if plan is None:
        return Exit.DONE
    if not change.model:
        return Exit.HELD if plan.blocked else Exit.DONE
    # That another model is held is no failure of this edit.
    mine = [h for m in plan.models if m.name == change.model for h in m.held]
    guards = [h for h in plan.held if h.subject == "commit"]
    return Exit.HELD if any(h.stalled for h in (*mine, *guards)) else Exit.DONE
