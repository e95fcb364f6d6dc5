"""`llmgw up`: control, mirror, gateway and one agent on this machine, from one repository."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shlex
import signal
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer

from llmgw.catalog.server import Server
from llmgw.cli.machine import READY_S, Machine, running
from llmgw.cli.program import called
from llmgw.cli.watch import Watcher
from llmgw.core.live import Live
from llmgw.errors import Misused, OperatorError, Refused
from llmgw.net.listen import is_loopback
from llmgw.sources.git import local_path, open_source
from llmgw.sources.reading import catalog_of


def up(
    repo: Annotated[str, typer.Argument(help="The fleet's repository: a working copy, a bare one, or a URL.")] = ".",
    node: Annotated[str | None, typer.Option(help="Which node of server.yaml this machine is.")] = None,
    state: Annotated[Path | None, typer.Option(help="A folder for weights, logs and keys.")] = None,
    branch: Annotated[
        str | None, typer.Option(help="Of a bare or remote repository; main where none is given.")
    ] = None,
    gateway_port: Annotated[int, typer.Option(help="Where clients come.", min=1, max=65535)] = 8080,
    control_port: Annotated[int, typer.Option(help="Where the agent and the gateway ask.", min=1, max=65535)] = 8083,
    allow_files: Annotated[
        list[Path] | None, typer.Option(help="A folder below which file:// sources may be. May be repeated.")
    ] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="A host to fetch from, beside Hugging Face's.")] = None,
    allow_path: Annotated[
        list[Path] | None, typer.Option(help="A folder from which weights are read in place. May be repeated.")
    ] = None,
) -> None:
    """Run a whole fleet on this machine until Ctrl-C."""
    worktree = _is_working_copy(repo)
    if worktree and branch is not None:
        raise Misused(
            f"--branch {branch} says nothing of a working copy",
            why=f"{repo} is run as its files are, whatever branch is checked out",
            do="leave it out, or give the repository as a file:// URL to run what is committed",
        )
    catalog = fleet_of(repo, branch or "main")
    server = catalog.server
    machine = Machine(
        repo=repo,
        worktree=worktree,
        server=server,
        node=node_here(server, node),
        gateway=gateway_here(server),
        state=(state or default_state(repo, server.cluster)).absolute(),
        gateway_port=gateway_port,
        control_port=control_port,
        allow_files=tuple(p.absolute() for p in allow_files or ()),
        allow_hosts=tuple(allow_host or ()),
        allow_paths=tuple(p.absolute() for p in allow_path or ()),
        branch=branch or "main",
        clients=catalog.clients,
    )
    asyncio.run(until_stopped(_run(machine)))


async def until_stopped(work: Coroutine[Any, Any, None]) -> bool:
    """Do it until it is done or somebody says stop; whether it was done. What it began is ended in either case."""
    stop = stop_event()
    doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
    done = doing.done()
    for task in (doing, stopped):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await doing
    return done


async def _run(machine: Machine) -> None:
    async with running(machine, say=tell):
        await _tell(machine)


def tell(line: str) -> None:
    """Print it at once, for whoever reads along through a pipe."""
    print(line, flush=True)


async def _tell(machine: Machine) -> None:
    tell(f"fleet {machine.server.cluster}, node {machine.node}; logs and weights are in {machine.state}")
    for line in where_it_is(machine):
        tell(line)
    watcher = Watcher(machine.operator, say=tell)
    try:
        live = await watcher.until(lambda now: now.status is not None, within_s=READY_S, what="control's first pass")
        for line in card_notes(live):
            tell(line)
        live = await watcher.until(lambda now: bool(_serving(now)), within_s=float("inf"), what="a ready model")
        for line in ask_line(machine, live):
            tell(line)
        await watcher.forever()
    finally:
        await watcher.close()


def where_it_is(machine: Machine) -> list[str]:
    """Where clients come, and how the fleet is asked how it is."""
    who = machine.operator
    key = shlex.quote(str(who.key_file))
    return [
        f"endpoint: {machine.endpoint}",
        f"status: {called()} status --live --control {who.control} --key-file {key}",
    ]


def ask_line(machine: Machine, live: Live) -> list[str]:
    """A question to the first model that serves, as it can be pasted; with a place for a key, where one is needed."""
    serving = _serving(live)
    if not serving:
        return []
    body = json.dumps({"model": serving[0], "messages": [{"role": "user", "content": "Say hello."}]})
    key = f'-H "Authorization: Bearer THE_KEY_OF_{machine.clients[0]}" ' if machine.clients else ""
    url = f"{machine.endpoint}/chat/completions"
    return [f"ask: curl -s {url} {key}-H 'content-type: application/json' -d {shlex.quote(body)}"]


def what_to_try(machine: Machine, live: Live) -> list[str]:
    """What a person does next."""
    return [*where_it_is(machine), *ask_line(machine, live)]


def _serving(live: Live) -> list[str]:
    return [m.name for m in live.status.models if any(p.ready for p in m.profiles)] if live.status else []


def card_notes(live: Live) -> list[str]:
    """What is said of a card that the engine here cannot use."""
    notes = []
    for node in live.observed.nodes:
        engines = node.inventory.engines if node.inventory else None
        cards = node.inventory.cards if node.inventory else ()
        if cards and engines and all(e.build == "embedded" for e in engines):
            notes.append(
                f"card found ({cards[0].name}), the engine here is for CPUs; to use the card, install llama.cpp's "
                "llama-server built for it on the PATH, or vLLM"
            )
    return notes


class Fleet(NamedTuple):
    """What this machine has to know of a repository before it runs it."""

    server: Server
    clients: tuple[str, ...]
    """Whose keys clients may come with. None: they need no key."""


def fleet_of(repo: str, branch: str) -> Fleet:
    """Read it once.

    Raises:
        OperatorError: it cannot be read, or its server.yaml cannot be used.
    """
    with TemporaryDirectory(prefix="llmgw-up-") as folder:
        mode = "worktree" if _is_working_copy(repo) else "head"
        source = open_source(repo, branch=branch, state=Path(folder), mode=mode)
        try:
            catalog = catalog_of(source.poll())
        finally:
            source.close()
    if catalog.server is None:
        raise OperatorError(
            "server.yaml cannot be used, so there is no fleet to run",
            why="\n  ".join(p.line_form() for p in catalog.problems if p.path == "server.yaml"),
            do="mend it: llmgw validate",
        )
    return Fleet(catalog.server, tuple(sorted(entry.key.name for entry in catalog.keys)))


def _is_working_copy(repo: str) -> bool:
    path = local_path(repo)
    return path is not None and (path / ".git").exists()


def node_here(server: Server, name: str | None) -> str:
    """Which node of server.yaml this machine is.

    Raises:
        Refused: it cannot be told.
    """
    names = [n.name for n in server.nodes]
    if name is not None and name not in names:
        raise Refused(
            f"server.yaml has no node {name}", why=f"it has {', '.join(names) or 'none'}", do="name one of them"
        )
    here = [name] if name else [n.name for n in server.nodes if is_loopback(n.address)]
    if len(here) == 1:
        return here[0]
    raise Refused(
        "it is not clear which node this machine is",
        why=f"server.yaml has {len(here)} nodes on loopback" if names else "server.yaml names no nodes",
        do="name it with --node" if names else "add nodes: [{name: here, address: 127.0.0.1}]",
    )


def gateway_here(server: Server) -> str:
    if not server.gateways:
        raise Refused("server.yaml names no gateway", why="clients need one", do="add gateways: [{name: here}]")
    return server.gateways[0].name


def default_state(repo: str, cluster: str) -> Path:
    """Where this fleet's weights, logs and keys are on this machine: one folder for each repository."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    path = local_path(repo)
    mark = hashlib.sha256(str(path.resolve() if path else repo).encode()).hexdigest()[:8]
    return base / "llmgw" / f"{cluster}-{mark}"


def stop_event() -> asyncio.Event:
    """Set by Ctrl-C and by SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
