"""A fleet's working copy, with a real git, as a person sits before it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import fleets
import pytest

from fakes.real_git import Git
from llmgw.cli.main import run
from llmgw.core.decide import decide
from llmgw.core.status import status
from llmgw.core.wanted import judge
from llmgw.sources.reading import catalog_of
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_files import to_files
from llmgw.sources.worktree import WorktreeSource

SERVER = b"""\
schema: 1
cluster: lab
nodes:
  - {name: n1, address: 10.0.0.5}   # the old one
  - name: n2
    address: 10.0.0.6
"""
CODER = b"""\
# The coder's model.
name: coder
aliases: [code]
source: {from: /m.gguf}
context_length: 4096   # tokens
profiles:
  - name: gpu          # the cards
    engine: llamacpp
    gpu: {class: l40s-48g, count: 1}
    args: [--jinja, -ngl, "99"]
    replicas: 2        # one a node
    memory_gib: 1
    cpu_cores: 1
  - name: slow
    engine: llamacpp
    replicas: 1
    priority: 10
    memory_gib: 1
    cpu_cores: 1
"""

HELD = b"""\
model: coder
source:
  from: "hf://org/coder@main/*Q4*.gguf"
  version: v1
commit: 0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f
files:
  - path: coder-Q4.gguf
    bytes: 5000
"""
"""The lock of a coder from a hub."""


class Copy:
    """A working copy with one commit, and the commands run in it."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.git = Git(root)
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        """The exit code, and what was printed."""
        self._capsys.readouterr()
        code = run([*words, "--repo", str(self.root)])
        said = self._capsys.readouterr()
        return int(code), said.out, said.err

    def changed(self, path: str = "catalog/coder.yaml") -> list[str]:
        """The lines of a file that differ from the commit: `-` and `+`, without the file's name."""
        lines = self.git("diff", "--unified=0", "--", path).splitlines()
        return [line for line in lines if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")]

    def clean(self) -> bool:
        """Whether everything is as it was committed."""
        return self.git("status", "--porcelain") == ""

    def text(self, path: str = "catalog/coder.yaml") -> str:
        return (self.root / path).read_text()

    def from_a_hub(self) -> None:
        """The coder's weights are had by name, and locked, by a fleet with a mirror."""
        mirror = 'mirror: {base: "http://10.0.0.2:1", api: "http://10.0.0.2:2", retain: 14d}\n'
        away = CODER.replace(b"/m.gguf", b"hf://org/coder@main/*Q4*.gguf, version: v1")
        server = SERVER + mirror.encode()
        self.git.commit({"catalog/coder.yaml": away, "server.yaml": server, "locks/coder.yaml": HELD}, "From a hub")

    def see(self, **phases: list[str]) -> None:
        """Write a status branch that says this of the coder: `gpu=["ready"]`."""
        source = WorktreeSource(self.root)
        wanted = judge(catalog_of(source.poll()), commit="c" * 40, committed_at=0, last=None)
        seen = fleets.fleet(wanted.models["coder"].model, "n1", "n2", **phases)
        plan = decide(wanted, seen, fleets.SETTLED, fleets.NOW)
        files = to_files(status(wanted, seen, plan, fleets.NOW), wanted, version="0.1.0")
        branch = StatusBranch(str(self.root), "lab", self.root / ".git")
        branch.write(files, subject="as it is", author="llmgw <llmgw@lab>", now=fleets.NOW)
        branch.close()


@pytest.fixture
def at_home(monkeypatch):
    """A person whose git knows them, and whose shell knows no control."""
    for name in [n for n in os.environ if n.startswith(("LLMGW_CONTROL", "LLMGW_KEY", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(scope="session")
def one_commit(tmp_path_factory):
    """Made once, and only copied."""
    git = Git(tmp_path_factory.mktemp("one_commit"))
    git("init", "--template=", "-b", "main", ".")
    git("config", "user.name", "Ana")
    git("config", "user.email", "ana@lab")
    git.commit({"server.yaml": SERVER, "catalog/coder.yaml": CODER}, "A fleet")
    return git.at


@pytest.fixture
def copy(one_commit, tmp_path, capsys, at_home):
    root = tmp_path / "fleet"
    shutil.copytree(one_commit, root)
    return Copy(root, capsys)
