"""`llmgw explore`: models of a hub that this fleet could run, and what one repository holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer

from llmgw.catalog.origin import MAIN, REPOSITORY
from llmgw.cli.asked import HubUrl, Reach, TokenFile
from llmgw.cli.explore_fit import Judge
from llmgw.cli.explore_gather import Gathered, Wish, gather
from llmgw.cli.explore_look import AT_ONCE
from llmgw.cli.explore_repository import repository_of, repository_text
from llmgw.cli.explore_rows import FORMAT_VERSION, Listing, listing_text
from llmgw.cli.machines import known
from llmgw.cli.render import as_json, count
from llmgw.cli.upstreams import endpoint_of, hub_of
from llmgw.cli.workcopy import Json, Repo
from llmgw.errors import Misused
from llmgw.sources.hub import ENDPOINT, Hub
from llmgw.sources.hub_search import SORTS, Search
from llmgw.sources.web import Web
from llmgw.units import parse_bytes


class Engine(StrEnum):
    """What runs a model."""

    LLAMACPP = "llamacpp"
    VLLM = "vllm"
    SGLANG = "sglang"


class Format(StrEnum):
    """What its weights are kept in."""

    GGUF = "gguf"
    SAFETENSORS = "safetensors"


class Sort(StrEnum):
    """What comes first: the most of it; of size the least."""

    TRENDING = "trending"
    DOWNLOADS = "downloads"
    LIKES = "likes"
    NEWEST = "newest"
    SIZE = "size"


LOOKS = 3
"""Times --limit: where most of what is found does not run, no more repositories are looked at for one listing."""
READS = {Engine.LLAMACPP: Format.GGUF, Engine.VLLM: Format.SAFETENSORS, Engine.SGLANG: Format.SAFETENSORS}


def explore(
    query: Annotated[
        list[str] | None, typer.Argument(help="Words to search for, or OWNER/NAME to see one repository.")
    ] = None,
    engine: Annotated[Engine | None, typer.Option(help="What is to run it.", show_default=False)] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="What its weights are kept in.", show_default=False)
    ] = None,
    architecture: Annotated[str, typer.Option(help="Such as llama or qwen3moe.", show_default=False)] = "",
    licence: Annotated[
        str, typer.Option("--licence", "--license", help="Such as apache-2.0.", show_default=False)
    ] = "",
    author: Annotated[str, typer.Option(help="Whose repositories.", show_default=False)] = "",
    task: Annotated[str, typer.Option(help="Such as text-generation.", show_default=False)] = "",
    max_size: Annotated[str, typer.Option(help="Of a model's files: 20GiB.", show_default=False)] = "",
    gated: Annotated[
        bool | None, typer.Option("--gated/--no-gated", help="Only what is gated, or what is not.", show_default=False)
    ] = None,
    sort: Annotated[Sort, typer.Option(help="What comes first.")] = Sort.TRENDING,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Models to show.")] = 20,
    every: Annotated[bool, typer.Option("--all", help="Also what does not run here, with why.")] = False,
    context: Annotated[
        int, typer.Option(min=0, help="Tokens of a request; 0: as trained, or less where there is no room.")
    ] = 0,
    fleet: Annotated[
        Path | None, typer.Option(help="A file that says what the machines have.", show_default=False)
    ] = None,
    within: Annotated[float, typer.Option(min=1, max=600, help="Seconds that it may take.")] = 60.0,
    hub: HubUrl = None,
    token_file: TokenFile = None,
    repo: Repo = None,
    json: Json = False,
) -> None:
    """Search a hub for models that this fleet could run, or see what one repository holds."""
    reach = Reach(hub=hub, token_file=token_file)
    if engine and format_ and READS[engine] is not format_:
        raise Misused("nothing can be found", why=f"{engine} does not read {format_}", do="leave one of the two out")
    words, most_bytes = " ".join(query or ()).strip(), _bytes(max_size)
    format_ = READS[engine] if engine else format_
    fleet_of = known(repo, fleet)
    judge = Judge(fleet_of.machines, fleet_of.how, context)
    now, until = time.time(), time.monotonic() + within
    with _asked(reach) as (asked, pool):
        if (named := _repository(words, endpoint_of(reach))) is not None:
            page = repository_of(asked, pool, named, judge, now=now, until=until)
            print(as_json(page) if json else repository_text(page))
            return
        searched = Search(
            words[:200],
            str(format_ or ""),
            architecture,
            licence,
            author,
            task,
            gated,
            sort=sort if sort in SORTS else Sort.DOWNLOADS,
        )
        # What is sorted here is sorted before it is cut.
        rows = limit * LOOKS if sort is Sort.SIZE else limit
        found = gather(asked, pool, Wish(searched, rows, limit * LOOKS, most_bytes, every, now), judge, until)
    if sort is Sort.SIZE:
        found.smallest(limit)
    listing = _listing(found, asked.endpoint, judge.how, by_size=sort is Sort.SIZE)
    if found.ended is None or (found.rows and not json):
        print(as_json(listing) if json else listing_text(listing, every=every))
    if found.ended is not None:
        raise found.ended


@contextmanager
def _asked(reach: Reach) -> Iterator[tuple[Hub, ThreadPoolExecutor]]:
    """The hub, and the threads that ask it. Leaving ends its connections first: no thread is waited for long."""
    with ThreadPoolExecutor(AT_ONCE) as pool, Web() as web:
        yield hub_of(web, reach), pool


def _repository(words: str, endpoint: str) -> tuple[str, str] | None:
    """The repository that is named, and its revision. None: it is words to search for."""
    for base in (f"{endpoint.rstrip('/')}/", f"{ENDPOINT}/", "hf://"):
        if words.startswith(base):
            words = urlsplit(words.removeprefix(base)).path.strip("/").partition("/tree/")[0]
    name, _, revision = words.partition("@")
    return (name, unquote(revision) or MAIN) if REPOSITORY.fullmatch(name) else None


def _bytes(text: str) -> int | None:
    try:
        return parse_bytes(text) if text else None
    except ValueError as e:
        raise Misused("--max-size cannot be understood", why=str(e), do="write a size") from None


def _listing(found: Gathered, endpoint: str, fleet: str, *, by_size: bool) -> Listing:
    notes = []
    if found.unreadable:
        notes.append(f"{count(found.unreadable, 'line')} of the hub's answer named no repository.")
    if by_size and found.more:
        notes.append("Sorted by size are the models with the most downloads: the hub does not sort by size.")
    return Listing(
        FORMAT_VERSION,
        endpoint,
        fleet,
        tuple(found.rows),
        dict(sorted(found.hidden.items())),
        dict(sorted(found.left_out.items())),
        found.looked_at,
        found.more,
        tuple(notes),
    )
