"""`llmgw model …`: the fields of a model that people change most, and any other by its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Annotated, Any

import typer

from llmgw.catalog import paths
from llmgw.catalog.forms import NAME
from llmgw.catalog.lock import lock_path, write
from llmgw.catalog.problem import Steps, shorten
from llmgw.catalog.written import Written, unknown
from llmgw.cli.change import Change, How, carry_out
from llmgw.cli.workcopy import Branch, Commit, Json, Name, Push, Repo, WorkCopy
from llmgw.errors import Misused, Refused

ADAPTERS = ("source", "adapters")
"""Where a model's file has them."""


def context(
    name: Name,
    tokens: Annotated[
        int | None,
        typer.Argument(min=1, help="Tokens one request may use.", show_default=False),
    ] = None,
    max_output: Annotated[
        int | None,
        typer.Option("--max-output", min=1, help="Tokens one answer may have."),
    ] = None,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Change how many tokens a request, or an answer, may have. What is not given stays."""
    if tokens is None and max_output is None:
        raise Misused(
            "nothing is asked for",
            why="neither TOKENS nor --max-output is given",
            do="give one of them",
        )
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    told = []
    for field, number in (("context_length", tokens), ("max_output", max_output)):
        if number is not None:
            model = model.put((field,), number)
            told.append(f"{field} {number}")
    carry_out(
        copy,
        Change.of(model, f"{model.name}: {', '.join(told)}", (), model.name),
        How(commit, branch, push, json),
    )


def gpus(
    name: Name,
    counts: Annotated[
        list[str],
        typer.Argument(
            help="PROFILE=CARDS; or CARDS alone where one profile has cards.",
            metavar="CARDS...",
        ),
    ],
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Change how many cards one replica of a profile takes."""
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    told = []
    for word in counts:
        profile, number = _cards(model, word)
        index = model.profile(profile)
        if not isinstance(model.profiles[index].get("gpu"), dict):
            field = f"profiles.{profile}.gpu"
            raise Refused(
                f"{profile} of {model.name} takes no card",
                why="its profile has no `gpu`",
                do=f"say which: llmgw model set {model.name} {field} '{{class: CLASS, count: {number}}}'",
            )
        model = model.put(("profiles", index, "gpu", "count"), number)
        told.append(f"{profile} {number}")
    change = Change.of(model, f"{model.name}: cards of a replica {', '.join(told)}", (), model.name)
    carry_out(copy, change, How(commit, branch, push, json))


def alias(
    name: Name,
    aliases: Annotated[list[str] | None, typer.Argument(help="Names to add.", show_default=False)] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", help="A name to take away.", show_default=False),
    ] = None,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Give a model other names, or take some away."""
    if not aliases and not remove:
        raise Misused(
            "nothing is asked for",
            why="no alias is given",
            do="name one, or take one away with --remove",
        )
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    before = [str(one) for one in _list(model, "aliases")]
    for gone in remove or ():
        if gone not in before:
            raise unknown(f"{model.name} has no alias {gone}", gone, before, "aliases")
    after = [one for one in before if one not in (remove or ())]
    after += [one for one in dict.fromkeys(aliases or ()) if one not in after]
    said = tuple(f"Requests for {gone} are refused from then on." for gone in remove or ())
    changed = _with_list(model, ("aliases",), after)
    told = [
        *(f"also {one}" for one in aliases or ()),
        *(f"no longer {one}" for one in remove or ()),
    ]
    change = Change.of(changed, f"{model.name}: {', '.join(told)}", said, model.name)
    carry_out(copy, change, How(commit, branch, push, json))


def adapter(
    name: Name,
    adapter: Annotated[str, typer.Argument(help="What clients call it.")],
    source: Annotated[str | None, typer.Argument(help="Where it is from.", show_default=False)] = None,
    scale: Annotated[float | None, typer.Option("--scale", help="How strongly it counts.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take it away.")] = False,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Give a model an adapter, change one, or take one away."""
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    listed = [one if isinstance(one, dict) else {} for one in _list(model, *ADAPTERS)]
    names = [str(one.get("name", "")) for one in listed]
    given = (("source", source), ("scale", _tidy(scale)))
    asked = {key: new for key, new in given if new is not None}
    if remove:
        if adapter not in names:
            raise unknown(f"{model.name} has no adapter {adapter}", adapter, names, "adapters")
        after = [one for one in listed if one.get("name") != adapter]
    elif adapter in names:
        after = [one | asked if one.get("name") == adapter else one for one in listed]
    elif source is None:
        raise Misused(
            f"{adapter} has no source",
            why="it is a new adapter",
            do="say where it is from after its name",
        )
    else:
        after = [
            *listed,
            {"name": adapter, **asked},
        ]
    told = "without" if remove else "with"
    change = Change.of(
        _with_list(model, ADAPTERS, after),
        f"{model.name}: {told} adapter {adapter}",
        (),
        model.name,
    )
    carry_out(copy, change, How(commit, branch, push, json))


def set_(
    name: Name,
    path: Annotated[
        str,
        typer.Argument(help="The field: owner, source.version, profiles.gpu.parallel."),
    ],
    value: Annotated[
        str | None,
        typer.Argument(help="Its value, as in the file.", show_default=False),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Take the field out.")] = False,
    repo: Repo = None,
    commit: Commit = False,
    branch: Branch = "",
    push: Push = False,
    json: Json = False,
) -> None:
    """Set any field of a model, or take it out."""
    if (value is None) != unset:
        raise Misused(
            "it is not clear what to write",
            why="VALUE and --unset stand for each other",
            do="give one of them",
        )
    copy = WorkCopy.find(repo)
    model = copy.model(name)
    at = paths.steps(model.raw, path)
    where = model.inherited(at)
    if value is None:
        if where:
            raise Refused(
                f"{path} of {model.name} was not taken out",
                why=f"its file has none: it is from `{where}` of server.yaml",
                do=f"change it there, or write another value over it: llmgw model set {model.name} {path} VALUE",
            )
        changed, told = model.drop(at), f"without {path}"
    else:
        read = paths.read(at, value)
        if where and read is None:
            raise Refused(
                f"{path} of {model.name} was not changed",
                why=f"it is from `{where}` of server.yaml, and nothing written in its place takes it away",
                do=f"change it there, or write another value over it: llmgw model set {model.name} {path} VALUE",
            )
        changed, told = model.put(at, read), f"{path} {shorten(value, 40)}"
    _must_be_new(copy, model, changed)
    said = tuple(_consequences(model, changed, at))
    files = {changed.file.path: changed.file.data, **_lock_moved(copy, model, changed)}
    change = Change(f"{model.name}: {told}", files, said, model=changed.name or model.name)
    carry_out(copy, change, How(commit, branch, push, json))


def _lock_moved(copy: WorkCopy, model: Written, changed: Written) -> dict[str, bytes | None]:
    """The lock of a model that is renamed, in the file that is called after its new name: it is found by that.

    Raises:
        Refused: the lock is in no commit as it is now.
    """
    lock = copy.catalog.locks.get(model.name)
    if lock is None or changed.name == model.name or not re.match(NAME, changed.name):
        return {}
    copy.must_be_committed(lock_path(model.name))
    renamed = lock.model_copy(update={"model": changed.name})
    return {lock_path(model.name): None, lock_path(changed.name): write(renamed)}


def _consequences(model: Written, changed: Written, at: Steps) -> Iterator[str]:
    """What a field does besides being written."""
    if where := changed.inherited(at):
        yield f"`{where}` of server.yaml counts in its place from then on."
    if at == ("name",) and changed.name != model.name:
        yield (
            f"{model.name} is {changed.name} from then on: its replicas end and start again under that name, and "
            f"requests for {model.name} are refused unless it is an alias."
        )
        if not str(changed.merged.get("source", {}).get("from", "/")).startswith("/"):
            yield "Its weights stay where they are held, and nothing is fetched again."
    match at:
        case ("profiles", int(index), "name") if changed.raw != model.raw:
            was, now = (one.profiles[index].get("name") for one in (model, changed))
            yield f"The replicas of {was} end and start again as those of {now}."


def _must_be_new(copy: WorkCopy, model: Written, changed: Written) -> None:
    """Whether other files get another version: what is fetched is kept by the model's name and its version.

    Raises:
        Refused: the source is another one than in the last commit, and its version is not.
    """
    before, now = copy.committed_model(model), changed.merged.get("source")
    was = before.merged.get("source") if before else None
    if not isinstance(was, dict) or not isinstance(now, dict) or changed.raw == model.raw:
        return
    version, summed = now.get("version"), now.get("sha256") is not None and now.get("sha256") == was.get("sha256")
    if version is None or version != was.get("version") or now.get("from") == was.get("from") or summed:
        return
    raise Refused(
        f"{model.file.path} was not edited",
        why=f"its source would be another one under the version {version}, which the files of the one before have",
        do=f"give it a new version first: llmgw model set {model.name} source.version VERSION",
    )


def _cards(model: Written, word: str) -> tuple[str, int]:
    """`gpu=2`, or `2` for the only profile with cards."""
    profile, equals, number = word.rpartition("=")
    if not re.fullmatch(r"[1-9]\d{0,5}", number):
        raise Misused(
            f"{word} is no count of cards",
            why="a replica takes one or more",
            do="write 2, or gpu=2",
        )
    if equals:
        return profile, int(number)
    having = [str(p.get("name", "")) for p in model.profiles if p.get("gpu") is not None]
    if not having:
        raise Refused(
            f"{model.name} takes no card",
            why="none of its profiles has `gpu`",
            do=f"say which: llmgw model set {model.name} profiles.PROFILE.gpu '{{class: CLASS, count: {number}}}'",
        )
    if len(having) != 1:
        found = f"{len(having)} profiles of {model.name} have cards"
        raise Refused(
            "it is not clear which profile is meant",
            why=found,
            do=f"name it: PROFILE={number}",
        )
    return having[0], int(number)


def _tidy(number: float | None) -> float | None:
    if number is not None and not isfinite(number):
        raise Misused(f"{number} is no scale", why="a scale is a number", do="write 0.5, or leave --scale out")
    return int(number) if number is not None and number.is_integer() else number


def _list(model: Written, *at: str) -> list[Any]:
    found: Any = model.raw
    for key in at:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []


def _with_list(model: Written, at: tuple[str, ...], items: Sequence[Any]) -> Written:
    if not items:
        return model.clear(at, []) if _list(model, *at) else model
    return model.put(at, list(items))
