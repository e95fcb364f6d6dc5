"""`llmgw lock`: what every model's source is, written down, so that it stays that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog import pins
from llmgw.catalog.check import SERVER, Catalog, read_fleet, read_lock
from llmgw.catalog.lock import Lock, asked, lock_path, write
from llmgw.catalog.model import Model
from llmgw.catalog.origin import Place, origin
from llmgw.catalog.problem import Problem
from llmgw.catalog.written import unknown
from llmgw.cli.asked import HubUrl, MirrorKey, Reach, TokenFile, Via
from llmgw.cli.render import count
from llmgw.cli.upstreams import AT_ONCE, look
from llmgw.errors import Exit, OperatorError, Refused, Unreachable
from llmgw.sources.locking import Look, locked
from llmgw.sources.worktree import read_worktree
from llmgw.units import show_bytes
from llmgw_agent import durable


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one model's lock."""

    model: str
    state: str
    """locked, unchanged, removed, left or failed."""
    path: str
    said: str
    commit: str = ""
    files: int = 0
    bytes: int | None = None
    code: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A working copy's files, and what they say."""

    root: Path
    files: Mapping[str, bytes]
    catalog: Catalog

    @staticmethod
    def read(repo: Path | None) -> Copy:
        """The working copy around a folder.

        Raises:
            OperatorError: it cannot be read.
        """
        start = (repo or Path()).absolute()
        root = next((folder for folder in (start, *start.parents) if (folder / SERVER).exists()), start)
        found, _ = read_worktree(root).result()
        files = {path: blob.data for path, blob in found.items()}
        return Copy(root, files, read_fleet(files))

    @property
    def models(self) -> dict[str, Model]:
        """Every model that is good by itself and has a source, by name."""
        return {e.model.name: e.model for e in self.catalog.read if e.model.source_ is not None}

    def lock(self, name: str) -> Lock | None:
        """A model's lock, if there is one that can be read."""
        data = self.files.get(lock_path(name))
        entry = read_lock(lock_path(name), data).entry if data is not None else None
        return entry.lock if entry else None

    def named(self, names: Sequence[str]) -> list[Model]:
        """These models, by their names or aliases; all where none is named.

        Raises:
            Refused: there is none, or its file has problems.
        """
        models = self.models
        if not names:
            return [models[name] for name in sorted(models)]
        by_name = {n: model for model in models.values() for n in (model.name, *model.aliases)}
        for name in names:
            mine = self.catalog.problems_of(name)
            if name not in by_name and mine:
                raise Refused(f"{name} cannot be locked", why=mine[0].line_form(), do="llmgw validate lists them all")
            if name not in by_name:
                raise unknown(f"there is no model {name} with a source", name, set(by_name), "models")
        return list({by_name[name].name: by_name[name] for name in names}.values())


def lock(
    names: Annotated[list[str] | None, typer.Argument(help="These models; else every one.", show_default=False)] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Open no connection: say whether every lock is there and of its model.")
    ] = False,
    via: Via = None,
    hub: HubUrl = None,
    token_file: TokenFile = None,
    mirror_key_file: MirrorKey = None,
    repo: Annotated[
        Path | None, typer.Option("--repo", help="A folder of the working copy; else the current one.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what became of each as a JSON list.")] = False,
) -> None:
    """Find what each model's source is, and write it into locks/: commit, files, sizes, sums, header facts."""
    copy = Copy.read(repo)
    wanted = copy.named(names or [])
    if check:
        _check(copy, {model.name for model in wanted}, json=json)
        return
    server = copy.catalog.server
    reach = Reach(via, hub, token_file, mirror_key_file)
    with look(reach, server) as looks, ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(lambda model: _one(copy, model, looks, named=bool(names)), wanted))
    if not names:
        outcomes += _orphans(copy)
    _show(outcomes, json=json)
    codes = [outcome.code for outcome in outcomes if outcome.code]
    if codes:
        # A source that is refused stays so; one that is away may be back: the first is worse.
        raise typer.Exit(Exit.REFUSED if Exit.REFUSED in codes else codes[0])


