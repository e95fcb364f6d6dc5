"""All four processes on one machine, on loopback, with keys of their own."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from llmgw.catalog.server import Server
from llmgw.cli.key import write_key
from llmgw.cli.processes import Processes, Program
from llmgw.cli.seen import Operator
from llmgw.errors import OperatorError, Refused
from llmgw.net.http import Client
from llmgw.net.key import read_key
from llmgw.net.listen import is_loopback, listener

READY_S = 30.0
"""What the processes may take to answer."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What one machine runs, and where everything of it is."""

    repo: str
    worktree: bool
    server: Server
    node: str
    gateway: str
    state: Path
    gateway_port: int = 8080
    control_port: int = 8083
    allow_files: tuple[Path, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    allow_paths: tuple[Path, ...] = ()
    branch: str = "main"
    clients: tuple[str, ...] = ()
    """Whose keys clients may come with. None: they need no key."""

    @property
    def endpoint(self) -> str:
        """What clients are given."""
        return f"http://127.0.0.1:{self.gateway_port}/v1"

    @property
    def operator(self) -> Operator:
        """How this machine's own control is asked."""
        return Operator(f"http://127.0.0.1:{self.control_port}", self.state / "keys/operator.key")


@asynccontextmanager
async def running(machine: Machine, *, say: Callable[[str], None]) -> AsyncIterator[None]:
    """The four processes, answering, for as long as the block runs; then none of them.

    Raises:
        OperatorError: one of them cannot be started.
    """
    with only_one(machine.state, machine.endpoint):
        _free(machine)
        _keys(machine)
        processes = Processes(_programs(machine), say=say)
        keeping = asyncio.create_task(processes.keep())
        try:
            await _answering(machine, keeping)
            processes.answered = True
            yield
            if keeping.done():
                keeping.result()
        except* OperatorError as failed:
            raise failed.exceptions[0] from None
        finally:
            say("stopping")
            await processes.stop()
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError, ExceptionGroup):
                await keeping
            say(f"stopped, and nothing of it runs any more; weights, logs and keys stay in {machine.state}")


