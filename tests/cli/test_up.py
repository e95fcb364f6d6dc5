"""What `llmgw up` tells a person about this machine."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fleets import LLAMACPP, card, model, node, replica

from llmgw.cli import demo
from llmgw.cli.machine import Machine, free_ports, only_one
from llmgw.cli.main import run
from llmgw.cli.program import called
from llmgw.cli.up import ask_line, card_notes, what_to_try, where_it_is
from llmgw.core.live import Live
from llmgw.core.observed import Observed
from llmgw.core.status import FleetStatus, ModelStatus, ProfileStatus
from llmgw.errors import Exit, Refused
from llmgw.sources.bare import make_bare
from llmgw.sources.git import open_source
from llmgw.sources.reading import catalog_of
from llmgw_agent.protocol import InstalledEngine

SERVER = b"schema: 1\ncluster: lab\nnodes: [{name: n1, address: 127.0.0.1}]\ngateways: [{name: g1}]\n"
MODEL = b"""name: m
context_length: 4096
source: {from: /models/m.gguf}
profiles: [{name: cpu, engine: llamacpp, replicas: 1, memory_gib: 1}]
"""

EMBEDDED = (InstalledEngine("llamacpp", "2026.10", build="embedded", accelerators=("cpu",)),)


def live(*nodes, models=()):
    return Live(FleetStatus("lab", "c" * 40, settled=True, models=tuple(models), nodes=()), (), Observed(nodes))


def test_a_card_that_the_engine_here_cannot_use_is_said_with_what_to_install():
    (note,) = card_notes(live(node(cards=[card(0)], engines=EMBEDDED)))

    assert note.startswith("card found (NVIDIA L40S), the engine here is for CPUs; to use the card, install")


def test_nothing_is_said_where_the_engine_uses_the_card_or_there_is_none():
    assert card_notes(live(node(cards=[card(0)], engines=LLAMACPP))) == []
    assert card_notes(live(node(cards=0, engines=EMBEDDED))) == []


def test_the_line_to_ask_with_names_a_model_that_serves_and_is_one_shell_command(tmp_path):
    of = model("m", cpu=1)
    machine = Machine("r", False, None, "n1", "g1", tmp_path, gateway_port=18080, control_port=18083)
    models = [
        ModelStatus("idle", "stopped", profiles=(ProfileStatus("cpu", 0, 0),)),
        ModelStatus("m", "ready", profiles=(ProfileStatus("cpu", 1, 1),)),
    ]

    lines = what_to_try(machine, live(node("n1", replica("m/cpu/0", of)), models=models))

    (ask,) = [line.removeprefix("ask: ") for line in lines if line.startswith("ask: ")]
    words = shlex.split(ask)
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:18080/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == "m"


def test_the_line_to_ask_with_has_a_place_for_a_key_where_clients_need_one(tmp_path):
    machine = Machine("r", False, None, "n1", "g1", tmp_path, clients=("ana", "ben"))
    models = [ModelStatus("m", "ready", profiles=(ProfileStatus("cpu", 1, 1),))]

    (ask,) = ask_line(machine, live(models=models))

    assert "Authorization: Bearer THE_KEY_OF_ana" in shlex.split(ask)


def test_nothing_is_asked_of_a_fleet_in_which_nothing_serves(tmp_path):
    machine = Machine("r", False, None, "n1", "g1", tmp_path)

    assert ask_line(machine, live(models=[ModelStatus("m", "stalled")])) == []


def test_the_line_for_the_status_can_be_pasted_whatever_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    machine = Machine("r", False, None, "n1", "g1", tmp_path / "a b")

    status = shlex.split(where_it_is(machine)[-1].removeprefix("status: "))

    assert Path(status[0]) == Path(sys.executable).with_name("llmgw")
    assert status[-1] == str(tmp_path / "a b/keys/operator.key")


def test_a_command_is_called_by_its_name_where_that_means_this_one(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))

    assert called() == "llmgw"


def test_weights_in_a_folder_with_a_space_are_the_demos_source(tmp_path):
    weights = tmp_path / "a b" / "w.gguf"
    weights.parent.mkdir()
    weights.touch()

    machine = demo._prepare(tmp_path / "work dir", weights)

    source = open_source(machine.repo, branch="main", state=tmp_path / "s")
    catalog = catalog_of(source.poll())
    source.close()
    assert catalog.problems == ()
    assert catalog.models[0].model.source.from_ == f"file://{tmp_path}/a%20b/w.gguf"


def test_a_demo_that_is_up_is_not_begun_again(tmp_path):
    with only_one(tmp_path / "state", "http://127.0.0.1:1/v1"), pytest.raises(Refused, match="is up already") as no:
        demo._prepare(tmp_path, tmp_path / "w.gguf")

    assert no.value.why == f"process {os.getpid()} runs it, and its endpoint is http://127.0.0.1:1/v1"
    assert not (tmp_path / "fleet.git").exists()


def test_a_branch_is_not_ignored_where_files_are_run_as_they_are(copy):
    code = run(["up", str(copy.root), "--branch", "nosuch"])

    assert code == Exit.USAGE


def test_up_says_where_it_is_whatever_its_models_do_and_that_it_has_stopped(tmp_path):
    files = {"server.yaml": SERVER, "catalog/m.yaml": MODEL}
    make_bare(tmp_path / "fleet.git", files, message="first\n", author="Ana <ana@lab>", now=time.time())
    gateway, control = free_ports(0, 0)
    words = ["up", str(tmp_path / "fleet.git"), "--state", str(tmp_path / "state")]
    words += ["--gateway-port", str(gateway), "--control-port", str(control)]
    process = subprocess.Popen([sys.executable, "-m", "llmgw", *words], stdout=subprocess.PIPE, text=True)
    try:
        lines = []
        while not lines or not lines[-1].startswith("m 0/1"):
            lines.append(process.stdout.readline().strip())
            assert lines[-1] or process.poll() is None, lines
        again = subprocess.run([sys.executable, "-m", "llmgw", *words], capture_output=True, text=True, check=False)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0].splitlines()
    finally:
        process.kill()

    assert lines[0].startswith("fleet lab, node n1; ")
    assert lines[1] == f"endpoint: http://127.0.0.1:{gateway}/v1"
    assert lines[2].startswith("status: ")
    assert again.returncode == Exit.REFUSED
    assert f"process {process.pid} runs it, and its endpoint is {lines[1].split()[1]}" in again.stderr
    assert rest[-2:] == [
        "stopping",
        f"stopped, and nothing of it runs any more; weights, logs and keys stay in {tmp_path / 'state'}",
    ]
    assert process.returncode == Exit.DONE
