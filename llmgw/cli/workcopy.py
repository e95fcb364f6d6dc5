"""The working copy that a command edits: found from the current folder upward, read once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog.check import SERVER, Catalog, read_models
from llmgw.catalog.edit import File, good
from llmgw.catalog.files import Claim, read_server_file
from llmgw.catalog.server import Server
from llmgw.catalog.shared import NO_SHARED, Shared
from llmgw.catalog.written import Written, unknown
from llmgw.errors import Misused, Refused
from llmgw.sources.reading import catalog_of
from llmgw.sources.snapshot import UNBORN, Blob, Snapshot
from llmgw.sources.worktree import WorktreeSource

Repo = Annotated[
    Path | None,
    typer.Option(
        "--repo",
        help="A folder of the working copy; else the current one.",
        show_default=False,
    ),
]
Commit = Annotated[bool, typer.Option("--commit", help="Commit the edited file, and nothing else.")]


def _branch(context: typer.Context, value: str) -> str:
    # A shell's variable that is not set must not make a commit on the branch that is checked out.
    source = context.get_parameter_source("branch")
    if not value.strip() and source is not None and source.name != "DEFAULT":
        raise Misused("the branch has no name", why="--branch is given and empty", do="name one, or leave --branch out")
    return value


Branch = Annotated[
    str,
    typer.Option(
        "--branch",
        help="Commit it to a new branch of this name.",
        show_default=False,
        callback=_branch,
    ),
]
Push = Annotated[bool, typer.Option("--push", help="Commit it, and push the branch.")]
Json = Annotated[bool, typer.Option("--json", help="Print what is done as JSON.")]
Name = Annotated[str, typer.Argument(help="The model, by its name or an alias.")]


@dataclass(frozen=True)
class WorkCopy:
    """The files of a fleet as a person has them."""

    root: Path
    source: WorktreeSource
    now: Snapshot

    @staticmethod
    def find(repo: Path | None) -> WorkCopy:
        """The working copy around a folder.

        Raises:
            OperatorError: there is none.
        """
        start = (repo or Path()).absolute()
        root = next(
            (folder for folder in (start, *start.parents) if (folder / ".git").exists()),
            start,
        )
        source = WorktreeSource(root)
        return WorkCopy(root, source, source.poll())

    @cached_property
    def catalog(self) -> Catalog:
        """What its files say."""
        return catalog_of(self.now)

    @cached_property
    def committed(self) -> Mapping[str, Blob]:
        """Its files as they are in the commit it started from."""
        return {} if self.now.commit == UNBORN else self.source.at(self.now.commit).files

    def committed_model(self, model: Written) -> Written | None:
        """The model as it was committed in the same file; None: it was not."""
        known = self.committed.get(model.file.path)
        claims = read_models(model.file.path, known.data).claims if known else ()
        at = next((c.at for c in claims if c.name == c.model == model.name), None)
        return None if known is None or at is None else replace(model, file=File(model.file.path, known.data), base=at)

    def must_be_committed(self, path: str) -> None:
        """Whether a file could be brought back once it is gone.

        Raises:
            Refused: it is in no commit as it is now.
        """
        known = self.committed.get(path)
        if known is not None and known.data == self.now.files[path].data:
            return
        word = shlex.quote(path)
        raise Refused(
            f"{path} was not removed",
            why="it has changes that are in no commit, and nothing would bring them back"
            if known
            else "it is in no commit, and nothing would bring it back",
            do=f"keep it first: git add {word} && git commit -- {word}",
        )

    @cached_property
    def shared(self) -> Shared:
        """What its server.yaml says that models are read with."""
        return read_server_file(self.now.files[SERVER].data).shared if SERVER in self.now.files else NO_SHARED

    def file(self, path: str) -> File:
        """One of its files, which is there."""
        return File(path, self.now.files[path].data)

    def model(self, name: str) -> Written:
        """A model by its name or an alias, good or not.

        Raises:
            Refused: there is none, or there are two.
        """
        found = {(c.path, c.at): c for c in self._claims(name)}
        if len(found) > 1:
            where = ", ".join(f"{c.path}:{c.place.line}" for c in found.values())
            raise Refused(
                f"{name} is taken twice",
                why=f"{where} have it",
                do="rename one of them first",
            )
        if not found:
            raise self._no_model(name)
        claim = next(iter(found.values()))
        file = self.file(claim.path)
        if not file.read().whole:
            # What comes after the place where reading ended is not known, and it may be another model.
            good(file)
        return Written(file, claim.at, shared=self.shared)

    def _no_model(self, name: str) -> Refused:
        """That a model is not there, or is in a file that nobody can read."""
        names = {n for entry in self.catalog.models for n in (entry.model.name, *entry.model.aliases)}
        told = unknown(f"there is no model {name}", name, names | set(self.catalog.frozen), "models")
        hidden = {"catalog", *self.catalog.unreadable_paths}
        hiding = [p for p in self.catalog.problems if p.path in hidden]
        if not hiding:
            return told
        first = hiding[0]
        why = f"{told.why}, and {first.path} may hold it, which is not read: {first.what}; {first.why}"
        return Refused(told.what, why=why, do=told.do if "did you mean" in told.do else f"{first.where}: {first.do}")

    def _claims(self, name: str) -> Iterator[Claim]:
        for path, blob in self.now.files.items():
            # A fleet has thousands of files, and one or two of them have the name in them.
            if path.startswith("catalog/") and name.encode() in blob.data:
                yield from (claim for claim in read_models(path, blob.data).claims if claim.name == name)

    def node(self, name: str) -> tuple[Written, int]:
        """server.yaml, and the index of a node in it.

        Raises:
            Refused: there is no such node.
        """
        if SERVER not in self.now.files:
            raise Refused(
                f"there is no node {name}",
                why=f"{self.root} has no {SERVER}",
                do="llmgw init makes a fleet",
            )
        written = Written(self.file(SERVER), (), Server)
        entries = written.raw.get("nodes")
        listed = entries if isinstance(entries, list) else []
        names = [str(n.get("name", "")) if isinstance(n, dict) else "" for n in listed]
        if name not in names:
            raise unknown(f"there is no node {name}", name, names, "nodes")
        return written, names.index(name)
