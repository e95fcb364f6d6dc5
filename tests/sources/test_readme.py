"""The first line of a status: how many, and how much of it needs a person."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from llmgw.core.headroom import Left
from llmgw.core.holdings import Failure, HoldingState
from llmgw.core.model_status import Taken
from llmgw.core.problems import dated
from llmgw.core.status import (
    Condition,
    FleetStatus,
    HoldingStatus,
    MirrorStatus,
    ModelNow,
    ModelStatus,
    NodeStatus,
    ProfileStatus,
    ReplicaStatus,
)
from llmgw.sources.readme import headline, readme
from llmgw_agent.protocol import Card, HeldVersion, Inventory, Phase, WeightFile


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
            fleet(
                model(frozen=f"stays as it was at cccc: {BROKEN}"),
                problems=(BROKEN, OTHER),
                held=("5 models would go",),
            ),
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


FILES = (WeightFile("m.gguf", 18_600_000_000, "a" * 64),)


def test_the_mirror_is_grouped_by_family_and_says_for_whom_a_version_is_and_where_it_lies():
    gone = Failure("not_found", "https://hub.example/m.gguf is not there", "name another")
    holdings = (
        HoldingStatus("m", "1", HoldingState.PRESENT, files=FILES, bytes=18_600_000_000, models=("m", "slow")),
        HoldingStatus("m", "2", HoldingState.FETCHING, bytes=18_600_000_000, arrived=75, models=("off",)),
        HoldingStatus("old", "1", HoldingState.PRESENT, files=FILES, bytes=18_600_000_000),
        HoldingStatus("wrong", "1", HoldingState.FAILED, failure=gone),
    )
    held = (HeldVersion("m", "1", "held", 18_600_000_000), HeldVersion("old", "1", "held", 18_600_000_000))
    nodes = (
        NodeStatus("n1", "usable", versions=held, unwanted=("old/1",)),
        NodeStatus("n2", "usable", versions=held[:1]),
    )
    models = (model(), replace(model("idle", 0), name="slow"), replace(model("stopped", 0), name="off"))

    page = readme(fleet(*models, nodes=nodes, mirror=MirrorStatus(True, holdings, disk_free_gib=900)), None)

    assert page[page.index("## Mirror") : page.index("## Mirror") + 1000].split("\n\n")[:3] == [
        "## Mirror",
        "It holds 4 versions of 37.2 GB, 900 GiB free.",
        """| family | version | state | files | size | used by | on nodes |
|---|---|---|---|---|---|---|
| m | 1 | present | 1 | 18.6 GB | m (1 of 1 ready), slow (starts when asked) | 2 |
|  | 2 | fetching, over 75 % | ? | 18.6 GB | off (stopped) | 0 |
| old | 1 | present | 1 | 18.6 GB | not served: `llmgw model add mirror:old/1` | 1 |
| wrong | 1 | failed: https://hub.example/m.gguf is not there; next: name another | ? | ? | not served | 0 |
""",
    ]
    assert "| 2 held, 1 for no model (18.6 GB) |" in page


@pytest.mark.parametrize(
    ("holdings", "said"),
    [
        ((), "Nor is it known what it held before."),
        (
            (HoldingStatus("m", "1", HoldingState.PRESENT, files=FILES),),
            "When it was last seen it held 1 version:",
        ),
    ],
)
def test_a_mirror_that_cannot_be_reached_is_never_shown_as_empty(holdings, said):
    page = readme(fleet(mirror=MirrorStatus(reachable=False, holdings=holdings)), None)

    assert f"**It cannot be reached**, which does not mean that it is empty. {said}" in page
    assert "It holds nothing" not in page


def test_a_mirror_that_holds_nothing_is_said_to():
    assert "It holds nothing." in readme(fleet(mirror=MirrorStatus(True)), None)


def test_how_fast_a_model_answers_and_what_one_takes_is_said_with_what_was_only_worked_out():
    taken = (
        Taken("cpu", 4 << 30, tps=8.26),
        Taken("gpu", 1 << 30, cards=2, card_bytes=40 << 30, tps=51.5, measured=True),
        Taken("odd", 1 << 30),
    )

    page = readme(fleet(model(now=ModelNow(taken=taken))), None)

    assert "| about 8.26 cpu, 51.5 gpu | 4.0 GiB cpu, 1.0 GiB and 40.0 GiB on 2 cards gpu, 1.0 GiB odd |" in page


def test_what_needs_a_person_comes_first_and_what_takes_time_is_apart_from_it():
    waits = Condition("m/cpu/0", "the mirror fetches its weights")
    page = readme(
        dated(fleet(model("reconciling", 0, conditions=(waits,)), nodes=(NodeStatus("n1", "lost"),)), None, 1.8e9), None
    )

    assert page.startswith("# lab: 0 of 1 replicas ready, 1 thing to look at\n")
    since = "(since 2027-01-15 08:00 UTC)"
    assert page[page.index("**Nothing") : page.index("## Models")].splitlines() == [
        "**Nothing of m is ready.**",
        "",
        "## To look at",
        "",
        f"- **node n1** it is lost: what ran there is replaced elsewhere {since}  ",
        "  *next:* see whether n1 is on, its agent runs there, and reaches control",
        "",
        "## On its way: nobody has to do anything",
        "",
        f"- **m/cpu** the mirror fetches its weights {since}",
        "",
    ]


def test_a_model_that_starts_when_it_is_asked_is_said_to_and_is_not_down():
    page = readme(fleet(ModelStatus("m", "idle", profiles=(ProfileStatus("cpu", 0, 0),))), None)

    assert "| m | starts when asked | 0/0 cpu |" in page
    assert "Nothing of" not in page


def test_a_page_of_a_thousand_problems_names_two_hundred_and_where_the_rest_is():
    page = readme(fleet(nodes=tuple(NodeStatus(f"n{n}", "lost") for n in range(1000))), None)

    assert page.count("- **node") == 200
    assert "800 more are in `problems.yaml`." in page
    assert "800 more are in `nodes/`." in page


@pytest.mark.parametrize(("replicas", "drawn"), [(0, False), (1, True), (40, True), (41, False)])
def test_up_to_forty_replicas_are_drawn(replicas, drawn):
    on = tuple(ReplicaStatus(f"m/cpu/{n}", 1, Phase.READY) for n in range(replicas))
    page = readme(fleet(nodes=(NodeStatus("n1", "silent", replicas=on),)), None)

    assert ("```mermaid\nflowchart LR\n" in page) is drawn
    if drawn:
        assert '  subgraph n0["n1, silent"]\n    n0r0["m/cpu/0<br/>ready"]:::coming\n' in page
