"""A whole fleet for a test: `llmgw up` on a bare repository, the real engine and the real model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import openai
import psutil

from llmgw.catalog.lock import Lock, write
from llmgw.cli.demo import example, model_file
from llmgw.cli.machine import Machine, free_ports, running
from llmgw.cli.seen import ask_status
from llmgw.cli.up import fleet_of, gateway_here, node_here
from llmgw.core.live import Live
from llmgw.errors import OperatorError
from llmgw.sources.bare import commit_files, make_bare
from llmgw.sources.header import facts_of, read_file
from llmgw.sources.status_branch import StatusBranch

AUTHOR = "Ana <ana@example.invalid>"
SOURCE = b"file:///opt/llmgw-demo/SmolLM2-135M-Instruct.Q4_1.gguf"


def demo_model(name: str = "smollm2", replicas: int = 1) -> bytes:
    """The example's catalog file, under a name and with a count."""
    data = example()["catalog/smollm2.yaml"].replace(SOURCE, f"file://{model_file()}".encode())
    return data.replace(b"name: smollm2", f"name: {name}".encode()).replace(
        b"replicas: 1", f"replicas: {replicas}".encode()
    )


def demo_lock() -> bytes:
    """What the example's source is, with its header's facts."""
    path = model_file()
    file = {"path": path.name, "bytes": path.stat().st_size}
    facts = facts_of(path.name, lambda _, start, end: read_file(path, start, end), {path.name: file["bytes"]})
    source = {"from": f"file://{path}", "version": "q4_1"}
    return write(Lock.model_validate({"model": "smollm2", "source": source, "files": [file], "facts": facts}))


@dataclass
class Site:
    """The repository and the machine that runs it."""

    machine: Machine

    @property
    def repo(self) -> Path:
        return Path(self.machine.repo)

    def push(self, message: str = "change", **models: bytes | None) -> None:
        """Commit catalog files by name, and what has a slash in it by its path; None removes one."""
        changes = {n if "/" in n else f"catalog/{n}.yaml": d for n, d in models.items()}
        commit_files(self.repo, changes, message=f"{message}\n", author=AUTHOR, now=time.time())

    def client(self) -> openai.OpenAI:
        """The real client, which does not try again behind our back."""
        return openai.OpenAI(base_url=self.machine.endpoint, api_key="none", max_retries=0, timeout=60)

    def status(self) -> dict[str, str]:
        """The files of the status branch."""
        branch = StatusBranch(self.machine.repo, self.machine.server.cluster, self.machine.state / "reader")
        try:
            tree = branch.read()
            return {p: d.decode() for p, d in tree.files.items()} if tree else {}
        finally:
            branch.close()

    async def live(self) -> Live | None:
        """What control sees, or None while it does not answer."""
        with contextlib.suppress(OperatorError):
            return await ask_status(self.machine.operator)
        return None

    def engines(self) -> dict[int, str]:
        """The command lines of engines of this site that run, by process id."""
        mark = str(self.machine.state)
        found = {}
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if mark in line and "engines.llama_server" in line:
                found[process.info["pid"]] = line
        return found

    def processes(self) -> list[str]:
        """Everything of this site that runs."""
        mark = str(self.machine.state)
        return [
            " ".join(p.info["cmdline"])
            for p in psutil.process_iter(["cmdline"])
            if p.info["cmdline"] and mark in " ".join(p.info["cmdline"])
        ]


def prepare(folder: Path, **models: bytes) -> Site:
    """A bare repository with these models, and free ports for everything."""
    base, api, gateway, control = free_ports(0, 0, 0, 0)
    server = example()["server.yaml"].replace(b":8081", f":{base}".encode()).replace(b":8082", f":{api}".encode())
    files = {"server.yaml": server, **{f"catalog/{n}.yaml": d for n, d in models.items()}}
    repo = folder / "fleet.git"
    make_bare(repo, files, message="first\n", author=AUTHOR, now=time.time())
    fleet = fleet_of(str(repo), "main").server
    machine = Machine(
        repo=str(repo),
        worktree=False,
        server=fleet,
        node=node_here(fleet, None),
        gateway=gateway_here(fleet),
        state=folder / "state",
        gateway_port=gateway,
        control_port=control,
        allow_files=(model_file().parent,),
    )
    return Site(machine)


@asynccontextmanager
async def a_site(folder: Path, **models: bytes) -> AsyncIterator[Site]:
    """The fleet, running."""
    site = prepare(folder, **models)
    async with running(site.machine, say=print):
        yield site
    assert site.processes() == [], "something was left behind"


async def until(check: Callable[[], object], *, within_s: float = 60.0, what: str = "it") -> object:
    """The first true answer of a check, asked again and again."""
    deadline = time.monotonic() + within_s
    while True:
        found = check()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come about in {within_s:.0f}s"
        await asyncio.sleep(0.2)


async def ready(site: Site, **counts: int) -> Live:
    """Wait until each model has so many ready replicas, and nothing is under way."""

    async def there() -> Live | None:
        live = await site.live()
        if live is None or live.status is None:
            return None
        now = {m.name: sum(p.ready for p in m.profiles) for m in live.status.models}
        return live if now == counts else None

    return await until(there, what=f"{counts} ready")  # type: ignore[return-value]


@dataclass
class Load:
    """Requests one after another, and what became of them."""

    site: Site
    model: str
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with self.site.client() as client:
            while not self.stop.is_set():
                try:
                    answer = client.chat.completions.create(
                        model=self.model,
                        messages=[{"role": "user", "content": "Count to three."}],
                        max_tokens=4,
                        temperature=0,
                    )
                    assert answer.choices[0].message.content
                    self.answered += 1
                    # One after another, and not as many as the machine can answer: what else runs needs it too.
                    self.stop.wait(0.1)
                except Exception as e:  # noqa: BLE001  every failure of a request is what is counted
                    self.failed.append(repr(e))


@contextmanager
def steady_load(site: Site, model: str, *, clients: int = 2) -> Iterator[Load]:
    """Requests from several clients for as long as the block runs."""
    load = Load(site, model)
    threads = [threading.Thread(target=load.run, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stop.set()
        for thread in threads:
            thread.join(timeout=60)


def pid_of(site: Site, name: str) -> int:
    """The process id of control, mirror, gateway or the agent of this site."""
    words = {"agent": "-m llmgw_agent --control", "mirror": "-m llmgw mirror"}.get(name, f"-m llmgw {name}")
    mark = str(site.machine.state)
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if words in line and mark in line:
            return int(process.info["pid"])
    raise AssertionError(f"{name} does not run")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def llmgw(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a person does."""
    return subprocess.run(
        [sys.executable, "-m", "llmgw", *words], capture_output=True, text=True, timeout=60, check=False, **options
    )
