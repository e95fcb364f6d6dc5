"""The command line as a person meets it: what it prints, and the codes it exits with."""

import hashlib
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dulwich.repo import Repo

from llmgw.catalog.parse import parse
from llmgw.cli.init import files
from llmgw.cli.main import COMMANDS, run
from llmgw.errors import Exit
from llmgw.sources.bare import commit_files, make_bare

AUTHOR = "Ana <ana@example.invalid>"
SERVER = b"schema: 1\ncluster: lab\nnodes: [{name: n1, address: 127.0.0.1}]\n"
MODEL = b"""name: m
context_length: 4096
source: {from: /models/m.gguf}
profiles: [{name: cpu, engine: llamacpp, replicas: 1, memory_gib: 1}]
"""


@pytest.fixture
def fleet(tmp_path):
    """A bare repository with one model."""
    repo = tmp_path / "fleet.git"
    make_bare(repo, {"server.yaml": SERVER, "catalog/m.yaml": MODEL}, message="first\n", author=AUTHOR, now=time.time())
    return repo


def push(repo, **files):
    changes = {"server.yaml" if n == "server" else f"catalog/{n}.yaml": d for n, d in files.items()}
    return commit_files(repo, changes, message="next\n", author=AUTHOR, now=time.time())


def test_help_lists_every_command_with_what_it_does(capsys):
    assert run(["--help"]) == Exit.DONE

    said = capsys.readouterr().out
    for path, command in COMMANDS.items():
        if len(path) == 1:
            assert command.help in said


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_every_command_explains_itself(path, capsys):
    assert run([*path, "--help"]) == Exit.DONE

    assert "Usage: llmgw" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["plan", "--no-such-flag"],
        ["control"],
        ["key", "new", "robot", "x"],
        ["unit", "agent"],
        ["mirror"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_64_and_says_what_is_right(words, capsys):
    assert run(words) == Exit.USAGE

    assert capsys.readouterr().err


def test_an_error_is_three_lines_on_stderr_and_no_traceback(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "llmgw", "status", "--repo", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == Exit.UNREACHABLE
    assert ended.stdout == ""
    what, why, do = ended.stderr.splitlines()
    assert what == f"error: there is no repository at {tmp_path / 'nothing'}"
    assert why.startswith("  because ")
    assert do.startswith("  next: ")


def test_a_key_is_printed_once_with_the_line_that_knows_it_by_its_hash(capsys):
    assert run(["key", "new", "node", "n2"]) == Exit.DONE

    key, where, line = capsys.readouterr().out.splitlines()
    secret = key.removeprefix("key (shown once): ")
    assert where == "server.yaml, under nodes:"
    assert line == f"  - {{name: n2, address: ADDRESS, key_sha256: {hashlib.sha256(secret.encode()).hexdigest()}}}"


def test_a_key_written_to_a_file_is_its_owners_alone_and_never_over_another(tmp_path, capsys):
    path = tmp_path / "ana.key"

    assert run(["key", "new", "operator", "ana", "--out", str(path)]) == Exit.DONE
    assert run(["key", "new", "operator", "ana", "--out", str(path)]) == Exit.REFUSED

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() not in capsys.readouterr().out


def test_a_plan_without_anything_seen_compares_what_is_asked(fleet, capsys):
    assert run(["plan", "--repo", str(fleet), "--observed", "none"]) == Exit.DONE

    said = capsys.readouterr().out
    assert "+ m  cpu 0 to 1" in said
    assert "Nothing is known of the fleet, so nothing is placed" in said


def test_a_plan_of_a_broken_file_says_the_line_and_exits_with_1(fleet, capsys):
    push(fleet, m=MODEL + b"replicsa: 2\n")

    assert run(["plan", "--repo", str(fleet)]) == Exit.PROBLEM

    assert "problem  catalog/m.yaml:5:1: " in capsys.readouterr().out


def test_a_plan_without_a_usable_server_yaml_is_no_plan(fleet, capsys):
    push(fleet, server=b"schema: 1\n")

    assert run(["plan", "--repo", str(fleet)]) == Exit.PROBLEM

    assert "nothing can be planned" in capsys.readouterr().err


def test_a_plan_as_json_is_the_same_value(fleet, capsys):
    assert run(["plan", "--repo", str(fleet), "--observed", "none", "--json", "--detailed-exitcode"]) == Exit.CHANGES

    plan = json.loads(capsys.readouterr().out)
    assert (plan["format_version"], plan["cluster"]) == ("1.0", "lab")
    assert [(m["name"], m["action"]) for m in plan["models"]] == [("m", "create")]


def test_a_branch_that_is_not_there_is_no_plan_of_another(fleet, capsys):
    assert run(["plan", "--repo", str(fleet), "--branch", "nosuch", "--observed", "none"]) != Exit.DONE
    assert run(["plan", "--repo", str(fleet), "--branch", "main", "--observed", "none"]) == Exit.DONE

    assert "nosuch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param(
            {"catalog/m.yaml": MODEL.replace(b"context", b"<<<<<<< HEAD\ncontext")},
            "catalog/m.yaml:2:1: the file has an unresolved merge in it",
            id="a merge that was begun",
        ),
        pytest.param(
            {"catalog/m.yaml": MODEL + b"=======\n>>>>>>> theirs\n"},
            "catalog/m.yaml:5:1: the file has an unresolved merge in it",
            id="what is left of a merge",
        ),
        pytest.param(
            {"catalog/x.YAML": MODEL}, "it ends in .YAML, and names are read in small letters", id="a file in capitals"
        ),
        pytest.param({"keys/x.Yml": b"[]"}, "rename it to end in .yml", id="a file of keys in capitals"),
        pytest.param(
            {"server.yaml": SERVER + b"mirror: {base: http://127.0.0.1:80810, api: http://127.0.0.1:8082}\n"},
            "its port from 1 to 65535 belongs here",
            id="a port that is none",
        ),
        pytest.param(
            {"catalog/m.yaml": MODEL.replace(b"/models/m.gguf", b"file:///my models/m.gguf")},
            "write a space in a URL as %20",
            id="a space in a URL",
        ),
    ],
)
def test_what_is_written_by_mistake_is_said_with_what_to_do(files, said, tmp_path, capsys):
    for name, data in {"server.yaml": SERVER, **files}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)

    assert run(["validate", str(tmp_path)]) == Exit.PROBLEM

    assert said in capsys.readouterr().out