def _one(copy: Copy, model: Model, looks: Look, *, named: bool) -> Outcome:
    """Lock one model. What is locked is left alone, unless it is named."""
    path, known = lock_path(model.name), copy.lock(model.name)
    if known is not None and known.belongs(model.source) and not named:
        return _outcome("unchanged", path, known)
    try:
        made = locked(model, looks, known)
    except OperatorError as e:
        found = origin(asked(model.source))
        if (
            found is not None
            and found.place in {Place.PATH, Place.FILE, Place.OTHER}
            and not named
            and isinstance(e, Refused)
        ):
            # It is on other machines, or where nobody looks yet: a lock of it is of use and no must.
            return Outcome(model.name, "left", path, f"not locked: {e.why}; {e.do}")
        code = Exit.UNREACHABLE if isinstance(e, Unreachable) else Exit.REFUSED if isinstance(e, Refused) else e.code
        return Outcome(model.name, "failed", path, str(e), code=int(code))
    data = write(made)
    if copy.files.get(path) == data:
        return _outcome("unchanged", path, made)
    _write(copy.root / path, data)
    return _outcome("locked", path, made)


def _orphans(copy: Copy) -> list[Outcome]:
    """Remove the locks of models that are gone, where it can be told that they are."""
    if copy.catalog.unreadable_paths:
        return []
    kept = set(copy.models) | set(copy.catalog.frozen)
    gone = []
    for path in copy.files:
        name = path.removeprefix("locks/").removesuffix(".yaml")
        if path.startswith("locks/") and name not in kept:
            (copy.root / path).unlink(missing_ok=True)
            gone.append(Outcome(name, "removed", path, "no model has this name any more"))
    return gone


def _write(path: Path, data: bytes) -> None:
    if path.parent.is_symlink():
        raise Refused(f"{path} was not written", why="locks/ is a symbolic link", do="put a folder in its place")
    try:
        path.parent.mkdir(exist_ok=True)
        durable.write(path, data, mode=0o644)
    except OSError as e:
        raise Refused(f"{path} was not written", why=(e.strerror or str(e)).lower(), do="check its rights") from None


def _outcome(state: str, path: str, made: Lock) -> Outcome:
    total = made.total_bytes
    what = [f"at {made.commit[:12]}"] if made.commit else []
    what += [count(len(made.files), "file"), show_bytes(total) if total is not None else "of unknown size"]
    what += ["gated"] if made.gated else []
    what += ["its header was not understood"] if not made.facts else []
    return Outcome(made.model, state, path, ", ".join(what), made.commit or "", len(made.files), total)


def _show(outcomes: Sequence[Outcome], *, json: bool) -> None:
    if json:
        print(dumps([asdict(outcome) for outcome in outcomes], indent=2, ensure_ascii=False))
        return
    for outcome in outcomes:
        if outcome.state != "unchanged":
            print(f"{outcome.model}: {outcome.state}: {outcome.said}")
    states = [outcome.state for outcome in outcomes]
    counted = [f"{states.count(state)} {state}" for state in ("locked", "removed", "left", "failed") if state in states]
    print(", ".join([*counted, f"{states.count('unchanged')} as they were"]))


def _check(copy: Copy, names: set[str], *, json: bool) -> None:
    """Say what is wrong with locks, from the files alone."""
    unpinned = {(e.path, finding.what) for e in copy.catalog.read for finding in pins.model_problems(e.model)}
    problems = [
        p
        for p in copy.catalog.problems
        if (p.path.startswith("locks/") or (p.path, p.what) in unpinned) and (p.model in names or not p.model)
    ]
    if json:
        print(dumps([asdict(problem) for problem in problems], indent=2, ensure_ascii=False))
    else:
        for problem in problems:
            print(problem)
        print(_checked(problems, sum(path.startswith("locks/") for path in copy.files)))
    if problems:
        raise typer.Exit(Exit.PROBLEM)


def _checked(problems: Sequence[Problem], locks: int) -> str:
    if problems:
        return count(len(problems), "problem")
    return f"no problems: {count(locks, 'lock')}"
