"""The systemd units that are printed: what they run starts, sees its files and may write them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from llmgw.cli import unit as module
from llmgw.cli.unit import PROCESSES, quoted, text
from llmgw.errors import Misused

NEEDS = {
    "control": ("--repo", "https://git.example/fleet.git", "--cluster", "lab"),
    "gateway": ("--name", "g1"),
    "mirror": (),
}


@pytest.fixture(autouse=True)
def in_opt(monkeypatch):
    """Llmgw is installed where systemd hides nothing."""
    monkeypatch.setattr(module, "installed", lambda: Path("/opt/llmgw/bin/llmgw"))
    monkeypatch.setattr(module.sys, "executable", "/opt/llmgw/bin/python")
    monkeypatch.setattr(module.sys, "base_prefix", "/usr")


def command(unit):
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return line.removeprefix("ExecStart=/opt/llmgw/bin/llmgw ")


@pytest.mark.parametrize("name", sorted(PROCESSES))
def test_a_unit_starts_its_process_again_unless_a_person_is_needed(name):
    unit = text(name, NEEDS[name])

    assert "WantedBy=multi-user.target" in unit
    assert "Restart=always" in unit
    assert "RestartPreventExitStatus=4 64" in unit
    assert {"ProtectHome=yes", "PrivateTmp=yes"} <= set(unit.splitlines())
    assert "ReadWritePaths" not in unit, "systemd makes the folder of /var/lib"


def test_a_flag_that_is_given_leaves_the_usual_ones_where_they_are():
    unit = text("gateway", ("--name", "g1", "--listen", "0.0.0.0:80", "--state=/var/lib/llmgw-gateway/two"))

    assert command(unit) == (
        "gateway --control http://127.0.0.1:8083 --key-file /etc/llmgw/gateway.key "
        "--name g1 --listen 0.0.0.0:80 --state=/var/lib/llmgw-gateway/two"
    )


@pytest.mark.parametrize(
    ("process", "flags", "why"),
    [
        pytest.param("control", (), "missing option '--repo'", id="no repository is made up"),
        pytest.param("control", ("--repo", "https://g/f.git"), "missing option '--cluster'", id="no fleet"),
        pytest.param("gateway", (), "missing option '--name'", id="no name"),
        pytest.param("mirror", ("--rot", "/x"), "no such option: --rot", id="a flag that is none"),
        pytest.param("control", (*NEEDS["control"], "--poll", "0"), "--poll", id="a value that is none"),
        pytest.param("mirror", ("--root", "here"), "systemd starts it in /", id="a path from here"),
    ],
)
def test_a_unit_that_could_not_start_is_not_printed(process, flags, why):
    with pytest.raises(Misused) as refused:
        text(process, flags)

    assert why in refused.value.why


def test_folders_of_ones_own_and_a_repository_here_may_be_written():
    unit = text("control", ("--repo", "/srv/fleet.git", "--cluster", "lab", "--state", "/srv/a $b%c"))

    assert 'ReadWritePaths="/srv/a $b%%c" /srv/fleet.git' in unit.splitlines()
    assert '--state "/srv/a $$b%%c"' in command(unit)


@pytest.mark.parametrize(
    ("path", "left_out"), [("/home/ana/w", "ProtectHome"), ("/root/w", "ProtectHome"), ("/tmp/w", "PrivateTmp")]
)
def test_what_the_process_needs_is_not_hidden_from_it(path, left_out):
    unit = text("mirror", ("--allow-files", path))

    assert f"{left_out}=yes" not in unit
    assert f"# No {left_out}: {path} would not be seen" in unit


def test_a_program_in_somebodys_home_is_seen(monkeypatch):
    monkeypatch.setattr(module, "installed", lambda: Path("/home/ana/llmgw/.venv/bin/llmgw"))

    assert "# No ProtectHome: /home/ana/llmgw/.venv/bin/llmgw would not be seen" in text("mirror", ())


@pytest.mark.parametrize(
    ("word", "as_read"),
    [("a", "a"), ("", '""'), ("a b", '"a b"'), ("it's", '"it\'s"'), ('a"b', '"a\\"b"'), ("a\\b", '"a\\\\b"')],
)
def test_words_are_quoted_as_systemd_reads_them(word, as_read):
    assert quoted(word) == as_read


@pytest.mark.needs_systemd_analyze
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("name", sorted(PROCESSES))
def test_systemd_accepts_each_unit(name, tmp_path):
    # The user, the program and the folders are not on this machine: what is checked is the text.
    flags = (*NEEDS[name], f"--{PROCESSES[name].writes}", "/srv/a $b%c", "--log-level", "it's")
    path = tmp_path / f"llmgw-{name}.service"
    path.write_text(text(name, flags).replace("User=llmgw", "User=root").replace("/opt/llmgw/bin/llmgw", "/bin/true"))

    checked = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stderr
