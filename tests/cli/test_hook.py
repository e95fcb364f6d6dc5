"""Hooks of people's repositories: real pushes and commits, with the real git."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.real_git import Fleet

pytestmark = pytest.mark.needs_git

HOOKS = Path(__file__).resolve().parent.parent.parent / "hooks"
SERVER = b"""\
schema: 1
cluster: lab
nodes: [{name: n1, address: 10.0.0.5}]
policy: {max_removals: 1}
"""


def a_model(name: str, replicas: int = 1) -> bytes:
    return f"""\
name: {name}
source: {{from: /models/{name}.gguf}}
context_length: 2048
profiles: [{{name: cpu, engine: llamacpp, memory_gib: 1, cpu_cores: 1, parallel: 1, replicas: {replicas}}}]
""".encode()


@pytest.fixture
def served(tmp_path: Path) -> Fleet:
    """A bare repository with the hook that judges, and what is pushed to it."""
    made = Fleet(tmp_path)
    (made.path / "hooks").mkdir(exist_ok=True)
    shutil.copy(HOOKS / "pre-receive", made.path / "hooks")
    return made


def push(fleet: Fleet, files: dict[str, bytes | None], message: str = "a change", to: str = "main") -> tuple[bool, str]:
    """Whether it was taken, and what the server said."""
    fleet.time += 10
    fleet.clone.commit(files, message, fleet.time)
    return pushed(fleet, f"HEAD:refs/heads/{to}")


def pushed(fleet: Fleet, what: str, **more: str) -> tuple[bool, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["git", "push", "-q", "origin", what],
        cwd=fleet.clone.at,
        env={"PATH": path, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C", **more},
        capture_output=True,
        check=False,
        timeout=120,
    )
    return done.returncode == 0, done.stderr.decode()


def test_a_push_is_judged_before_it_is_taken(served: Fleet) -> None:
    """One repository's life, since each push starts the program."""
    four = {f"catalog/{n}.yaml": a_model(n) for n in "abcd"}
    taken, said = push(served, {"server.yaml": SERVER, **four})
    assert taken, said
    assert "4 models to look at" in said

    before = served.bare("rev-parse", "main")
    taken, said = push(served, {"catalog/a.yaml": a_model("a").replace(b"cpu_cores", b"cpu_kores")})
    assert not taken
    assert "catalog/a.yaml:4" in said
    assert "cpu_cores" in said
    assert "would bring 1 problem into the fleet's files" in said
    assert served.bare("rev-parse", "main") == before

    served.clone("reset", "-q", "--hard", "HEAD~1")
    taken, said = pushed(served, "HEAD~0:refs/heads/a-branch-of-mine")
    assert taken, "only what control follows is judged"

    taken, said = pushed(served, ":refs/heads/main")
    assert not taken
    assert "is not removed" in said


def test_a_push_that_control_would_hold_is_refused_with_the_line_that_lifts_it(served: Fleet) -> None:
    six = {f"catalog/{n}.yaml": a_model(n) for n in "abcdef"}
    assert push(served, {"server.yaml": SERVER, **six})[0]
    gone: dict[str, bytes | None] = {f"catalog/{n}.yaml": None for n in "abcde"}

    taken, said = push(served, gone)

    assert not taken
    assert "Llmgw-Allow-Removals: 5" in said
    served.clone("commit", "-q", "--amend", "-m", "take them out\n\nLlmgw-Allow-Removals: 5")
    assert pushed(served, "HEAD:refs/heads/main")[0]


def test_who_mends_one_of_two_broken_files_is_not_kept_from_it(served: Fleet) -> None:
    (served.path / "hooks/pre-receive").rename(served.path / "hooks/off")
    broken = {f"catalog/{n}.yaml": b"name: [" for n in "ab"}
    assert push(served, {"server.yaml": SERVER, **broken})[0]
    (served.path / "hooks/off").rename(served.path / "hooks/pre-receive")

    taken, said = push(served, {"catalog/a.yaml": a_model("a")})

    assert taken, said


def test_what_is_staged_is_checked_before_it_is_committed(served: Fleet) -> None:
    served.clone.write({"hooks/pre-commit": (HOOKS / "pre-commit").read_bytes()})
    (served.clone.at / "hooks/pre-commit").chmod(0o755)
    served.clone("config", "core.hooksPath", "hooks")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def commit(model: bytes, beside: bytes) -> tuple[bool, str]:
        served.clone.write({"server.yaml": SERVER, "catalog/a.yaml": model})
        served.clone("add", "-A")
        served.clone.write({"catalog/a.yaml": beside})
        who = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["git", "commit", "-q", "-m", "x"],
            cwd=served.clone.at,
            env={"PATH": path, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **who},
            capture_output=True,
            check=False,
            timeout=120,
        )
        return done.returncode == 0, (done.stdout + done.stderr).decode()

    here = a_model("a")
    refused, said = commit(b"name: [", beside=here)
    assert not refused
    assert "catalog/a.yaml" in said
    taken, said = commit(here, beside=b"name: [")
    assert taken, said


def test_control_is_told_of_a_push_and_one_that_is_away_is_no_failure(served: Fleet, tmp_path: Path) -> None:
    (served.path / "hooks/pre-receive").unlink()
    shutil.copy(HOOKS / "post-receive", served.path / "hooks")
    (tmp_path / "secret").write_text("between us")
    served.clone.commit({"server.yaml": SERVER})

    taken, said = pushed(
        served,
        "HEAD:refs/heads/main",
        LLMGW_CONTROL="http://127.0.0.1:1",
        LLMGW_HOOK_SECRET_FILE=str(tmp_path / "secret"),
    )

    assert taken
    assert "control was not told, and sees the push at its next look" in said
