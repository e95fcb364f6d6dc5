"""A control of its own for each test: a real repository, real sockets, and nodes that say what they are told."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from llmgw.control.app import ControlConfig, serve
from llmgw.net.http import Answer, Client
from llmgw.sources.bare import commit_files, make_bare
from llmgw.sources.status_branch import StatusBranch
from llmgw.units import GIB
from llmgw_agent.protocol import (
    Action,
    Dossier,
    InstalledEngine,
    Inventory,
    Orders,
    Phase,
    ReplicaReport,
    Report,
)

MODEL = """name: {name}
context_length: 2048
source: {{from: /models/{name}.gguf}}
profiles: [{{name: cpu, engine: llamacpp, replicas: {replicas}, memory_gib: 1, cpu_cores: 1}}]
"""
AUTHOR = "Ana <ana@example.invalid>"


def a_model(name: str = "m", replicas: int = 1) -> bytes:
    """A catalog file of a model that is read in place."""
    return MODEL.format(name=name, replicas=replicas).encode()


def sha(key: str) -> str:
    """How server.yaml knows a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def a_server(*nodes: str, **more: object) -> bytes:
    """server.yaml with these nodes; each caller's key is its role and name."""
    fields: dict[str, object] = {
        "schema": 1,
        "cluster": "lab",
        "nodes": [{"name": n, "address": "127.0.0.1", "key_sha256": sha(f"node-{n}")} for n in nodes or ("n1",)],
        "gateways": [{"name": "g1", "key_sha256": sha("gateway-g1")}],
        "operators": [{"name": "ana", "key_sha256": sha("operator-ana")}],
        **more,
    }
    return json.dumps(fields).encode()


@dataclass
class Site:
    """The repository, the folder of keys, and the running control's address."""

    folder: Path
    port: int = 0
    clients: list[Client] = field(default_factory=list)

    @property
    def repo(self) -> Path:
        return self.folder / "fleet.git"

    def push(self, message: str = "change", **files: bytes | None) -> str | None:
        """Commit catalog files by name, `server=` as server.yaml, and whatever has a slash in it by its path."""
        named = {"server": "server.yaml"}
        changes = {n if "/" in n else named.get(n, f"catalog/{n}.yaml"): data for n, data in files.items()}
        return commit_files(self.repo, changes, message=f"{message}\n", author=AUTHOR, now=time.time())

    def client(self, role: str, name: str) -> Client:
        """A caller with its own key."""
        path = self.folder / f"{role}-{name}.key"
        path.write_text(f"{role}-{name}")
        client = Client(f"http://127.0.0.1:{self.port}", name="control", key_file=path, timeout_s=30.0)
        self.clients.append(client)
        return client

    def node(self, name: str = "n1", **inventory: object) -> Node:
        """A node that has not reported yet."""
        return Node(name, self.client("node", name), inventory)

    def status(self) -> dict[str, str]:
        """The files of the status branch."""
        branch = StatusBranch(str(self.repo), "lab", self.folder / "reader")
        try:
            tree = branch.read()
            return {p: data.decode() for p, data in tree.files.items()} if tree else {}
        finally:
            branch.close()


@dataclass
class Node:
    """A node that obeys its orders at once, and says so."""

    name: str
    client: Client
    inventory: dict[str, object]
    obeyed: tuple[int, int] = (0, 0)
    replicas: dict[tuple[str, int], ReplicaReport] = field(default_factory=dict)
    orders: Orders | None = None
    starts: int = 0
    fails_above: int | None = None
    """Tokens of context that an engine here does not come up with. None: everything comes up."""

    def report(self) -> Report:
        has = {"hostname": self.name, "cpu_cores": 8, "memory_bytes": 16 * GIB, "allow": ("path:/models",)}
        engines = (InstalledEngine("llamacpp", accelerators=("cpu",)),)
        return Report(
            self.name,
            "boot",
            obeyed_epoch=self.obeyed[0],
            obeyed_seq=self.obeyed[1],
            inventory=Inventory(**{**has, "engines": engines, **self.inventory}),
            replicas=tuple(self.replicas[k] for k in sorted(self.replicas)),
            versions=(),
        )

    async def call(self, report: Report | None = None) -> Answer:
        body = msgspec.json.encode(report or self.report())
        return await self.client.call("POST", "/agent/v1/report", body=body)

    async def obey(self) -> Orders | None:
        """Report, and do at once what comes back. None: nothing new."""
        answer = await self.call()
        if answer.status == 204:
            return None
        assert answer.status == 200, answer
        self.orders = orders = msgspec.json.decode(answer.body, type=Orders)
        self.obeyed = (orders.epoch, orders.seq)
        asked = {(r.id, r.generation): r for r in orders.replicas}
        for key, order in asked.items():
            if order.action is Action.RUN and key not in self.replicas:
                self.starts += 1
                fails = self.fails_above is not None and order.spec.context_tokens > self.fails_above
                self.replicas[key] = ReplicaReport(
                    *key,
                    Phase.FAILED if fails else Phase.READY,
                    attempts=order.attempt + fails,
                    dossier=Dossier("out_of_memory", "it took more memory than there is") if fails else None,
                    fingerprint=order.fingerprint,
                    port=7500 + self.starts,
                    key="engine-secret",
                    claim=order.spec.claim,
                    parallel=order.spec.parallel,
                    pid=4000 + self.starts,
                )
        self.replicas = {k: r for k, r in self.replicas.items() if k in asked and asked[k].action is not Action.DRAIN}
        return orders

    async def serve(self) -> None:
        """Obey for ever, as an agent does."""
        while True:
            await self.obey()


@asynccontextmanager
async def a_control(folder: Path, *, files: dict[str, bytes] | None = None, **config: object) -> AsyncIterator[Site]:
    """A running control. Its repository is made where there is none yet."""
    site = Site(folder)
    if not site.repo.exists():
        named = {"server.yaml" if n == "server" else f"catalog/{n}.yaml": d for n, d in (files or {}).items()}
        make_bare(site.repo, {"server.yaml": a_server(), **named}, message="first\n", author=AUTHOR, now=time.time())
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    settings = ControlConfig(
        **{"repo": str(site.repo), "cluster": "lab", "state": folder / "state", "listen": ("127.0.0.1", 0), **config}
    )
    running = asyncio.create_task(serve(settings, ready=ready.set_result))
    await asyncio.wait({running, asyncio.ensure_future(ready)}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    site.port = ready.result()[1]
    try:
        yield site
    finally:
        for client in site.clients:
            await client.close()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def until(check, *, within_s: float = 30.0):
    """The first true answer of a check, asked again and again."""
    deadline = time.monotonic() + within_s
    while True:
        found = check()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.05)
