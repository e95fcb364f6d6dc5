"""How a command ends: with three lines and a code, whatever stopped it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from llmgw.cli.main import run
from llmgw.errors import Exit
from llmgw.sources.bare import make_bare

SERVER = b"schema: 1\ncluster: lab\nnodes: [{name: n1, address: 127.0.0.1}]\ngateways: [{name: g1}]\n"


@pytest.fixture
def repo(tmp_path):
    path = tmp_path / "fleet.git"
    make_bare(path, {"server.yaml": SERVER}, message="first\n", author="Ana <ana@lab>", now=time.time())
    return str(path)


def call(*words, out=subprocess.PIPE, **more):
    """A real process, as a shell starts one."""
    return subprocess.run(
        [sys.executable, "-m", "llmgw", *words],
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
        **more,
    )


def three_lines(text):
    what, why, do = text.splitlines()
    return what.startswith("error: ") and why.startswith("  because ") and do.startswith("  next: ")


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["plan", "--no-such-flag"],
        ["plan", "--format", "xml"],
        ["up", "--gateway-port", "0"],
        ["up", "--gateway-port", "many"],
        ["control"],
        ["mirror"],
        ["key", "new", "robot", "x"],
        ["status", "--live"],
        ["schema"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_three_lines_in_our_own_words(words, capsys, monkeypatch):
    monkeypatch.delenv("LLMGW_CONTROL", raising=False)

    assert run(words) == Exit.USAGE

    told = capsys.readouterr().err
    assert three_lines(told)
    assert "Value error" not in told
    assert "Input should" not in told


def test_help_has_a_short_flag_in_every_command(capsys):
    assert run(["-h"]) == run(["plan", "-h"]) == run(["key", "new", "-h"]) == Exit.DONE

    assert "Usage: llmgw key new" in capsys.readouterr().out


@pytest.mark.parametrize("who", ["control", "gateway"])
def test_each_process_is_served_as_the_mirror_is(who, capsys):
    assert run([who, "serve", "--help"]) == Exit.DONE

    assert f"Usage: llmgw {who}" in capsys.readouterr().out


def test_what_was_not_read_was_not_wanted(repo):
    reads, writes = os.pipe()
    os.close(reads)

    ended = call("plan", "--repo", repo, "--observed", "none", out=writes)

    os.close(writes)
    assert (ended.returncode, ended.stderr) == (Exit.DONE, "")


@pytest.mark.parametrize("words", [["plan", "--repo"], ["validate"], ["unit"]], ids=" ".join)
def test_an_output_that_takes_nothing_is_said_and_is_no_traceback(words, repo, tmp_path):
    (tmp_path / "server.yaml").write_bytes(SERVER)
    more = {"plan": repo, "validate": str(tmp_path), "unit": "mirror"}[words[0]]
    with open("/dev/full", "w") as full:  # noqa: PTH123 - it is no path that is read or written, but an end
        ended = call(*words, more, out=full)

    assert ended.returncode == Exit.PROBLEM
    assert three_lines(ended.stderr)
    assert "No space left on device" in ended.stderr


def test_a_key_that_nobody_saw_is_said_to_be_lost():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = call("key", "new", "node", "n1", out=full)

    assert ended.returncode == Exit.PROBLEM
    assert "the key was not shown and is lost" in ended.stderr
    assert three_lines(ended.stderr)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["plan", "--out", "{repo}/none/x", "--repo", "{repo}"], Exit.REFUSED, id="no such folder"),
        pytest.param(["plan", "--out", "/dev/full", "--repo", "{repo}"], Exit.REFUSED, id="a full disk"),
        pytest.param(["up", "{repo}", "--state", "/proc/x"], Exit.REFUSED, id="a state where nothing can be made"),
        pytest.param(["up", "{repo}", "--state", "{repo}/HEAD"], Exit.REFUSED, id="a state that is a file"),
        pytest.param(["up", "{repo}", "--state", "/dev/full"], Exit.REFUSED, id="a state that is a device"),
    ],
)
def test_what_the_system_refuses_is_three_lines(words, code, repo, capsys):
    assert run([word.format(repo=repo) for word in words]) == code

    assert three_lines(capsys.readouterr().err)


def test_a_program_that_asked_for_json_gets_the_error_as_json(capsys):
    for words in (["validate", "--json", "/nonexistent"], ["status", "--json", "--live"], ["plan", "--format", "json"]):
        code = run([*words, *(["--repo", "/nonexistent"] if words[0] != "validate" else [])])

        said = capsys.readouterr()
        assert code != Exit.DONE
        error = json.loads(said.out)["error"]
        assert said.err == f"error: {error['what']}\n  because {error['why']}\n  next: {error['do']}\n"
        assert error["code"] == code


def test_a_key_as_json_has_the_line_to_add(capsys):
    assert run(["key", "new", "client", "ana", "--json"]) == Exit.DONE

    made = json.loads(capsys.readouterr().out)
    assert made["key"].startswith("llmgw-client-")
    assert made["sha256"] in made["add"]


def test_a_terminal_that_cannot_show_a_character_is_shown_its_number(tmp_path):
    (tmp_path / "server.yaml").write_text(SERVER.decode() + 'colour: "é☃"\n', encoding="utf-8")
    plain = {**os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}

    ended = call("validate", str(tmp_path), env=plain)

    assert ended.returncode == Exit.PROBLEM
    assert ended.stderr == ""


def test_schemas_that_are_not_there_are_not_called_out_of_date(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert run(["schema", "--check"]) == Exit.PROBLEM

    told = capsys.readouterr().err
    assert "are not here" in told
    assert three_lines(told)