@contextmanager
def only_one(state: Path, endpoint: str) -> Iterator[None]:
    """Holds a fleet's folder, for as long as the block runs.

    Args:
        state: the folder.
        endpoint: what whoever comes second is told.

    Raises:
        Refused: this fleet is up already, by another process.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(state / "up.pid", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid, _, there = os.pread(file, 200, 0).decode(errors="replace").strip().partition(" ")
            raise Refused(
                f"the fleet in {state} is up already",
                why=f"process {pid or 'unknown'} runs it" + (f", and its endpoint is {there}" if there else ""),
                do="use that one, or stop it with Ctrl-C where it runs",
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {endpoint}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def not_up(state: Path) -> None:
    """Say that a fleet is up before anything of it is changed.

    Raises:
        Refused: it is.
    """
    with only_one(state, ""):
        pass


async def _answering(machine: Machine, keeping: asyncio.Task[None]) -> None:
    """Wait until each process answers."""
    mirror = machine.server.mirror
    wanted = {"control": machine.operator.control, "the gateway": f"http://127.0.0.1:{machine.gateway_port}"}
    if mirror is not None:
        wanted["the mirror"] = mirror.api
    path = {"control": "/v1/health", "the gateway": "/health", "the mirror": "/v1/health"}
    deadline = time.monotonic() + READY_S
    for name, base in wanted.items():
        async with Client(base, name=name, timeout_s=2.0) as client:
            while True:
                if keeping.done():
                    keeping.result()
                try:
                    if (await client.call("GET", path[name])).status < 500:
                        break
                except OperatorError:
                    if time.monotonic() > deadline:
                        raise
                await asyncio.sleep(0.05)


def _programs(machine: Machine) -> list[Program]:
    python, keys, logs = sys.executable, machine.state / "keys", machine.state / "logs"
    control = [
        *(python, "-m", "llmgw", "control", "--repo", machine.repo, "--branch", machine.branch),
        *("--cluster", machine.server.cluster, "--state", str(machine.state / "control")),
        *("--listen", f"127.0.0.1:{machine.control_port}", "--local-keys", str(keys / "hashes.json")),
        *(["--worktree"] if machine.worktree else []),
    ]
    gateway = [
        *(python, "-m", "llmgw", "gateway", "--control", machine.operator.control, "--name", machine.gateway),
        *("--key-file", str(keys / "gateway.key"), "--state", str(machine.state / "gateway")),
        *("--listen", f"127.0.0.1:{machine.gateway_port}"),
    ]
    told = [
        *("--control", machine.operator.control, "--node", machine.node, "--key-file", str(keys / "node.key")),
        *("--state", str(machine.state / "agent"), "--allow-file", str(machine.state / "allow.json")),
    ]
    agent = [python, "-m", "llmgw_agent", *told, "--stop-engines"]
    # No new request first, then no new order, so that engines which end are not missed by anybody.
    programs = [Program("control", control, logs / "control.log", stops=2)]
    if machine.server.mirror is not None:
        programs.append(Program("mirror", _mirror(machine), logs / "mirror.log", stops=3))
    stopping = [python, "-m", "llmgw_agent", "stop", *told]
    programs.append(Program("agent", agent, logs / "agent.log", stops=3, stop_s=40.0, after=stopping))
    programs.append(Program("gateway", gateway, logs / "gateway.log", stops=1, stop_s=15.0))
    return programs


def _mirror(machine: Machine) -> list[str]:
    entry = machine.server.mirror
    assert entry is not None, "only asked where there is one"
    return [
        *(sys.executable, "-m", "llmgw", "mirror", "serve", "--root", str(machine.state / "mirror")),
        *("--listen", _authority(entry.base, 8081), "--api", _authority(entry.api, 8082)),
        *(word for folder in machine.allow_files for word in ("--allow-files", str(folder))),
        *(word for host in machine.allow_hosts for word in ("--allow-host", host)),
    ]


def _authority(url: str, port: int) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or port}"


def _keys(machine: Machine) -> None:
    """Keys for this machine's own processes, made once, and their hashes for control."""
    folder = machine.state / "keys"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    hashes = {}
    for role in ("node", "gateway", "operator"):
        path = folder / f"{role}.key"
        if not path.exists():
            write_key(path, f"llmgw-{role}-{secrets.token_urlsafe(32)}")
        hashes[role] = hashlib.sha256(read_key(path).encode()).hexdigest()
    local = {
        "nodes": {machine.node: hashes["node"]},
        "gateways": {machine.gateway: hashes["gateway"]},
        "operators": {"here": hashes["operator"]},
    }
    (folder / "hashes.json").write_text(json.dumps(local), encoding="ascii")
    allow = [f"path:{path}" for path in machine.allow_paths]
    (machine.state / "allow.json").write_text(json.dumps({"allow": allow}), encoding="utf-8")


def _free(machine: Machine) -> None:
    """Say which port is in use before anything is started.

    Raises:
        Refused: one is.
    """
    ports = [
        ("control", machine.control_port, "--control-port"),
        ("the gateway", machine.gateway_port, "--gateway-port"),
    ]
    mirror = machine.server.mirror
    for url in (mirror.base, mirror.api) if mirror else ():
        host = urlsplit(url).hostname or ""
        if not is_loopback(host):
            raise Refused(
                f"the mirror of server.yaml is at {host}, and this machine would run it on loopback",
                why="llmgw up runs a whole fleet on one machine",
                do="write it with http://127.0.0.1:8081 and http://127.0.0.1:8082, or run each process by itself",
            )
        ports.append(("the mirror", urlsplit(url).port or 80, "mirror: in server.yaml"))
    for who, port, flag in ports:
        listener(who, ("127.0.0.1", port), flag=flag).close()


def free_ports(*preferred: int) -> list[int]:
    """The ports asked for, and in place of each that is taken another that is not."""
    held = []
    for port in preferred:
        try:
            held.append(listener("a process", ("127.0.0.1", port), flag=""))
        except Refused:
            held.append(listener("a process", ("127.0.0.1", 0), flag=""))
    ports = [int(sock.getsockname()[1]) for sock in held]
    for sock in held:
        sock.close()
    return ports
