"""The program: its flags, its exit codes, its unit, and how it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fakes.waiting import until
from llmgw_agent.errors import Refused
from llmgw_agent.main import main, parser
from llmgw_agent.protocol import Phase
from llmgw_agent.settings import read_allow

NEEDED = ["--control", "http://127.0.0.1:1", "--node", "n1"]


@pytest.fixture
def flags(tmp_path):
    (tmp_path / "key").write_text("k")
    return [*NEEDED, "--key-file", str(tmp_path / "key"), "--state", str(tmp_path / "state")]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--control", "control:8083"], "no http or https URL"),
        (["--key-file", "/no/such/key"], "no such file"),
        (["--ca-file", "/no/such/ca"], "no such file"),
        (["--allow-file", "/no/such/allow.toml"], "cannot be read"),
        (["--reserve-gib", "-1"], "below zero"),
        (["--state", "/proc/nothing"], "cannot be used"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_three_lines(flags, changed, said, capsys):
    assert main([*flags, *changed]) == 4

    error = capsys.readouterr().err
    assert said in error
    assert [line.split()[0] for line in error.splitlines()[1:]] == ["because", "next:"]


def test_a_ca_file_without_certificates_is_refused(flags, tmp_path, capsys):
    (tmp_path / "ca.pem").write_text("no certificate")

    assert main([*flags, "--ca-file", str(tmp_path / "ca.pem")]) == 4
    assert "PEM" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--node"], ["--no-such-flag"], ["--reserve-gib", "much"]])
def test_wrong_usage_ends_with_64(flags, words, capsys):
    with pytest.raises(SystemExit) as end:
        main([*(flags if words else []), *words])

    assert end.value.code == 64
    assert "--help" in capsys.readouterr().err


def test_wrong_usage_is_three_lines_as_in_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--nonsense"])

    what, why, do = capsys.readouterr().err.splitlines()
    assert what == "error: llmgw-agent cannot be called like this"
    assert why.startswith("  because ")
    assert do == "  next: llmgw-agent --help"


def test_its_version_has_its_name(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])

    assert capsys.readouterr().out.startswith("llmgw-agent ")


@pytest.mark.parametrize(
    ("name", "text"),
    [("allow.toml", 'allow = ["path:/mnt", "env"]'), ("allow.json", '{"allow": ["env", "path:/mnt"]}')],
)
def test_the_allow_file_is_toml_or_json(tmp_path, name, text):
    (tmp_path / name).write_text(text)

    assert read_allow(tmp_path / name) == ("env", "path:/mnt")


@pytest.mark.parametrize("text", ["allow = 1", "allow = [1]", 'allow = ["root"]', 'alow = ["env"]', "allow = [", ""])
def test_an_allow_file_that_is_not_understood_allows_nothing_and_is_said(tmp_path, text):
    (tmp_path / "allow.toml").write_text(text)

    with pytest.raises(Refused, match=r"allow file .*allow\.toml"):
        read_allow(tmp_path / "allow.toml")


def test_the_unit_keeps_engines_through_a_restart_of_the_agent(flags, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    flags[flags.index("--key-file") + 1] = "key"

    assert main(["unit", *flags, "--engine-path", "/opt/a b", "--engine-path", "/opt/it's", "--stop-engines"]) == 0

    lines = capsys.readouterr().out.splitlines()
    # An engine is a process in the unit's own group: systemd must end the agent
    # alone, and must not end the agent for an engine the kernel has ended.
    assert {"KillMode=process", "OOMPolicy=continue", "Restart=always"} <= set(lines)
    (command,) = [line for line in lines if line.startswith("ExecStart=")]
    assert f"--key-file {tmp_path}/key" in command
    assert '--engine-path "/opt/a b" --engine-path "/opt/it\'s"' in command
    assert command.startswith(f"ExecStart={sys.executable} -I -m llmgw_agent ")
    assert "--stop-engines" in command


DOC = Path(__file__).resolve().parents[2] / "docs" / "agent.md"


@pytest.mark.parametrize("flag", [a.option_strings[-1] for a in parser()._actions if a.dest not in {"help", "version"}])
def test_every_flag_is_in_the_docs(flag):
    assert f"| `{flag}" in DOC.read_text()


@pytest.mark.needs_systemd_analyze
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_takes_the_unit_as_it_is(flags, capsys, tmp_path):
    main(["unit", *flags])
    file = tmp_path / "llmgw-agent.service"
    file.write_text(capsys.readouterr().out)

    checked = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stderr) == (0, "")


async def test_with_stop_engines_nothing_is_left_when_it_ends(agents, control, tmp_path):
    agents.engine(leak_child=str(tmp_path / "child"))
    control.order(agents.order("m/cpu/0"), agents.order("m/cpu/1"))
    s = agents.settings
    (tmp_path / "allow.toml").write_text(f'allow = ["path:{tmp_path}"]')
    words = ["--control", s.control, "--node", "n1", "--key-file", s.key_file, "--state", s.state]
    words += ["--engine-path", agents.engines, "--allow-file", tmp_path / "allow.toml", "--stop-engines"]
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llmgw_agent", *map(str, words), stderr=asyncio.subprocess.PIPE, env={"PATH": os.defpath}
    )
    try:
        await control.sees(Phase.READY, "m/cpu/0")
        await control.sees(Phase.READY, "m/cpu/1")
        assert len(agents.processes()) == 4

        program.terminate()

        _, said = await asyncio.wait_for(program.communicate(), 30)
        assert program.returncode == 0, said.decode()
        assert b"Traceback" not in said
        await until(lambda: agents.processes() == {})
    finally:
        with suppress(ProcessLookupError):
            program.kill()
        await program.communicate()
