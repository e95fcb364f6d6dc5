"""`llmgw model add`: a new model, placed where the fleet would run it best, with its lock."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from llmgw.catalog.added import added_file
from llmgw.catalog.check import read_models
from llmgw.catalog.forms import NAME
from llmgw.catalog.lock import lock_path, write
from llmgw.catalog.server import Server
from llmgw.cli.add_place import Added, placed
from llmgw.cli.add_source import Picked, pick
from llmgw.cli.asked import HubUrl, MirrorKey, Reach, TokenFile, Via
from llmgw.cli.change import Change, How, carry_out, see
from llmgw.cli.free import Free, free
from llmgw.cli.upstreams import look
from llmgw.cli.workcopy import Branch, Commit, Json, Push, Repo, WorkCopy
from llmgw.core.wanted import judge
from llmgw.errors import Misused, Refused
from llmgw.planning.added import Draft
from llmgw.planning.architectures import architecture
from llmgw.planning.shape import ModelShape, from_facts
from llmgw.sources.hub import ENDPOINT
from llmgw.sources.locking import lock_of
from llmgw.sources.selecting import weights


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person says of the new model."""

    name: str
    description: str
    context: int | None
    """None: what it was trained for, as far as there is room."""
    replicas: int
    cpu: bool


def add(
    source: Annotated[
        str,
        typer.Argument(help="OWNER/NAME, OWNER/NAME/FILE, hf://…, https://…, mirror:NAME/VERSION, or a path from /."),
    ],
    name: Annotated[str, typer.Option("--name", help="What clients ask for.", show_default=False)] = "",
    description: Annotated[str, typer.Option("--description", help="For people who choose a model.")] = "",
    context: Annotated[
        int | None, typer.Option("--context", min=1, help="Tokens of a request; else as trained.")
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, max=100_000, help="How many.")] = 1,
    cpu: Annotated[bool, typer.Option("--cpu", help="On CPUs, even where cards are free.")] = False,
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
    """Add a model: write its file and its lock, placed where this fleet would run it best, and print the plan."""
    copy = WorkCopy.find(repo)
    if name:
        _untaken(copy, name)
    with look(Reach(via, hub, token_file, mirror_key_file), copy.catalog.server) as looks:
        picked = pick(source, looks, hub or os.environ.get("HF_ENDPOINT") or ENDPOINT)
    wish = Wish(name or picked.name, description, context, replicas, cpu)
    if not name:
        _untaken(copy, wish.name)
    draft = _draft(picked, wish, copy.catalog.server)
    about = _free(copy, draft.engine)
    added = placed(draft, about, wish.context, cpu=wish.cpu)
    files = {
        f"catalog/{wish.name}.yaml": added_file(added.fields, added.notes),
        lock_path(wish.name): write(draft.lock),
    }
    said = (*added.said, *_served(copy, draft), *_engines(draft, about, added))
    carry_out(copy, Change(f"{wish.name}: added", files, said, model=wish.name), How(commit, branch, push, json))


def _untaken(copy: WorkCopy, name: str) -> None:
    """Whether a name is one, and nobody's.

    Raises:
        Misused: it is no name.
        Refused: it is a model's, or an alias of one.
    """
    if not re.fullmatch(NAME, name):
        why = "a name is of at most 63 lower-case letters, digits, `.`, `_` and `-`, the first a letter or digit"
        raise Misused(f"{name[:80]!a} is no name of a model", why=why, do="give one with --name")
    for path, blob in copy.now.files.items():
        if path.startswith("catalog/") and name.encode() in blob.data:
            for claim in read_models(path, blob.data).claims:
                if claim.name == name:
                    what = "the name" if claim.model == name else "an alias"
                    raise Refused(
                        f"{name} is taken",
                        why=f"it is {what} of {claim.model}: {path}:{claim.place.line}",
                        do="give another with --name",
                    )
    if (path := f"catalog/{name}.yaml") in copy.now.files:
        raise Refused(f"{name} was not added", why=f"there is a file {path} already", do="give another with --name")


