"""`llmgw model …`: how many replicas a model has, whether it runs, and that it goes.

What a command may do to a model is decided in `llmgw.catalog.counts`; here words
become values, and an edit becomes a sentence, a diff and a plan.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import inf
from typing import Annotated

import typer

from llmgw.catalog import counts as counting
from llmgw.catalog.counts import CpuNeed
from llmgw.catalog.edit import drop
from llmgw.catalog.lock import lock_path
from llmgw.catalog.written import Written
from llmgw.cli.change import Change, How, carry_out, see
from llmgw.cli.render import count
from llmgw.cli.workcopy import Branch, Commit, Json, Name, Push, Repo, WorkCopy
from llmgw.core.wanted import PURGE
from llmgw.errors import Misused, Refused
from llmgw.units import show_duration
from llmgw_agent.protocol import Phase, split_id


def replicas(
    name: Name,
    counts: Annotated[
        list[str],
        typer.Argument(help="PROFILE=COUNT, for each profile that changes: gpu=7 cpu=4."),
    ],
    cpu_memory: Annotated[
        float | None,
        typer.Option("--cpu-memory", help="GiB one replica of an added CPU profile reserves."),
    ] = None,
    cpu_cores: Annotated[
        int | None,
        typer.Option("--cpu-cores", help="Cores one replica of an added CPU profile reserves."),
    ] = None,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Count a model's replicas. Profiles that are not named stay as they are."""
    asked = _counts(counts)
    if cpu_memory is not None and not 0 < cpu_memory < inf:
        raise Misused(f"{cpu_memory} is no memory", why="it is GiB, more than 0", do="write --cpu-memory 24")
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    counted = counting.replicas(model, asked, CpuNeed(cpu_memory, cpu_cores))
    shown = ", ".join(f"{profile} {number}" for profile, number in asked.items())
    change = Change.of(counted.model, f"{model.name}: replicas {shown}", counted.said, model.name)
    carry_out(copy, change, How(commit, branch, push, json))


