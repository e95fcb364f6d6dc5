"""Writers that meet: whoever is told that a commit was made finds it in the history."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from fakes.git_http import GitServer
from fakes.real_git import Fleet
from llmgw.errors import Unreachable
from llmgw.sources.bare import commit_files
from llmgw.sources.status_branch import StatusBranch

pytestmark = pytest.mark.needs_git

REF = "refs/heads/llmgw/status/lab"
BOTH_WAYS = pytest.mark.parametrize(
    ("over_http", "count"), [pytest.param(False, 15, id="here"), pytest.param(True, 8, id="over http")]
)
WRITER = """
import sys
from pathlib import Path
from llmgw.errors import Unreachable
from llmgw.sources.status_branch import StatusBranch
url, state, name, count = sys.argv[1:]
status = StatusBranch(url, "lab", Path(state))
sys.stdin.readline()
for n in range(int(count)):
    made = None
    while made is None:
        try:
            made = status.write({"README.md": f"{name} {n}".encode()}, subject=f"{name} {n}", author="a <a@a>", now=n)
        except Unreachable as e:
            assert e.why.endswith("each of the 5 times"), e
    print(made, flush=True)
status.close()
"""


def history(fleet: Fleet, ref: str = REF) -> list[str]:
    return fleet.bare("rev-list", "--first-parent", ref).split()


def write_all(url: str, state: Path, name: str, count: int, begin: threading.Barrier) -> list[str]:
    status = StatusBranch(url, "lab", state)
    made: list[str] = []
    begin.wait()
    while len(made) < count:
        text = f"{name} {len(made)}"
        # Losing five times over is an answer too; the next write is another chance.
        with suppress(Unreachable):
            commit = status.write({"README.md": text.encode()}, subject=text, author="a <a@a>", now=1)
            assert commit is not None
            made.append(commit)
    status.close()
    return made


@pytest.mark.parametrize(
    ("over_http", "count"), [pytest.param(False, 15, id="here"), pytest.param(True, 8, id="over http")]
)
def test_no_commit_of_two_threads_is_lost_or_made_twice(
    fleet: Fleet, server: GitServer, tmp_path: Path, over_http: bool, count: int
):
    url = server.url("fleet.git") if over_http else str(fleet.path)
    begin = threading.Barrier(2)

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write_all, url, tmp_path / f"state{n}", f"w{n}", count, begin) for n in range(2)]
        made = [commit for each in writing for commit in each.result()]

    assert sorted(history(fleet)) == sorted(made)
    assert len(set(made)) == 2 * count
    fleet.bare("fsck", "--strict", "--no-dangling")


@pytest.mark.parametrize(
    ("over_http", "count"), [pytest.param(False, 15, id="here"), pytest.param(True, 8, id="over http")]
)
def test_no_commit_of_two_processes_is_lost_while_git_packs_the_refs(
    fleet: Fleet, server: GitServer, tmp_path: Path, over_http: bool, count: int
):
    url = server.url("fleet.git") if over_http else str(fleet.path)
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER, url, str(tmp_path / f"state{n}"), f"w{n}", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        while writer.poll() is None:
            fleet.bare("pack-refs", "--all")
            # Between two of their commits, and not so often that they hardly come to one.
            with suppress(subprocess.TimeoutExpired):
                writer.wait(0.02)
    made = [line for writer in writers for line in writer.communicate()[0].split()]

    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(history(fleet)) == sorted(made)
    assert len(set(made)) == 2 * count
    fleet.bare("fsck", "--strict", "--no-dangling")


def test_no_push_of_a_person_is_lost_under_commits_in_place(fleet: Fleet):
    made: list[str] = []
    begin = threading.Barrier(2)

    def commit() -> None:
        begin.wait()
        while len(made) < 40:
            ours = {"catalog/ours.yaml": b"%d" % len(made)}
            with suppress(Unreachable):
                commit = commit_files(fleet.path, ours, message="ours", author="a <a@a>", now=1)
                assert commit is not None
                made.append(commit)

    committing = threading.Thread(target=commit)
    committing.start()
    begin.wait()
    pushed: list[str] = []
    while len(pushed) < 8 or committing.is_alive():
        fleet.clone("fetch", "-q", "origin")
        fleet.clone("reset", "-q", "--hard", "origin/main")
        mine = fleet.clone.commit({f"catalog/theirs{len(pushed)}.yaml": b"theirs"}, "theirs")
        if fleet.clone.tries("push", "-q", "origin", "main"):
            pushed.append(mine)
    committing.join()

    everything = history(fleet, "main")
    assert set(made) | set(pushed) <= set(everything)
    assert fleet.bare("ls-tree", "--name-only", "main:catalog").split() == sorted(
        ["a.yaml", "ours.yaml", *(f"theirs{n}.yaml" for n in range(len(pushed)))]
    )
