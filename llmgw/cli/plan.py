"""`llmgw plan`: what a change would do, from the same decisions that control makes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from llmgw import __version__
from llmgw.catalog.check import Catalog
from llmgw.catalog.lines import Lines
from llmgw.catalog.lock import Lock
from llmgw.cli.plan_markdown import plan_markdown
from llmgw.cli.plan_text import plan_text
from llmgw.cli.plan_warnings import between, unsure
from llmgw.cli.render import as_json
from llmgw.cli.seen import Seen, look, operator
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.paces import paced
from llmgw.core.preview import Preview, preview
from llmgw.core.references import held_files
from llmgw.core.simulate import Course, course
from llmgw.core.wanted import Wanted, allowed_removals, judge, purged_names
from llmgw.errors import Exit, Misused, OperatorError, Refused
from llmgw.sources.git import Source, local_path, open_source
from llmgw.sources.reading import catalog_of
from llmgw.sources.snapshot import UNBORN, Snapshot, Trailer
from llmgw_agent.protocol import split_id


class How(StrEnum):
    """Where what is seen comes from."""

    AUTO = "auto"
    CONTROL = "control"
    BRANCH = "branch"
    NONE = "none"


class Format(StrEnum):
    """How it is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


def plan(
    repo: Annotated[str, typer.Option(help="The fleet's repository: a path or a URL.")] = ".",
    base: Annotated[str | None, typer.Option(help="The commit it starts from; else what is carried out now.")] = None,
    head: Annotated[str | None, typer.Option(help="The commit that is planned; else the one checked out.")] = None,
    branch: Annotated[str | None, typer.Option(help="The branch whose last commit is planned.")] = None,
    worktree: Annotated[
        bool, typer.Option("--worktree", help="Plan the files as they are, uncommitted ones too.")
    ] = False,
    observed: Annotated[How, typer.Option(help="Where the fleet is seen.")] = How.AUTO,
    control: Annotated[str | None, typer.Option(help="Where control is. Or LLMGW_CONTROL.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="An operator's key. Or LLMGW_KEY_FILE.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust for control. Or LLMGW_CA_FILE.")] = None,
    output: Annotated[Format, typer.Option("--format", help="text, markdown or json.")] = Format.TEXT,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write it into this file.")] = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 when something would change.")
    ] = False,
) -> None:
    """Say what a change would do: what starts, stops, is fetched, and what is held and why."""
    if worktree and (branch or head):
        raise Misused(
            "a plan is of the files as they are, or of a commit",
            why=f"--worktree is there beside --{'branch' if branch else 'head'}",
            do="leave out one of them",
        )
    with TemporaryDirectory(prefix="llmgw-plan-") as folder:
        source = open_source(repo, branch=branch or "main", state=Path(folder), mode="worktree" if worktree else "head")
        try:
            found = _head(source, head or _local_branch(branch, repo), repo, worktree=worktree)
            catalog = catalog_of(found)
            cluster = catalog.server.cluster if catalog.server else ""
            seen = look(str(observed) if cluster else "none", repo, cluster, operator(control, key_file, ca_file))
            trailers = last_trailers(source, seen, found)
            based = source.at(base) if base else None
            warnings = list(unsure(source, seen, based, found))
        finally:
            source.close()
    if based is not None:
        started = based_on(seen, catalog_of(based), based.commit)
        warnings += between(seen, started.base)
        seen = started
    result = foresee(found, seen, trailers, warnings)
    text = printed(result, Format.JSON if json else output)
    if out is not None:
        _write(out, text)
    print(text)
    raise typer.Exit(exit_code(result, detailed=detailed_exitcode))


def printed(result: Preview, how: Format) -> str:
    """A plan in one of its forms, all of one value."""
    match how:
        case Format.JSON:
            return as_json(result)
        case Format.MARKDOWN:
            return plan_markdown(result)
        case Format.TEXT:
            return plan_text(result)


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as e:
        raise Refused(
            f"the plan was not written into {out}", why=str(e.strerror or e), do="name a file that can be written"
        ) from None


