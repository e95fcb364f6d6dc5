"""`llmgw simulate`: what the fleet would do, were a node lost, one added or a commit applied."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
import yaml
from msgspec import Struct, structs

from llmgw.catalog.server import NodeEntry
from llmgw.cli.plan import How, last_trailers, wanted_at
from llmgw.cli.render import as_json, columns
from llmgw.cli.seen import Seen, from_control, look, operator
from llmgw.core.live import SeenNow
from llmgw.core.memory import Memory
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.rehearsal import Rehearsal, rehearse
from llmgw.core.wanted import Wanted
from llmgw.errors import Exit, OperatorError, Refused
from llmgw.sources.git import open_source
from llmgw.sources.reading import catalog_of
from llmgw.units import show_duration
from llmgw_agent.protocol import Inventory


class Added(Struct, frozen=True, forbid_unknown_fields=False):
    """A node that is not there yet, as `nodes/*/NAME.yaml` of the status branch gives one that is."""

    name: str
    inventory: Inventory
    labels: dict[str, str] = {}


def simulate(
    repo: Annotated[str, typer.Option(help="The fleet's repository: a path or a URL.")] = ".",
    commit: Annotated[str | None, typer.Option(help="Apply this commit at the start; else none.")] = None,
    branch: Annotated[str, typer.Option(help="Of a repository that is not on this machine.")] = "main",
    lose_node: Annotated[list[str] | None, typer.Option(help="Lose this node at the start; again for more.")] = None,
    add_node: Annotated[
        list[Path] | None, typer.Option(help="Add the node this file tells of: a node's file of the status branch.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0, max=1440, help="How long.")] = 15,
    fleet: Annotated[Path | None, typer.Option(help="A recorded fleet: what control answers to /v1/seen.")] = None,
    observed: Annotated[How, typer.Option(help="Where the fleet is seen, without --fleet.")] = How.AUTO,
    control: Annotated[str | None, typer.Option(help="Where control is. Or LLMGW_CONTROL.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="An operator's key. Or LLMGW_KEY_FILE.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust for control. Or LLMGW_CA_FILE.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say what would happen, when, and what no longer fits."""
    if fleet is not None:
        seen = from_control(_recorded(fleet), how=str(fleet))
    else:
        seen = look(str(observed), repo, _cluster(repo, branch), operator(control, key_file, ca_file))
    wanted = seen.base if commit is None else _at(repo, branch, commit, seen)
    if wanted is None or seen.observed is None:
        raise Refused(
            "there is no fleet to simulate",
            why=f"{seen.how} is known of it",
            do="give --control and --key-file, fetch the status branch, or give --fleet FILE",
        )
    lost = _known(lose_node or (), seen.observed)
    for path in add_node or ():
        wanted, seen = _with(path, wanted, seen)
    assert seen.observed is not None, "it was looked at above"
    result = rehearse(wanted, seen.observed, _settled(seen.memory), time.time(), minutes=minutes, lost=lost)
    print(as_json(result) if json else "\n".join(_text(result, seen.how, lost)))
    if any(h.stalled for h in result.unplaced):
        raise typer.Exit(Exit.HELD)


def _settled(memory: Memory) -> Memory:
    return structs.replace(memory, settled=True, epoch=max(1, memory.epoch))


def _recorded(path: Path) -> SeenNow:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SeenNow)
    except OSError as e:
        raise Refused(f"{path} cannot be read", why=e.strerror or str(e), do="name a file") from None
    except msgspec.MsgspecError as e:
        raise OperatorError(
            f"{path} is no recorded fleet", why=str(e)[:200], do="record one: what control answers to GET /v1/seen"
        ) from None


def _cluster(repo: str, branch: str) -> str:
    with TemporaryDirectory(prefix="llmgw-simulate-") as folder:
        source = open_source(repo, branch=branch, state=Path(folder))
        try:
            server = catalog_of(source.poll()).server
        finally:
            source.close()
    if server is None:
        raise OperatorError("the fleet's name is not known", why="server.yaml cannot be used", do="run llmgw validate")
    return server.cluster


def _at(repo: str, branch: str, commit: str, seen: Seen) -> Wanted:
    with TemporaryDirectory(prefix="llmgw-simulate-") as folder:
        source = open_source(repo, branch=branch, state=Path(folder))
        try:
            found = source.at(commit)
            return wanted_at(found, seen, last_trailers(source, seen, found))
        finally:
            source.close()


def _known(names: Iterable[str], seen: Observed) -> frozenset[str]:
    known = [n.name for n in seen.nodes]
    for name in names:
        if name not in known:
            raise Refused(
                f"there is no node {name}", why=f"there are {', '.join(known) or 'none'}", do="name one of them"
            )
    return frozenset(names)


def _with(path: Path, wanted: Wanted, seen: Seen) -> tuple[Wanted, Seen]:
    """The fleet with one more node, which has everything it tells of free."""
    try:
        added = msgspec.convert(yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader), Added)
        entry = NodeEntry.model_validate({"name": added.name, "address": "127.0.0.1", "labels": added.labels})
    except OSError as e:
        raise Refused(f"{path} cannot be read", why=e.strerror or str(e), do="name a file") from None
    except (yaml.YAMLError, msgspec.ValidationError, ValueError) as e:
        raise OperatorError(
            f"{path} tells of no node",
            why=" ".join(str(e).split())[:200],
            do="give name and inventory, as a file under nodes/ of the status branch does",
        ) from None
    assert seen.observed is not None, "a node is added to a fleet"
    if any(n.name == added.name for n in seen.observed.nodes):
        raise Refused(f"there is a node {added.name} already", why=f"{path} names it", do="give it another name")
    nodes = (*seen.observed.nodes, NodeSeen(added.name, age_s=0.0, inventory=added.inventory))
    server = wanted.server.model_copy(update={"nodes": (*wanted.server.nodes, entry)})
    more = structs.replace(seen.observed, nodes=tuple(sorted(nodes, key=lambda n: n.name)))
    return replace(wanted, server=server), Seen(seen.how, seen.base, more, seen.memory)


def _text(result: Rehearsal, how: str, lost: Iterable[str]) -> Iterator[str]:
    yield f"seen: {how}"
    yield f"{result.minutes:g} minutes" + "".join(f", without {name}" for name in sorted(lost))
    rows = [("AT", "WHAT"), *((show_duration(e.at_s), e.what) for e in result.events)]
    yield f"\n{columns(rows)}" if result.events else "\nnothing happens"
    counts = [
        ("MODEL", "READY", "LEAST"),
        *((name, str(n), str(result.least[name])) for name, n in result.ready.items()),
    ]
    yield f"\n{columns(counts)}"
    for held in result.unplaced:
        yield f"\nheld  {held.sentence}"