def _draft(picked: Picked, wish: Wish, server: Server | None) -> Draft:
    """The model and its lock, before it has a place.

    Raises:
        Refused: no engine of ours serves it, or not enough is known of it.
    """
    found = picked.found
    shape = from_facts(found.facts) if found.facts else None
    if shape is None or not shape.known:
        raise _unknown(wish.name, shape)
    engine = "llamacpp" if picked.gguf else "vllm"
    fields: dict[str, Any] = {
        "name": wish.name,
        **({"description": wish.description} if wish.description else {}),
        **({"license": license_} if (license_ := _license(found.license, server)) else {}),
        **({} if shape.answers else {"kind": "embedding"}),
        "source": dict(picked.source),
    }
    bare = Draft(fields, engine, wish.replicas, shape, lock=None)  # type: ignore[arg-type]
    try:
        lock = lock_of(bare.model(bare.on_cpus(1), 1), found)
    except ValidationError as e:
        flaw = e.errors(include_url=False)[0]
        raise Refused(
            f"{wish.name} was not added",
            why=f"{'.'.join(str(step) for step in flaw['loc'])}: {flaw['msg'][:200]}",
            do="correct what is given for it",
        ) from None
    if not lock.total_bytes:
        raise Refused(
            f"{wish.name} was not added",
            why="its holder does not say how large its files are",
            do="write the file by hand with memory_gib, and run llmgw lock",
        )
    return Draft(fields, engine, wish.replicas, shape, lock)


def _unknown(name: str, shape: ModelShape | None) -> Refused:
    """That nothing is known of a model but its size."""
    do = "where an engine is known to serve it, write the file by hand with memory_gib, and run llmgw lock"
    if shape is not None and architecture(shape.architecture):
        why = f"its header says {shape.architecture} and has no layers: it may be an adapter, or a vocabulary alone"
        return Refused(f"{name} was not added", why=why, do="name the model that it belongs to")
    called = f"the architecture {shape.architecture[:64]!a}" if shape and shape.architecture else "its architecture"
    why = f"{called} is unknown here, so neither its memory nor whether an engine serves it can be told"
    return Refused(f"{name} was not added", why=why, do=do)


def _license(said: str, server: Server | None) -> str:
    """Its publisher's word for the licence, as the fleet's policy spells it."""
    known = (server.policy.licenses if server else None) or ()
    return next((word for word in known if word.lower() == said.lower()), said)[:100]


def _free(copy: WorkCopy, engine: str) -> Free:
    seen = see(copy)
    wanted = seen.base or judge(copy.catalog, commit=copy.now.commit, committed_at=copy.now.committed_at, last=None)
    return free(seen, wanted, engine)


def _served(copy: WorkCopy, draft: Draft) -> Iterable[str]:
    """That the same files are served under another name."""
    mine = {file.sha256 for file in draft.lock.files if weights(file.path)}
    paths = {entry.model.name: entry.path for entry in copy.catalog.models}
    for entry in copy.catalog.models:
        other = copy.catalog.locks.get(entry.model.name)
        theirs = {file.sha256 for file in other.files if weights(file.path)} if other else set()
        in_place = entry.model.source.is_path and entry.model.source.from_ == draft.fields["source"]["from"]
        if in_place or (mine == theirs and None not in mine):
            name = entry.model.name
            yield (
                f"Warning: {name} ({paths[name]}) serves these files already; "
                f"`llmgw model alias {name} {draft.fields['name']}` would give it this name too."
            )


def _engines(draft: Draft, about: Free, added: Added) -> Iterable[str]:
    """That nobody could run it."""
    if about.nodes and not about.engines:
        reporting = "the one node that reports" if about.nodes == 1 else f"none of the {about.nodes} nodes that report"
        has = "has no" if about.nodes == 1 else "has"
        yield f"Warning: {reporting} {has} {draft.engine}: it waits until one has it."
    if draft.engine != "llamacpp" and not added.on_cards:
        yield (
            f"Where there is no card, a GGUF build of it does better: llama.cpp serves that on CPUs, and "
            f"{draft.engine} is made for cards. Look for one: "
            f"llmgw explore {draft.fields['name']} --format gguf"
        )
