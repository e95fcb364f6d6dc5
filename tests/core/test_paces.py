"""A profile that would be very slow is refused, unless its file says that this is meant."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import node
from locks import FACTS, lock
from msgspec import structs

from llmgw.catalog.check import Catalog, read_fleet
from llmgw.core.paces import judged, paced
from llmgw.core.wanted import judge

SERVER = """\
schema: 1
cluster: lab
nodes:
  - {name: n1, address: 10.0.0.5, labels: {kind: big}}
  - {name: n2, address: 10.0.0.6}
"""
MODEL = """\
name: m
source: {from: /m.gguf}
context_length: 4096
profiles:
  - name: cpu
    engine: llamacpp
    replicas: 1
    memory_gib: 8
"""
EIGHT_B, SEVENTY_B = 4_920_000_000, 42_500_000_000


def catalog(size: int = SEVENTY_B, profile: str = "", server: str = "") -> Catalog:
    """A fleet of two nodes with one model, whose lock says how large its files are."""
    read = read_fleet({"server.yaml": (SERVER + server).encode(), "catalog/m.yaml": (MODEL + profile).encode()})
    assert not read.problems
    scale = size / EIGHT_B
    facts = {k: round(v * scale) if k.startswith("weights.") else v for k, v in FACTS.items()}
    return replace(read, locks={"m": lock(size, **facts)})


def measured(name: str, gbs: float | None, core: float | None = None):
    has = node(name)
    return structs.replace(has, inventory=structs.replace(has.inventory, memory_gbs=gbs, memory_core_gbs=core))


@pytest.fixture
def slow():
    """Nodes whose memory was measured to be as slow as servers have it."""
    return [measured("n1", 40.0), measured("n2", 40.0)]


def told(catalog: Catalog) -> list[str]:
    return [f"{p.where}: {p.what}: {p.why}" for p in catalog.problems]


def test_a_cpu_profile_that_would_be_very_slow_is_refused_with_what_was_measured(slow):
    found = paced(catalog(), slow)

    assert found.models == ()
    assert found.frozen == ("m",)
    assert told(found) == [
        "catalog/m.yaml:5:5: profile cpu would be too slow: ~0.6 tok/s, very slow is predicted (memory measured on "
        "n2), so that a reply of 500 tokens takes about 13 minutes; a CPU profile is not under 5 unless its "
        "`min_tps` says that it may be"
    ]
    assert "if it is meant, write `min_tps: 0.6` in the profile" in found.problems[0].do


@pytest.mark.parametrize(
    ("size", "profile", "server", "refused"),
    [
        pytest.param(EIGHT_B, "", "", False, id="slow is no reason: 5 and more are a choice nobody has to explain"),
        pytest.param(SEVENTY_B, "    min_tps: 0.6\n", "", False, id="written at the prediction, it is meant"),
        pytest.param(SEVENTY_B, "    min_tps: 0.5\n", "", False, id="written below the prediction, it is meant"),
        pytest.param(SEVENTY_B, "    min_tps: 1\n", "", True, id="written above the prediction, it is not reached"),
        pytest.param(EIGHT_B, "    min_tps: 20\n", "", True, id="more may be asked for than the fleet does"),
        pytest.param(EIGHT_B, "", "policy: {min_tps: 10}\n", True, id="the fleet's floor is above 5"),
        pytest.param(SEVENTY_B, "", "policy: {min_tps: 0.1}\n", False, id="the fleet's floor is below 5"),
        pytest.param(EIGHT_B, "    min_tps: 1\n", "policy: {min_tps: 10}\n", True, id="no profile asks for less"),
        pytest.param(EIGHT_B, "    min_tps: 1\n", "policy: {min_tps: 2}\n", False, id="both are reached"),
    ],
)
def test_the_floor_is_the_profile_s_the_fleet_s_or_5(size, profile, server, refused, slow):
    assert bool(paced(catalog(size, profile, server), slow).problems) == refused


def test_no_less_than_the_fleet_s_floor_is_proposed(slow):
    found = paced(catalog(server="policy: {min_tps: 3}\n"), slow)

    assert "`policy.min_tps` of server.yaml is 3" in found.problems[0].why
    assert "if it is meant" not in found.problems[0].do


@pytest.mark.parametrize("profile", ["", "    min_tps: 1\n"])
@pytest.mark.parametrize(
    "nodes",
    [[], [measured("n1", None)], [measured("n1", 12.0), measured("n2", None)]],
    ids=["no node", "not measured", "one of two not measured"],
)
def test_what_nobody_has_measured_is_not_refused(profile, nodes):
    assert paced(catalog(profile=profile), nodes).problems == ()


def test_what_the_nodes_measured_counts_and_the_quickest_of_them():
    quick = [measured("n1", 460.0, 30.0), measured("n2", 12.0, 12.0)]

    assert paced(catalog(), quick).problems == ()
    assert "memory measured on n2" in paced(catalog(EIGHT_B), quick[1:]).problems[0].why


def test_a_node_that_its_labels_do_not_allow_does_not_count():
    nodes = [measured("n1", 12.0, 12.0), measured("n2", 460.0, 30.0)]

    assert paced(catalog(EIGHT_B), nodes).problems == ()
    assert paced(catalog(EIGHT_B, "    node_selector: {kind: big}\n"), nodes).problems


def test_few_cores_read_less_than_all():
    nodes = [measured("n1", 400.0, 12.0)]

    assert paced(catalog(EIGHT_B, "    cpu_cores: 16\n"), nodes).problems == ()
    assert paced(catalog(EIGHT_B, "    cpu_cores: 1\n"), nodes).problems


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({}, id="no lock"),
        pytest.param({"m": lock(None, **FACTS)}, id="no size"),
        pytest.param({"m": lock(SEVENTY_B)}, id="no facts"),
        pytest.param({"m": lock(SEVENTY_B, **FACTS, answers=False)}, id="it gives no replies"),
        pytest.param({"m": lock(SEVENTY_B, architecture="brand-new")}, id="unknown architecture"),
        pytest.param({"m": lock(SEVENTY_B, **FACTS | {"heads": [1]})}, id="facts of a later version"),
    ],
)
def test_what_is_not_known_is_not_refused(known):
    unknown = replace(catalog(), locks=known)

    assert not judged(unknown)
    assert paced(unknown) == unknown


def test_a_profile_on_cards_has_no_floor_of_its_own():
    cards = MODEL.replace("    memory_gib: 8\n", "    memory_gib: 8\n    gpu: {class: l40s-48g, count: 1}\n")
    read = read_fleet({"server.yaml": SERVER.encode(), "catalog/m.yaml": cards.encode()})

    assert paced(replace(read, locks={"m": lock(SEVENTY_B, **FACTS)})).problems == ()


def test_what_runs_as_it_is_written_is_not_judged_again(slow):
    before = judge(catalog(), commit="a" * 40, committed_at=0, last=None)

    assert paced(catalog(), [measured("n1", 12.0, 12.0)], before).problems == ()
    assert paced(catalog(profile="    priority: 3\n"), slow, before).problems
