"""`llmgw simulate`: a recorded fleet, and what would happen to it."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import msgspec
import pytest
import yaml
from fleets import SETTLED, model, node, profile, replica, wanting
from locks import FACTS, lock

from llmgw.catalog import canonical
from llmgw.cli.main import run
from llmgw.core.live import SeenNow, specs, wanted_now
from llmgw.core.observed import Observed
from llmgw.errors import Exit
from llmgw.sources.bare import make_bare
from llmgw_agent.protocol import Claim

GIB = 1 << 30
M = model(profiles=[profile(replicas=2, memory_gib=6)])
SERVER = b"schema: 1\ncluster: lab\nnodes: [{name: n1, address: 10.0.0.1}, {name: n2, address: 10.0.0.1}]\n"


@pytest.fixture
def recorded(tmp_path):
    """Two nodes of 8 GiB, each with one replica of 6."""
    wanted = wanting(M)
    at = [replica(f"m/cpu/{n}", M, claim=Claim(6 * GIB, 1)) for n in range(2)]
    seen = Observed((node("n1", at[0], memory_gib=8), node("n2", at[1], memory_gib=8)))
    said = SeenNow("c" * 40, "c" * 40, canonical.spec(wanted.server), specs(wanted), seen, SETTLED)
    path = tmp_path / "fleet.json"
    path.write_bytes(msgspec.json.encode(said))
    return path


@pytest.fixture
def third(tmp_path):
    """A node that is not there yet, as the status branch gives one."""
    path = tmp_path / "n3.yaml"
    inventory = msgspec.to_builtins(node("n3", memory_gib=64).inventory)
    path.write_text(yaml.safe_dump({"name": "n3", "standing": "usable", "inventory": inventory}))
    return path


def test_a_lost_node_is_told_with_when_and_what_no_longer_fits(recorded, capsys):
    assert run(["simulate", "--fleet", str(recorded), "--lose-node", "n1"]) == Exit.HELD

    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"seen: {recorded}"
    assert said[1] == "15 minutes, without n1"
    assert "10m  held m/cpu/2: no node has room for it" in said
    assert "m      1      1" in said
    assert [line for line in said if line.startswith("held  m/cpu/2: no node has room for it (n1: it is lost; n2: ")]


def test_with_one_more_node_it_fits(recorded, third, capsys):
    assert run(["simulate", "--fleet", str(recorded), "--lose-node", "n1", "--add-node", str(third)]) == Exit.DONE

    assert "10m  start m/cpu/2 on n3: cpu has 1 of 2" in capsys.readouterr().out


def test_without_a_mishap_nothing_happens(recorded, capsys):
    assert run(["simulate", "--fleet", str(recorded)]) == Exit.DONE

    assert "nothing happens" in capsys.readouterr().out


def test_a_commit_is_applied_at_the_start(recorded, tmp_path, capsys):
    spec = {"profiles": [profile(replicas=1, memory_gib=6)], "name": "m", "context_length": 4096}
    files = {"server.yaml": SERVER, "catalog/m.yaml": yaml.safe_dump({**spec, "source": {"from": "/m.gguf"}}).encode()}
    repo = tmp_path / "fleet.git"
    made = make_bare(repo, files, message="one\n", author="Ana <ana@example.invalid>", now=time.time())

    assert run(["simulate", "--fleet", str(recorded), "--repo", str(repo), "--commit", made, "--json"]) == Exit.DONE

    said = json.loads(capsys.readouterr().out)
    assert [(e["at_s"], e["what"]) for e in said["events"]] == [(0.0, "stop m/cpu/1 on n2: cpu has more than 1")]
    assert said["ready"] == {"m": 1}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--lose-node", "n9"], Exit.REFUSED, "there is no node n9"),
        (["--add-node", "nowhere.yaml"], Exit.REFUSED, "nowhere.yaml cannot be read"),
        (["--minutes", "-1"], Exit.USAGE, "minutes"),
        (["--commit", "f" * 40], Exit.REFUSED, "f" * 12),
    ],
    ids=["an unknown node", "a file that is not there", "no time", "an unknown commit"],
)
def test_what_cannot_be_simulated_is_said(recorded, tmp_path, capsys, words, code, said):
    repo = tmp_path / "fleet.git"
    files = {"server.yaml": SERVER}
    make_bare(repo, files, message="one\n", author="Ana <ana@example.invalid>", now=time.time())

    assert run(["simulate", "--fleet", str(recorded), "--repo", str(repo), *words]) == code

    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "name: n3", "name: N 3\ninventory: {}", "a: ["], ids=repr)
def test_a_file_that_tells_of_no_node_is_said_to(recorded, tmp_path, capsys, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)

    assert run(["simulate", "--fleet", str(recorded), "--add-node", str(path)]) == Exit.PROBLEM

    assert "tells of no node" in capsys.readouterr().err


def test_a_file_that_records_no_fleet_is_said_to(tmp_path, capsys):
    path = tmp_path / "bad.json"
    path.write_text("{}")

    assert run(["simulate", "--fleet", str(path)]) == Exit.PROBLEM

    assert "is no recorded fleet" in capsys.readouterr().err


def test_without_a_fleet_there_is_nothing_to_simulate(tmp_path, capsys):
    repo = tmp_path / "fleet.git"
    make_bare(repo, {"server.yaml": SERVER}, message="one\n", author="Ana <ana@example.invalid>", now=time.time())

    assert run(["simulate", "--repo", str(repo)]) == Exit.REFUSED

    assert "there is no fleet to simulate" in capsys.readouterr().err


def test_a_recorded_fleet_has_the_memory_that_was_worked_out_from_a_lock():
    unwritten = model("m", profiles=[profile(memory_gib=None)])
    asked = wanting(unwritten)
    locked = replace(asked, models={"m": replace(asked.models["m"], lock=lock(**FACTS))})
    said = SeenNow("c" * 40, "c" * 40, canonical.spec(asked.server), specs(locked), Observed(), SETTLED)

    told = wanted_now(msgspec.json.decode(msgspec.json.encode(said), type=SeenNow))

    assert told is not None
    assert told.models["m"].sized == locked.models["m"].sized
    assert (told.models["m"].sized.profiles[0].memory_gib or 0) > 4
