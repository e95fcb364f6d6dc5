"""The private copy of a remote repository: small, swept, made anew when it is damaged, never missed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.git_http import Fault, GitServer
from fakes.private_copy import copies, follow, fsck, shallow
from fakes.real_git import SERVER_YAML, Fleet
from llmgw.errors import Refused, Unreachable
from llmgw.sources.access import Limits
from llmgw.sources.git import Source, open_source
from llmgw.units import KIB

pytestmark = pytest.mark.needs_git


def test_the_first_fetch_takes_no_history(fleet: Fleet, source: Source, tmp_path: Path):
    fleet.grow(50)

    source.poll()

    assert shallow(tmp_path / "state") == 1
    with pytest.raises(Refused, match="what is held of its history ends"):
        source.at("HEAD~1")


def test_history_is_held_from_the_first_fetch_on(fleet: Fleet, source: Source):
    first = source.poll()
    fleet.push({"catalog/b.yaml": b"name: b\n"})
    source.poll()

    assert source.at("HEAD~1") == first
    assert source.at("main").commit == source.at("HEAD").commit
    assert source.at(first.commit[:8]) == first


def test_what_was_fetched_outlives_the_process(fleet: Fleet, server: GitServer, tmp_path: Path):
    source = follow(server, tmp_path / "state")
    before = source.poll()
    source.close()
    server.fault = Fault(status=500)

    again = follow(server, tmp_path / "state")

    assert again.held() == before
    with pytest.raises(Unreachable):
        again.poll()
    assert again.held() == before
    again.close()


def test_two_processes_do_not_share_a_copy(fleet: Fleet, server: GitServer, source: Source, tmp_path: Path):
    with pytest.raises(Refused, match="is in use") as refused:
        follow(server, tmp_path / "state")

    assert f"process {os.getpid()} holds" in refused.value.why


def test_two_branches_and_two_repositories_share_a_state_folder(
    fleet: Fleet, server: GitServer, source: Source, tmp_path: Path
):
    Fleet(tmp_path, "other.git").push({"server.yaml": SERVER_YAML})
    fleet.push({}, branch="next")
    others = [
        open_source(server.url("fleet.git"), branch="next", state=tmp_path / "state"),
        open_source(server.url("other.git"), branch="main", state=tmp_path / "state"),
    ]

    commits = {each.poll().commit for each in (source, *others)}

    assert len(commits) == 3
    for each in others:
        each.close()


def test_case_5_a_fetch_that_is_cut_leaves_nothing_behind(
    fleet: Fleet, server: GitServer, source: Source, tmp_path: Path
):
    source.poll()
    size = sum(path.stat().st_size for path in (tmp_path / "state").rglob("*"))
    fleet.push({"catalog/b.yaml": os.urandom(100_000)})

    for cut in range(50):
        server.fault = Fault(cut_after=cut * 2_000, only="/git-upload-pack")
        with pytest.raises(Unreachable):
            source.poll()

    assert sum(path.stat().st_size for path in (tmp_path / "state").rglob("*")) < size + 10 * KIB
    server.fault = None
    assert "catalog/b.yaml" in source.poll().files


def test_case_6_a_lock_that_a_crash_left_is_no_outage(fleet: Fleet, source: Source, tmp_path: Path):
    source.poll()
    (copy,) = copies(tmp_path / "state")
    for name in ("refs/heads/main.lock", "shallow.lock", "packed-refs.lock", "config.lock"):
        (copy / name).touch()
    commit = fleet.push({"catalog/b.yaml": b"name: b\n"})

    assert source.poll().commit == commit


@pytest.mark.parametrize(
    "what",
    [
        "a cut pack",
        "a lost pack",
        "a lost folder",
        "a lost ref",
        "a broken ref",
        "a broken config",
        "no files at all",
        "a wrong shallow",
    ],
)
def test_a_copy_that_was_damaged_is_made_anew(fleet: Fleet, server: GitServer, tmp_path: Path, what: str):
    source = follow(server, tmp_path / "state")
    source.poll()
    commit = fleet.push({"catalog/b.yaml": b"name: b\n"})
    (copy,) = copies(tmp_path / "state")
    pack = next(copy.glob("objects/pack/*.pack"))
    match what:
        case "a cut pack":
            pack.chmod(0o600)
            pack.write_bytes(pack.read_bytes()[:100])
        case "a lost pack":
            pack.unlink()
        case "a lost folder":
            shutil.rmtree(copy / "objects")
        case "a lost ref":
            (copy / "refs/heads/main").unlink()
        case "a broken ref":
            (copy / "refs/heads/main").write_bytes(b"\0" * 41)
        case "a broken config":
            (copy / "config").write_bytes(b"[core\n")
        case "no files at all":
            shutil.rmtree(copy)
        case "a wrong shallow":
            (copy / "shallow").write_text("nonsense\n")

    found = source.poll()
    source.close()
    # A process that remembers nothing reads all of it.
    again = follow(server, tmp_path / "state")

    assert again.poll() == found
    assert found.commit == commit
    assert list(found.files) == ["catalog/a.yaml", "catalog/b.yaml", "server.yaml"]
    fsck(tmp_path / "state")
    again.close()


def test_what_a_killed_process_left_is_swept(fleet: Fleet, server: GitServer, tmp_path: Path):
    source = follow(server, tmp_path / "state")
    source.poll()
    source.close()
    (copy,) = copies(tmp_path / "state")
    (copy / "objects/tmp_pack_abc").write_bytes(b"x" * 1000)
    shutil.copytree(copy, copy.parent / "copy-0")
    (copy.parent / "making").mkdir()

    again = follow(server, tmp_path / "state")

    assert copies(tmp_path / "state") == [copy]
    assert not (copy / "objects/tmp_pack_abc").exists()
    assert not (copy.parent / "making").exists()
    again.close()


def test_a_repository_over_the_budget_is_refused_and_the_last_good_stays(
    fleet: Fleet, server: GitServer, tmp_path: Path
):
    source = follow(server, tmp_path / "state", Limits(pack_bytes=200 * KIB))
    before = source.poll()
    fleet.push({"weights.bin": os.urandom(300 * KIB)})

    with pytest.raises(Refused) as refused:
        source.poll()

    assert "is over 204.8 kB without its history" in refused.value.why
    assert source.held() == before
    assert len(copies(tmp_path / "state")) == 1
    fleet.push({"weights.bin": None})
    # The history has it still; a copy without history has not.
    assert list(source.poll().files) == ["catalog/a.yaml", "server.yaml"]
    source.close()


def test_120_fetches_stay_within_few_descriptors(fleet: Fleet, server: GitServer, tmp_path: Path):
    # In a process of its own, which may open 64 files: the library keeps four
    # for each pack it reads, and a fetch makes a pack.
    program = """
