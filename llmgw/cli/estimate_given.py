"""What `llmgw estimate` is given: a file, a folder, a source somewhere else, or a model of the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from llmgw.catalog.origin import REPOSITORY
from llmgw.catalog.server import Server
from llmgw.cli.add_source import pick
from llmgw.cli.asked import Reach
from llmgw.cli.estimate_here import NAME_ONE, here
from llmgw.cli.machines import fleet_around
from llmgw.cli.upstreams import endpoint_of, hub_of, look
from llmgw.cli.workcopy import WorkCopy
from llmgw.errors import Refused
from llmgw.planning.claim import options_of
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.need import Files
from llmgw.planning.shape import ModelShape, from_facts
from llmgw.sources.hub import Hub
from llmgw.sources.hub_page import held, shape_of
from llmgw.sources.hub_sets import USUAL, FileSet, Kind
from llmgw.sources.web import Web


@dataclass(frozen=True, slots=True)
class Given:
    """A model's files."""

    main: Files
    """What the terms are of."""
    packings: tuple[Files, ...]
    """Every one that it could be run from, the main one among them."""
    options: LlamaOptions | None = None
    """How the catalog has it run. None: it is in none."""


def given(text: str, *, size_bytes: int | None, reach: Reach, repo: Path | None) -> Given:
    """The files that are meant.

    Args:
        text: as a person writes it.
        size_bytes: of all files, where a header alone is there. None: as they are.
        reach: from where a source is looked at, and as whom.
        repo: a fleet's repository. None: the one around this folder.

    Raises:
        OperatorError: it is none, cannot be had, or is damaged.
    """
    path = Path(text)
    if text.startswith(("/", ".", "~")) or path.exists():
        found = _one(here(path.expanduser(), size_bytes))
    elif re.match(r"[a-z0-9]+:", text) or ("/" in text and not _file_name(text)):
        found = _elsewhere(text, reach, _server(repo))
    elif (model := _of_catalog(text, repo)) is not None:
        found = model
    else:
        raise Refused(f"{text} cannot be read", why="No such file, and no model of a catalog here", do=NAME_ONE)
    if size_bytes is not None:
        main = replace(found.main, bytes=size_bytes)
        found = replace(found, main=main, packings=(main,))
    if found.main.bytes <= 0:
        raise Refused(f"{text} was not estimated", why="its size is 0", do="give the size of the model with --size")
    return found


def _file_name(text: str) -> bool:
    """Whether it is the name of a file that is not there, and no repository: `models/a.gguf`."""
    return text.endswith((".gguf", ".safetensors")) and text.count("/") == 1


def _one(files: Files) -> Given:
    return Given(files, (files,))


def _server(repo: Path | None) -> Server | None:
    root = fleet_around(repo)
    return WorkCopy.find(root).catalog.server if root is not None else None


def _of_catalog(name: str, repo: Path | None) -> Given | None:
    """A model of the fleet's catalog, by its lock."""
    root = fleet_around(repo)
    if root is None:
        return None
    catalog = WorkCopy.find(root).catalog
    model = next((e.model for e in catalog.models if name in (e.model.name, *e.model.aliases)), None)
    if model is None:
        return None
    lock = catalog.locks.get(model.name)
    if lock is None or not lock.facts or not lock.total_bytes:
        raise Refused(
            f"{name} was not estimated",
            why="its lock does not say what its files are",
            do=f"run llmgw lock {model.name}",
        )
    profile = model.profiles[0]
    files = Files(model.name, from_facts(lock.facts), lock.total_bytes)
    return replace(_one(files), options=options_of(model, profile) if profile.engine == "llamacpp" else None)


def _elsewhere(text: str, reach: Reach, server: Server | None) -> Given:
    repository = text.removeprefix("hf://")
    name, _, revision = repository.partition("@")
    if reach.via is None and REPOSITORY.fullmatch(name) and "/" not in revision and not text.startswith("http"):
        with Web() as web:
            return _repository(hub_of(web, reach), name, revision or "main")
    with look(reach, server) as looks:
        found = pick(text, looks, endpoint_of(reach)).found
    facts = found.facts
    shape = from_facts(facts) if facts else ModelShape(architecture="")
    weights = [f.bytes for f in found.files if f.path.endswith((".gguf", ".safetensors"))]
    if None in weights:
        raise Refused(f"{text} was not estimated", why="its holder does not say how large it is", do="give --size")
    first = next(f.path for f in found.files if f.path.endswith((".gguf", ".safetensors")))
    return _one(Files(first, shape, sum(n for n in weights if n is not None)))


def _repository(hub: Hub, name: str, revision: str) -> Given:
    """All models of one repository: the shape of the usual one is read, and the others differ in size alone."""
    listed = held(hub, name, revision)
    sets = [s for s in listed.sets if s.kind is Kind.MODEL and s.whole and s.bytes]
    if not sets:
        kinds = sorted({str(s.kind) for s in listed.sets})
        why = f"it holds no whole GGUF or safetensors model{f', but {kinds[0]} files' if kinds else ''}"
        raise Refused(f"hf://{name} was not estimated", why=why, do="name a repository of weights")
    main = next((s for s in sets if s.quantisation == USUAL), sets[0])
    shape = shape_of(hub, name, listed, main) or ModelShape(architecture="", format=main.format)
    return Given(_packing(main, shape, name), tuple(_alike(sets, main, shape, name)))


def _packing(of: FileSet, shape: ModelShape, name: str) -> Files:
    return Files(of.name or name, shape, of.bytes)


def _alike(sets: Iterable[FileSet], main: FileSet, shape: ModelShape, name: str) -> Iterable[Files]:
    for each in sets:
        if each is main:
            yield _packing(each, shape, name)
        elif each.format == main.format:
            kind = each.quantisation or shape.file_type
            yield _packing(each, replace(shape, file_type=kind, weights=None, parts=each.parts), name)
