"""The repository and the status branch: on this machine, and over HTTP as a remote one is read and written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path

from bench.catalog import SERVER, TEXT
from bench.row import Row, least

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from commits import counted
from machine import Machine
from msgspec import structs
from world import World

from fakes.git_http import GitServer
from llmgw.core.promised import followed as followed_plan
from llmgw.core.status import status
from llmgw.core.wanted import Wanted, judge
from llmgw.sources.bare import commit_files, make_bare
from llmgw.sources.git import open_source
from llmgw.sources.reading import catalog_of
from llmgw.sources.status_branch import StatusBranch

FILES = 5000
MODELS = 1000
COMMITS = 50_000
PASSES = 1000
AUTHOR = "bench <bench@localhost>"
REF = "refs/heads/llmgw/status/lab"

PUSH = """
import json, resource, sys
from pathlib import Path
from bench.row import least
from bench.sources import pushes
from llmgw.sources.status_branch import StatusBranch
branch = StatusBranch(sys.argv[1], "lab", Path(sys.argv[2]))
push = pushes(branch)
push()
spent = least(push, times=10)
print(json.dumps([spent * 1000, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
"""In a process of its own: what it needs of memory is what pushing needs."""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as url:
        repo = Path(folder) / "fleet.git"
        files = {f"catalog/{n % 50}/m{n}.yaml": TEXT.format(n=n, team=1).encode() for n in range(FILES)}
        make_bare(repo, {"server.yaml": SERVER, **files}, message="first\n", author=AUTHOR, now=1.0)
        subprocess.run(["git", "config", "http.receivepack", "true"], cwd=repo, check=True)
        yield from followed(repo, str(repo), Path(folder) / "here", "on this machine")
        yield from followed(repo, url, Path(folder) / "there", "over HTTP")
        yield from pushed(repo, url, Path(folder))
    yield Row(f"sources: status commits of {PASSES:,} idle passes", idle_commits(), "commits", must=0)


@contextmanager
def served(root: Path) -> Iterator[str]:
    """A real git over HTTP in another process, so that what it spends is not counted here."""
    mine, theirs = Pipe()
    server = get_context("spawn").Process(target=serve, args=(root, theirs), daemon=True)
    server.start()
    try:
        yield mine.recv()
    finally:
        mine.send("end")
        server.join(20)


def serve(root: Path, pipe: Connection) -> None:
    """Until it is told to end."""
    with GitServer(root) as server:
        pipe.send(server.url("fleet.git"))
        pipe.recv()


def followed(repo: Path, at: str, state: Path, where: str) -> Iterator[Row]:
    """What following a repository costs, where nothing changed and where one file did."""
    source = open_source(at, branch="main", state=state)
    held = {f"model-{n}/2026-11": () for n in range(FILES)}
    last = judge(catalog_of(source.poll()), commit="a" * 40, committed_at=0, last=None, held=held)
    yield Row(
        f"sources: a look at an unchanged repository, {where}", least(source.poll, times=20) * 1000, "ms CPU", must=5
    )
    turn = iter(range(10_000, 10_100))
    spent = []
    for _ in range(5):
        data = TEXT.format(n=next(turn), team=len(where)).encode()
        commit_files(repo, {"catalog/7/m7.yaml": data}, message="one\n", author=AUTHOR, now=2.0)

        def changed() -> None:
            found = source.poll()
            assert judge(catalog_of(found), commit=found.commit, committed_at=0, last=last, held=held)

        spent.append(least(changed, times=1))
    name = f"sources: one of {FILES:,} files changed, fetched, read, checked and judged, {where}"
    yield Row(name, min(spent) * 1000, "ms CPU", must=120)
    source.close()


def pushed(repo: Path, url: str, folder: Path) -> Iterator[Row]:
    """What a status commit costs where many have been made."""
    branch = StatusBranch(str(repo), "lab", folder / "status")
    write = pushes(branch)
    write()
    yield Row(f"sources: a status commit of {MODELS:,} models", least(write, times=10) * 1000, "ms CPU", must=120)
    branch.close()
    grow(repo)
    words = [sys.executable, "-c", PUSH, url, str(folder / "pushing")]
    out = subprocess.run(
        words, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    spent, memory = json.loads(out.stdout)
    what = f"a status push over HTTP, {MODELS:,} models on a branch of {COMMITS:,} commits"
    yield Row(f"sources: {what}", spent, "ms CPU", must=120)
    yield Row(f"sources: memory of {what}", memory, "MiB", must=150)


class pushes:  # noqa: N801 - called as a function is
    """A commit of a status in which one model and the page changed, at each call."""

    def __init__(self, branch: StatusBranch) -> None:
        self.branch, self.turn = branch, 0
        self.pages = {f"models/{n % 250:02x}/m{n}.yaml": b"state: ready\n" for n in range(MODELS)}

    def __call__(self) -> None:
        self.turn += 1
        changed = {"README.md": f"{self.turn}".encode(), "models/07/m7.yaml": f"state: {self.turn}\n".encode()}
        self.branch.write({**self.pages, **changed}, subject=f"{self.turn}", author=AUTHOR, now=1e9 + self.turn)


def grow(repo: Path) -> None:
    """Give the status branch its commits, each with a page of its own."""
    lines = []
    for n in range(COMMITS):
        page = f"{n}"
        lines.append(f"commit {REF}\ncommitter {AUTHOR} {1_000_000_000 - COMMITS + n} +0000\ndata 1\nx\n")
        lines.append(f"from {REF}^0\n" if n == 0 else "")
        lines.append(f"M 100644 inline README.md\ndata {len(page)}\n{page}\n")
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=repo, input="".join(lines).encode(), check=True)


def idle_commits() -> int:
    """How often the status of a fleet that is as asked changes: each time is a commit."""
    wanted = counted(2, 2, context=4096).wanted
    world = World(1, [Machine(name) for name in ("n1", "n2", "n3")])
    world.luck.calm = True
    said = [told(world, wanted) for _ in range(50 + PASSES)]
    assert world.plan is not None
    assert world.plan.empty
    return sum(before != now for before, now in pairwise(said[50:]))


def told(world: World, wanted: Wanted) -> str:
    """The digest of what a pass of control would commit."""
    plan = world.one_pass(wanted)
    world.memory = structs.replace(
        world.memory, promise=followed_plan(wanted, world.seen, world.before, plan, world.now)
    )
    plan = structs.replace(plan, memory=world.memory)
    world.tick()
    return status(wanted, world.seen, plan, world.now).digest
