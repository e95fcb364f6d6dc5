"""The repository and the status branch, where they are on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.catalog import SERVER, TEXT
from bench.row import Row, least
from llmgw.sources.bare import commit_files, make_bare
from llmgw.sources.git import open_source
from llmgw.sources.reading import catalog_of
from llmgw.sources.status_branch import StatusBranch

FILES = 1000
AUTHOR = "bench <bench@localhost>"


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        repo = Path(folder) / "fleet.git"
        files = {f"catalog/{n % 20}/m{n}.yaml": TEXT.format(n=n, team=1).encode() for n in range(FILES)}
        make_bare(repo, {"server.yaml": SERVER, **files}, message="first\n", author=AUTHOR, now=1.0)
        source = open_source(str(repo), branch="main", state=Path(folder) / "state")
        catalog_of(source.poll())
        yield Row("sources: a look at an unchanged repository", least(source.poll, times=20) * 1000, "ms CPU", must=5)
        turn = iter(range(10_000, 10_010))

        def changed() -> None:
            n = next(turn)
            data = TEXT.format(n=n, team=1).encode()
            commit_files(repo, {"catalog/7/m7.yaml": data}, message="one\n", author=AUTHOR, now=2.0)
            catalog_of(source.poll())

        name = f"sources: one of {FILES:,} files committed, read and checked"
        yield Row(name, least(changed, times=5) * 1000, "ms CPU", must=120)
        source.close()
        branch = StatusBranch(str(repo), "lab", Path(folder) / "status")
        pages = {f"models/{n % 250:02x}/m{n}.yaml": b"state: ready\n" for n in range(FILES)}

        def write() -> None:
            n = next(turn_b)
            branch.write({**pages, "README.md": f"{n}".encode()}, subject=f"{n}", author=AUTHOR, now=3.0 + n)

        turn_b = iter(range(1000))
        write()
        yield Row(f"sources: a status commit of {FILES:,} models", least(write, times=10) * 1000, "ms CPU", must=120)
        branch.close()