import json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from llmgw.sources.git import open_source
source = open_source(sys.argv[1], branch="main", state=Path(sys.argv[2]))
for line in sys.stdin:
    found = source.poll()
    print(json.dumps([found.commit, len(found.files), found.rewritten]), flush=True)
source.close()
"""
    server.protocol_2 = False
    state = tmp_path / "state"
    stream = b"".join(one_change(n, fleet.time + n) for n in range(121))
    fleet.bare("fast-import", "--quiet", stdin=stream)
    commits = fleet.bare("rev-list", "--reverse", "main").split()[1:]
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, server.url("fleet.git"), str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as polling:
        assert polling.stdin
        assert polling.stdout
        for n, commit in enumerate(commits):
            (fleet.path / "refs/heads/main").write_text(commit + "\n")
            polling.stdin.write("\n")
            polling.stdin.flush()
            assert json.loads(polling.stdout.readline()) == [commit, 2, False], n
        polling.stdin.close()
    assert polling.returncode == 0
    (copy,) = copies(state)
    assert len(list(copy.glob("objects/pack/*.pack"))) <= 32
    fsck(state)


def one_change(n: int, time: int) -> bytes:
    origin = "from refs/heads/main^0\n" if n == 0 else ""
    return (
        f"commit refs/heads/main\ncommitter A <a@a> {time} +0000\ndata 1\nx\n{origin}"
        f"M 100644 inline catalog/a.yaml\ndata {len(str(n))}\n{n}\n\n"
    ).encode()