def test_weights_may_be_in_a_folder_with_a_space(tmp_path, capsys):
    (tmp_path / "catalog").mkdir()
    (tmp_path / "server.yaml").write_bytes(SERVER)
    (tmp_path / "catalog/m.yaml").write_bytes(MODEL.replace(b"/models/m.gguf", b"/my models/m.gguf"))

    assert run(["validate", str(tmp_path)]) == Exit.DONE, capsys.readouterr().out


@pytest.mark.parametrize("words", [["status"], ["plan"]], ids=" ".join)
def test_a_repository_without_commits_is_said_to_have_none(words, copy_without_commits, capsys):
    assert run([*words, "--repo", copy_without_commits]) == Exit.REFUSED

    assert "because it has no commits yet" in capsys.readouterr().err


@pytest.fixture
def copy_without_commits(tmp_path):
    Repo.init(str(tmp_path / "new"), mkdir=True).close()
    return str(tmp_path / "new")


def test_a_status_that_nobody_has_renewed_is_not_told_as_news(copy, monkeypatch):
    copy.see(gpu=["ready", "ready"], slow=["ready"])
    first = copy.run("status")[1]
    monkeypatch.setattr("llmgw.cli.look.QUIET_S", -1.0)
    old = copy.run("status")[1]

    assert "written 0s ago; commit cccccccccccc" in first
    assert (
        "written 0s ago, and nothing newer: nothing has changed since, or control does not run (llmgw status --live "
        "asks it); commit cccccccccccc"
    ) in old.replace("\n", " ")


def test_a_status_that_nobody_has_written_is_said_with_how_to_fetch_it(fleet, capsys):
    assert run(["status", "--repo", str(fleet)]) == Exit.REFUSED

    assert "git fetch origin llmgw/status/lab" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        pytest.param(
            {"server": b"schema: 1\ncluster: lab\n"}, Exit.REFUSED, "server.yaml names no nodes", id="no node"
        ),
        pytest.param({"server": SERVER}, Exit.REFUSED, "server.yaml names no gateway", id="no gateway"),
        pytest.param({"server": b"cluster: {"}, Exit.PROBLEM, "server.yaml cannot be used", id="no server.yaml"),
        pytest.param(
            {"server": SERVER.replace(b"127.0.0.1", b"10.0.0.1")},
            Exit.REFUSED,
            "it is not clear which node this machine is",
            id="no node here",
        ),
    ],
)
def test_up_says_what_is_missing_before_it_starts_anything(fleet, capsys, files, code, said):
    push(fleet, **files)

    assert run(["up", str(fleet)]) == code

    assert said in capsys.readouterr().err + capsys.readouterr().out


def test_up_says_which_port_is_in_use_and_by_whom(fleet, capsys, tmp_path):
    push(fleet, server=SERVER + b"gateways: [{name: g1}]\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code = run(["up", str(fleet), "--control-port", str(port), "--state", str(tmp_path / "state")])

    told = capsys.readouterr().err
    assert code == Exit.REFUSED
    assert f"control cannot listen on 127.0.0.1:{port}" in told
    assert f"(pid {os.getpid()}) listens there already" in told
    assert "give another port with --control-port" in told


def test_what_is_not_a_repository_is_said_with_what_to_do(tmp_path, capsys):
    (tmp_path / "server.yaml").write_bytes(SERVER)

    assert run(["up", str(tmp_path)]) in (Exit.REFUSED, Exit.UNREACHABLE)

    assert "next: " in capsys.readouterr().err


def test_the_readme_names_every_key_of_the_new_fleets_source():
    source = parse(files("home")["catalog/smollm2-135m.yaml"].encode()).value["source"]
    step = (
        (Path(__file__).parents[2] / "README.md").read_text().partition("2. Say which model.")[2].partition("\n3. ")[0]
    )

    assert [key for key in source if f"`{key}" not in step] == []


def test_what_init_says_comes_next_can_be_pasted(tmp_path, capsys):
    assert run(["init", str(tmp_path / "a b")]) == Exit.DONE

    lines = capsys.readouterr().out.splitlines()
    assert all(str(tmp_path / "a b") in shlex.split(line) for line in lines if "git" in line or "llmgw v" in line)
    assert any(shlex.split(line)[-2:] == ["up", str(tmp_path / "a b")] for line in lines)


def test_the_examples_of_the_demo_are_found_and_valid():
    from llmgw.catalog.check import read_fleet
    from llmgw.cli.demo import example

    assert read_fleet(example()).problems == ()


def test_python_m_llmgw_is_the_same_command():
    ended = subprocess.run([sys.executable, "-m", "llmgw", "--version"], capture_output=True, text=True, check=True)

    assert ended.stdout.startswith("llmgw ")


def test_every_exit_code_is_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs/plan.md").read_text()

    for code in Exit:
        assert f"| {code.value} |" in page
