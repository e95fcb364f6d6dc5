"""The machines that a model is judged for, from every place where they may be told of."""

from __future__ import annotations

import fleets
import msgspec
import pytest
import yaml

from llmgw.cli.machines import from_file, known
from llmgw.core.machines import machines
from llmgw.core.observed import Observed
from llmgw.core.replicas import survey
from llmgw.units import GIB


def test_a_node_s_file_of_the_status_branch_tells_of_its_machine(tmp_path):
    seen = fleets.node("n1", cards=2, used_gib=6)
    document = {"name": "n1", "standing": "usable", "inventory": msgspec.to_builtins(seen.inventory)}
    (tmp_path / "n1.yaml").write_text(yaml.safe_dump(document))

    (machine,) = from_file(tmp_path / "n1.yaml")

    assert (machine.name, machine.memory_bytes, machine.cores) == ("n1", 250 * GIB, 64)
    assert [(c.card_class, c.count, c.free) for c in machine.cards] == [("l40s-48g", 2, 2)]
    # The driver's own figure, and not the table's.
    assert machine.cards[0].card.memory_bytes == 45 * GIB
    assert machine.cards[0].card.bandwidth_gbs == 864
    assert machine.has("llamacpp", "nvidia")
    assert not machine.has("vllm")


def test_what_replicas_hold_is_not_free_and_what_is_drained_or_silent_is_not_there():
    of = fleets.model(profiles=[fleets.profile("gpu", gpu={"class": "l40s-48g", "count": 1})])
    taken = fleets.node("n1", fleets.replica("m/gpu/0", of, devices=("GPU-0",)), cards=2)
    wanted = fleets.wanting(of, nodes=("n1", "n2", "n3"))
    seen = Observed((taken, fleets.node("n2", age_s=1000.0), fleets.node("n3", cards=0)))

    found = machines(survey(wanted, seen, fleets.SETTLED, fleets.NOW))

    assert [m.name for m in found] == ["n1", "n3"]
    assert [(c.count, c.free) for c in found[0].cards] == [(2, 1)]
    assert found[0].memory_bytes - found[0].free_bytes == taken.replicas[0].claim.memory_bytes > 0
    assert found[1].free_bytes == found[1].memory_bytes


@pytest.mark.parametrize("there", [True, False])
def test_without_a_fleet_it_is_this_machine(tmp_path, monkeypatch, there):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path if there else "/proc/nowhere"))

    found = known(tmp_path)

    assert (found.how, [m.name for m in found.machines]) == ("this machine", ["here"])
    assert found.machines[0].memory_bytes > 0
    assert (tmp_path / "llmgw/bandwidth.json").exists() == there