def scale(
    name: Name,
    total: Annotated[str, typer.Argument(help="How many replicas in all: 4, or 2..6.")],
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Give a model a total, whatever its profiles. One that is stopped starts."""
    found = re.fullmatch(r"(\d{1,6})(?:\.\.(\d{1,6}))?", total)
    if found is None:
        raise Misused(
            f"{total} is no total",
            why="it is a number, or two with .. between",
            do="write 4, or 2..6",
        )
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    counted = counting.scale(model, int(found[1]), int(found[2] or found[1]))
    change = Change.of(counted.model, f"{model.name}: {total} in all", counted.said, model.name)
    carry_out(copy, change, How(commit, branch, push, json))


def stop(
    name: Name,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Stop every replica of a model, and keep the model."""
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    if model.stopped:
        where = model.inherited(("state",))
        told = f"`{where}` of server.yaml says so" if where else "its file says so"
        said = f"{model.name} is stopped already: {told}."
        carry_out(copy, Change.of(model, "", (said,), model.name), How(commit, branch, push, json))
        return
    one = _replicas(model).endswith(" replica")
    answered = "it has answered what it is answering" if one else "they have answered what they are answering"
    said = (
        f"Stopping {model.name} ends {_replicas(model)} once {answered}, and refuses "
        f"new requests; its counts and files stay, and `llmgw model start {model.name}` brings it back."
    )
    change = Change.of(model.put(("state",), "stopped"), f"{model.name}: stopped", (said,), model.name)
    carry_out(copy, change, How(commit, branch, push, json))


def start(
    name: Name,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Start a model that was stopped, with the counts it had."""
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    server = copy.catalog.server
    held = server is not None and server.state == "stopped"
    said = ("The fleet is stopped by `state` of server.yaml: nothing starts until that is taken out.",) if held else ()
    change = Change.of(model.running(), f"{model.name}: started", said, model.name)
    carry_out(copy, change, How(commit, branch, push, json))


def restart(
    name: Name,
    profiles: Annotated[
        list[str] | None,
        typer.Argument(help="Of these profiles; else of all.", show_default=False),
    ] = None,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Start a model's replicas again, one at a time."""
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    named = profiles or [str(p.get("name", "")) for p in model.profiles]
    indexes = [model.profile(profile) for profile in named]
    if model.stopped:
        raise Refused(
            f"{model.name} is not started again",
            why="it is stopped, so none of its replicas is ready",
            do=f"llmgw model start {model.name}",
        )
    if not indexes:
        raise Refused(
            f"{model.name} is not started again",
            why="it has no profile, so nothing of it runs here",
            do=f"llmgw status {model.name} says what it is",
        )
    ready = _ready(copy, model.name, set(named))
    if ready == 0:
        raise Refused(
            f"{model.name} is not started again",
            why=f"none of its replicas of {', '.join(named)} is ready, so there is none to start again",
            do=f"llmgw status {model.name} says why",
        )
    these = "its replicas" if ready is None else f"its {count(ready, 'ready replica')}"
    said = (
        f"Restarting {model.name} starts {these} of {', '.join(named)} again, one at a time: a new one is ready before "
        "an old one ends where there is room for both."
    )
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for index in indexes:
        model = model.put(("profiles", index, "restart"), now)
    carry_out(
        copy,
        Change.of(model, f"{model.name}: started again", (said,), model.name),
        How(commit, branch, push, json),
    )


def remove(
    name: Name,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Free its files at once, and not after a while."),
    ] = False,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Take a model out of the catalog."""
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    if model.merged.get("protect") is True:
        raise Refused(
            f"{model.name} is protected",
            why="its file says `protect: true`",
            do=f"take that out first: llmgw model set {model.name} protect false",
        )
    copy.must_be_committed(model.file.path)
    whole = model.file.read().value
    others = len(whole) - 1 if isinstance(whole, list) else 0
    files = {model.file.path: drop(model.file, model.base).data if others else None}
    lock = lock_path(model.name)
    if lock in copy.now.files:
        copy.must_be_committed(lock)
        files[lock] = None
    change = Change(
        f"{model.name}: removed",
        files,
        (_farewell(copy, model, purge=purge),),
        (f"{PURGE}: {model.name}",) if purge else (),
        model.name,
        removes=True,
    )
    carry_out(copy, change, How(commit, branch, push, json))


def _farewell(copy: WorkCopy, model: Written, *, purge: bool) -> str:
    """What a removal does, in one sentence."""
    aliases = model.raw.get("aliases")
    names = " or ".join([model.name, *(map(str, aliases) if isinstance(aliases, list) else ())])
    if "external" in model.raw:
        return f"Removing {model.name} ends nothing that runs here, and requests for {names} are refused."
    goes = f"Removing {model.name} ends {_replicas(model)}, and requests for {names} are refused"
    source = model.merged.get("source")
    if str(source.get("from", "") if isinstance(source, dict) else source).startswith("/"):
        return f"{goes}; its files are on the nodes, and are not touched."
    mirror = copy.catalog.server.mirror if copy.catalog.server else None
    if mirror is None:
        return f"{goes}."
    if purge:
        return (
            f"{goes}; what nothing else uses of its files is freed as soon as they have ended, and bringing it back "
            "fetches them again."
        )
    freed = f"{goes}; what nothing else uses of its files is freed {show_duration(mirror.retain)} later"
    # Nothing says that the files of one that was never locked were ever fetched.
    kept = mirror.retain > 0 and model.name in copy.catalog.locks
    return f"{freed}; a revert until then fetches nothing." if kept else f"{freed}."


def _replicas(model: Written) -> str:
    """`its 7 gpu and 4 cpu replicas`."""
    counted = [f"{number} {profile}" for profile, number in model.counts.items() if number]
    if not counted or "scaling" in model.merged or model.stopped:
        return "its replicas, if any run," if model.stopped else "its replicas"
    return f"its {' and '.join(counted)} replica{'s' if sum(model.counts.values()) > 1 else ''}"


def _ready(copy: WorkCopy, name: str, profiles: set[str]) -> int | None:
    """How many replicas of these profiles are ready. None: it is not known."""
    seen = see(copy).observed
    if seen is None:
        return None
    ready = [split_id(r.id) for n in seen.nodes for r in n.replicas if r.phase is Phase.READY]
    return sum(1 for model, profile, _ in ready if model == name and profile in profiles)


def _counts(words: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        profile, equals, number = word.partition("=")
        if not equals or not profile or not re.fullmatch(r"\d{1,6}", number):
            raise Misused(
                f"{word} is no count",
                why="a count is PROFILE=NUMBER",
                do="write gpu=7, or gpu=7 cpu=4",
            )
        found[profile] = int(number)
    return found
