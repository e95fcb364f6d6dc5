"""What a command costs before it does anything."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.row import Row, least

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fleets import NOW, SETTLED, node

from llmgw import __version__
from llmgw.catalog.check import read_fleet
from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw.core.wanted import judge
from llmgw.sources.bare import make_bare
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_files import to_files

AUTHOR = "bench <bench@localhost>"

MODEL = """name: m{n}
context_length: 4096
source: {{from: /models/m{n}.gguf}}
profiles: [{{name: cpu, engine: llamacpp, replicas: 1, memory_gib: 4}}]
"""


def rows() -> Iterator[Row]:
    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)

    python = least(lambda: run("-c", "pass"), times=7) * 1000
    help_ = least(lambda: run("-m", "llmgw", "--help"), times=7) * 1000
    yield Row("cli: llmgw --help, over python alone", help_, "ms CPU", "python", python)
    yield Row("cli: llmgw --help", help_, "ms CPU", must=250)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Path(folder)
        (fleet / "catalog").mkdir()
        (fleet / "server.yaml").write_text("schema: 1\ncluster: lab\nnodes: [{name: n1, address: 10.0.0.1}]\n")
        for n in range(100):
            (fleet / f"catalog/m{n}.yaml").write_text(MODEL.format(n=n))
        spent = least(lambda: run("-m", "llmgw", "validate", folder), times=5) * 1000
        yield Row("cli: llmgw validate, 100 files", spent, "ms CPU", must=700)
    for models, nodes, must in ((100, 50, 1.5), (1000, 500, 10)):
        with tempfile.TemporaryDirectory() as folder:
            repo = Path(folder) / "fleet.git"
            recorded(repo, models, nodes)
            words = ("-m", "llmgw", "plan", "--repo", str(repo), "--observed", "branch")
            spent = least(lambda words=words: run(*words), times=3)
            yield Row(f"cli: llmgw plan, {models:,} new models, {nodes:,} nodes", spent, "s CPU", must=must)


def recorded(repo: Path, models: int, nodes: int) -> None:
    """A fleet of empty nodes as its control has written it down, and a commit that asks for models."""
    names = [f"n{n}" for n in range(nodes)]
    listed = ", ".join(f"{{name: {name}, address: 10.0.0.1}}" for name in names)
    server = f"schema: 1\ncluster: lab\nnodes: [{listed}]\n".encode()
    files = {f"catalog/m{n}.yaml": MODEL.format(n=n).encode() for n in range(models)}
    make_bare(repo, {"server.yaml": server, **files}, message="first\n", author=AUTHOR, now=1.0)
    wanted = judge(read_fleet({"server.yaml": server}), commit="a" * 40, committed_at=1, last=None)
    assert wanted is not None, "its server.yaml is good"
    seen = Observed(tuple(node(name) for name in sorted(names)))
    said = status(wanted, seen, decide(wanted, seen, SETTLED, NOW), NOW)
    branch = StatusBranch(str(repo), "lab", repo.parent / "status")
    branch.write(to_files(said, wanted, version=__version__), subject="empty", author=AUTHOR, now=NOW)
    branch.close()
