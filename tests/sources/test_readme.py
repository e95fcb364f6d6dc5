"""The first line of a status: how many, and how much of it needs a person."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from llmgw.core.headroom import Left
from llmgw.core.status import Condition, FleetStatus, MirrorStatus, ModelNow, ModelStatus, NodeStatus, ProfileStatus
from llmgw.sources.readme import headline, readme
from llmgw_agent.protocol import Card, Inventory


def fleet(*models, nodes=(), **more):
    return FleetStatus("lab", "c" * 40, settled=True, models=models, nodes=nodes, **more)


def model(state="ready", ready=1, **more):
    return ModelStatus("m", state, path="catalog/m.yaml", profiles=(ProfileStatus("cpu", 1, ready),), **more)


BROKEN = "catalog/m.yaml:3:1: this is not YAML"
OTHER = "catalog/n.yaml:1:1: this is not YAML"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param(fleet(model()), "as asked, 1 of 1 replicas ready", id="nothing"),
        pytest.param(fleet(model("reconciling", 0)), "0 of 1 replicas ready, on its way", id="under way"),
        pytest.param(fleet(model("stalled", 0)), "0 of 1 replicas ready, 1 thing to look at", id="stalled"),
        pytest.param(
            fleet(model("stalled", 0), problems=(OTHER,)),
            "0 of 1 replicas ready, 2 things to look at",
            id="stalled, and another file is broken",
        ),
        pytest.param(
            fleet(model(frozen=f"stays as it was at cccc: {BROKEN}"), problems=(BROKEN,)),
            "1 of 1 replicas ready, 1 thing to look at",
            id="a broken file and the model it keeps are one thing",
        ),
        pytest.param(
            fleet(model(frozen=f"stays as it was at cccc: {BROKEN}"), problems=(BROKEN, OTHER), held=("5 models would go",)),
            "1 of 1 replicas ready, 3 things to look at",
            id="two files and a removal that is held",
        ),
        pytest.param(
            fleet(model("reconciling", 0), nodes=(NodeStatus("n1", "silent"), NodeStatus("n2", "usable"))),
            "0 of 1 replicas ready, 1 thing to look at",
            id="a silent node",
        ),
        pytest.param(
            fleet(model("reconciling", 0), mirror=MirrorStatus(reachable=False)),
            "0 of 1 replicas ready, 1 thing to look at",
            id="a mirror that is away",
        ),
    ],
)
def test_the_first_line_counts_what_needs_a_person(status, said):
    assert headline(status) == said


def test_how_many_more_would_fit_is_a_table_of_its_own_and_what_is_not_known_is_no_number():
    left = (Left("cpu", 2, 5, "n1: 0.5 GiB of memory short | more"), Left("gpu", why="its memory is not known"))

    page = readme(fleet(model(now=ModelNow(headroom=left))), None)

    assert "## Room for more" in page
    assert "| m | cpu | 2 | 5 | n1: 0.5 GiB of memory short \\| more |" in page
    assert "| m | gpu | ? | ? | its memory is not known |" in page
    assert "## Room for more" not in readme(fleet(model()), None)


def test_ka7_what_is_not_well_on_a_node_is_said_with_what_helps_and_its_cards_are_counted():
    whole, part = Card("GPU-0", "", "nvidia", "a100-80g", 1), Card("", "", "nvidia", "a100-80g", 1, parent="GPU-0")
    cards = (whole, Card("GPU-1", "", "nvidia", "l40s-48g", 1), *(replace(part, uuid=u, slice="1g.10gb") for u in "ab"))
    sick = Condition("n1", "GPU-1 is not well (lost): nothing new is put on it", "switch n1 off and on")
    node = NodeStatus("n1", "usable", inventory=Inventory("n1", 8, 1 << 30, cards=cards), conditions=(sick,))

    page = readme(fleet(model(), nodes=(node,)), None)

    assert (
        "- **node n1** GPU-1 is not well (lost): nothing new is put on it  \n  *next:* switch n1 off and on\n" in page
    )
    assert "| 2 a100-80g 1g.10gb, 1 l40s-48g |" in page
