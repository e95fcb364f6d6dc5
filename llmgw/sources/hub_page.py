"""One repository of a hub: its card, its file sets, and what was made of the same base."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from llmgw.catalog.origin import MAIN
from llmgw.errors import OperatorError
from llmgw.planning.shape import ModelShape, from_facts
from llmgw.sources.header import facts_of
from llmgw.sources.hub import Hub, TreeFile
from llmgw.sources.hub_search import EXPAND, Found, Search, described, search
from llmgw.sources.hub_sets import FileSet, file_sets, size_of
from llmgw.sources.hub_text import first_paragraph

README = "README.md"
_README_BYTES = 32 << 10
_PAGES = 10
"""Of a listing that is looked at and not fetched: ten thousand files."""
RELATED = 8
"""Repositories that are named beside one."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a repository holds at one commit."""

    commit: str
    sets: tuple[FileSet, ...]
    odd: int
    """Weights with names that no node would write."""
    files: tuple[TreeFile, ...]


@dataclass(frozen=True, slots=True)
class Related:
    """Repositories that say they were made of a model, the most fetched first. None: the hub did not say."""

    of: str
    adapters: tuple[Found, ...] | None
    quantised: tuple[Found, ...] | None


def card(hub: Hub, repository: str, revision: str = MAIN) -> Found:
    """What a hub says of one repository.

    Raises:
        OperatorError: it is not there, or may not be seen, or the hub cannot be asked.
    """
    at = f"/revision/{quote(revision, safe='')}" if revision != MAIN else ""
    path = f"/api/models/{repository}{at}?{urlencode([('expand', field) for field in EXPAND])}"
    found = described(hub.value(hub.get(path, repository, revision), path, dict[str, Any]))
    if found is None:
        raise hub.nonsense(path, "it names no repository")
    return found


def held(hub: Hub, repository: str, commit: str) -> Held:
    """The file sets of a commit, from its listing.

    Raises:
        OperatorError: as `card`.
    """
    files = tuple(hub.files(repository, commit or MAIN, pages=_PAGES))
    sets, odd = file_sets(files)
    return Held(commit, sets, odd, files)


def shape_of(hub: Hub, repository: str, found: Held, of: FileSet) -> ModelShape | None:
    """The shape of a file set, from its header or the configuration beside it. None: it does not say.

    Raises:
        OperatorError: it may not be read, is damaged, or the hub does not answer.
    """
    # Of weights its own alone: what else a repository holds is no part of its size.
    others = {file.path for each in found.sets if each is not of for file in each.files}
    sizes: dict[str, int | None] = {file.path: size_of(file) for file in found.files if file.path not in others}
    facts = facts_of(of.first, partial(hub.read, repository, found.commit or MAIN), sizes)
    return from_facts(facts) if facts else None


def paragraph(hub: Hub, repository: str, found: Held) -> str:
    """The first paragraph of its README. Empty: it has none, or it may not be read."""
    if not any(file.path == README for file in found.files):
        return ""
    try:
        data = hub.read(repository, found.commit or MAIN, README, 0, _README_BYTES)
    except OperatorError:
        return ""
    return first_paragraph(data.decode(errors="replace"))


def related(hub: Hub, found: Found) -> Related:
    """What else was made of a model; of one with fewer bits, of its base. By two requests."""
    of = found.base_model if found.quantised and found.base_model else found.id
    return Related(of, _made(hub, "adapter", of, found.id), _made(hub, "quantized", of, found.id))


def _made(hub: Hub, how: str, of: str, but: str) -> tuple[Found, ...] | None:
    try:
        page = next(search(hub, Search(label=f"base_model:{how}:{of}", sort="downloads", limit=RELATED + 1)))
    except OperatorError:
        return None
    return tuple(row for row in page.found if row.id != but and row.base_model in ("", of))[:RELATED]