def based_on(seen: Seen, catalog: Catalog, commit: str) -> Seen:
    """The same fleet, as if this commit were carried out now."""
    held = held_files(seen.observed or Observed(), seen.memory.files)
    return replace(seen, base=judge(catalog, commit=commit, committed_at=0, last=seen.base, held=held))


def foresee(found: Snapshot, seen: Seen, trailers: tuple[Trailer, ...] = (), warnings: Iterable[str] = ()) -> Preview:
    """What a commit would do to a fleet as it was seen.

    Raises:
        OperatorError: its server.yaml cannot be used, and none before it is known.
    """
    wanted = wanted_at(found, seen, trailers)
    base = locked(seen.base, {n: w.lock for n, w in wanted.models.items() if w.lock}) if seen.base else None
    return preview(
        base,
        wanted,
        _course(wanted, seen),
        observed=seen.how,
        dirty=found.dirty,
        based_on=base.commit if base else "",
        without=_course(base, seen) if base else None,
        lines=Lines({path: blob.data for path, blob in found.files.items()}),
        warnings=warnings,
        version=__version__,
    )


def locked(base: Wanted, locks: Mapping[str, Lock]) -> Wanted:
    """What is carried out now, with the locks that it was without: a status does not keep them."""
    models = {
        name: replace(entry, lock=locks[name])
        if entry.lock is None and name in locks and locks[name].belongs(entry.model.source)
        else entry
        for name, entry in base.models.items()
    }
    return replace(base, models=models)


def last_trailers(source: Source, seen: Seen, found: Snapshot) -> tuple[Trailer, ...]:
    """Those of every commit since the last one that nothing was held of."""
    since = seen.base.applied if seen.base and seen.base.applied else UNBORN
    return source.trailers_since(since, until=found.commit)


def wanted_at(found: Snapshot, seen: Seen, trailers: tuple[Trailer, ...]) -> Wanted:
    """What a commit asks of a fleet as it was seen.

    Raises:
        OperatorError: its server.yaml cannot be used, and none before it is known.
    """
    looked = seen.observed or Observed()
    catalog = paced(catalog_of(found), looked.nodes, seen.base)
    wanted = judge(
        catalog,
        commit=found.commit,
        committed_at=found.committed_at,
        last=seen.base,
        running={split_id(r.id)[0] for n in looked.nodes for r in n.replicas},
        held=held_files(looked, seen.memory.files),
        allowed_removals=allowed_removals((t.key, t.value) for t in trailers),
        purged=purged_names((t.key, t.value) for t in trailers),
    )
    if wanted is None:
        raise OperatorError(
            "nothing can be planned",
            why="\n  ".join(p.line_form() for p in catalog.problems),
            do="mend server.yaml: llmgw validate",
        )
    return wanted


def _course(wanted: Wanted, seen: Seen) -> Course:
    if seen.observed is None:
        return Course((), (), Observed(), seen.memory, settled=True)
    known = {n.name: n for n in seen.observed.nodes}
    nodes = tuple(known.get(n.name, NodeSeen(n.name)) for n in sorted(wanted.server.nodes, key=lambda n: n.name))
    return course(wanted, Observed(nodes, seen.observed.mirror, seen.observed.demand), seen.memory, time.time())


def exit_code(result: Preview, *, detailed: bool) -> Exit:
    """The same value that is printed decides it."""
    if result.problems:
        return Exit.PROBLEM
    if result.blocked:
        return Exit.HELD
    return Exit.CHANGES if detailed and result.changes else Exit.DONE


def _local_branch(branch: str | None, repo: str) -> str | None:
    """As a repository on this machine has it; one elsewhere is opened at its branch."""
    return branch if local_path(repo) is not None else None


def _head(source: Source, head: str | None, repo: str, *, worktree: bool) -> Snapshot:
    """The commit that is planned: of a repository on this machine the one checked out, unless another is named."""
    if worktree or (head is None and local_path(repo) is None):
        return source.poll()
    return source.at(head or "HEAD")
