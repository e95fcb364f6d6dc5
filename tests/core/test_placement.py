"""A node for each replica that is missing, or the rule that kept every node out."""

import pytest
from fleets import L40S, LLAMACPP, NOW, SETTLED, R, card, held, model, moves, node, profile, replica, wanting

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw_agent.protocol import Claim, InstalledEngine

EMBEDDED = (InstalledEngine("llamacpp", "2026.10", build="embedded", accelerators=("cpu",)),)


def placed(of, *nodes, **server):
    """Where each started replica goes, by id; and why what is not started is not."""
    names = [n.name for n in nodes]
    plan = decide(wanting(of, nodes=server.pop("nodes", names), **server), Observed(nodes), SETTLED, NOW)
    return {a.id: a.node for a in plan.actions}, [h.sentence for h in plan.held]


def test_replicas_of_a_model_spread_over_nodes():
    where, _ = placed(model(cpu=4), node("n1"), node("n2"))

    assert where == {"m/cpu/0": "n1", "m/cpu/1": "n2", "m/cpu/2": "n1", "m/cpu/3": "n2"}


def test_of_equal_nodes_the_one_that_holds_the_weights_is_taken():
    of = model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1"})
    seen = Observed((node("n1"), node("n2", versions=["m/1"])))
    memory = SETTLED.__class__(started_at=0, settled=True, epoch=1, files={"m/1": ()})
    wanted = wanting(of, mirror={"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082"})

    plan = decide(wanted, seen, memory, NOW)

    assert [a.node for a in plan.actions] == ["n2"]


def test_of_equal_nodes_the_fullest_that_has_room_is_taken_so_that_large_ones_stay_whole():
    where, _ = placed(model(cpu=1), node("big", memory_gib=512), node("small", memory_gib=8))

    assert where == {"m/cpu/0": "small"}


def test_a_replica_takes_cards_of_its_class_and_no_two_take_the_same():
    of = model(profiles=[profile("gpu", gpu={"class": L40S, "count": 2}, replicas=2)])

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", cards=4),)), SETTLED, NOW)

    assert [p.devices for p in plan.placements] == [("GPU-0", "GPU-1"), ("GPU-2", "GPU-3")]


@pytest.mark.parametrize(
    ("of", "where", "why"),
    [
        pytest.param(
            model(cpu=1),
            node(memory_gib=0.5),
            "m/cpu/0: no node has room for it (n1: 0.5 GiB of memory short; it would fit on n1 "
            "with 0.5 GiB less memory)",
            id="memory",
        ),
        pytest.param(
            model(cpu=1),
            node(memory_gib=4, used_gib=3.5),
            "m/cpu/0: no node has room for it (n1: 0.5 GiB of memory short; it would fit on n1 "
            "with 0.5 GiB less memory)",
            id="memory that others use counts as used",
        ),
        pytest.param(
            model(profiles=[profile(cpu_cores=9)]),
            node(cores=8),
            "m/cpu/0: no node has room for it (n1: 1 CPU cores short; it would fit on n1 with 1 core less)",
            id="cores",
        ),
        pytest.param(
            model(gpu=1),
            node(cards=[card(0, card_class="t4-16g")]),
            "m/gpu/0: no node has room for it (n1: it has no l40s-48g; it would fit on n1 with 1 l40s-48g)",
            id="card class",
        ),
        pytest.param(
            model(gpu=1),
            node(cards=[card(0, used_gib=27)]),
            "m/gpu/0: no node has room for it (n1: 1 l40s-48g short of 1, 27.0 GiB of GPU-0 held by others; "
            "it would fit on n1 with 1 more free)",
            id="GS1 a card that another program holds is short and says how much",
        ),
        pytest.param(
            model(gpu=1),
            node(engines=EMBEDDED),
            "m/gpu/0: no node has llamacpp for it (n1: its llamacpp is for CPUs; it would fit on n1 "
            "with a llamacpp for its cards installed); install llamacpp where it should run",
            id="the embedded engine never satisfies a card profile",
        ),
        pytest.param(
            model(profiles=[profile(engine="vllm")]),
            node(),
            "m/cpu/0: no node has vllm for it (n1: it reports no vllm; it would fit on n1 with vllm installed); "
            "install vllm where it should run",
            id="engine",
        ),
        pytest.param(
            model(profiles=[profile(node_selector={"rack": "a"})]),
            node(),
            "m/cpu/0: no node has its labels (rack: a) (n1: it has no label rack=a; it would fit on n1 "
            "with the label rack=a); give a node these labels, or change node_selector",
            id="labels",
        ),
        pytest.param(
            model(cpu=1),
            node(age_s=100.0),
            "m/cpu/0: no node reports (n1: it is silent; it would fit on n1 once it reports again); "
            "see that an agent runs: llmgw-agent",
            id="nothing is asked of a silent node",
        ),
    ],
)
def test_what_keeps_a_replica_off_a_node_is_said_with_how_much(of, where, why):
    started, said = placed(of, where)

    assert started == {}
    assert said == [why]


def test_the_reason_counts_the_nodes_of_each_rule_and_names_the_nearest():
    of = model(cpu=1)

    _, said = placed(of, node("n1", memory_gib=0.2), node("n2", memory_gib=0.9), node("n3", engines=()))

    assert said == [
        "m/cpu/0: no node has room for it (n3: it reports no llamacpp; n2: 0.1 GiB of memory short, and 1 more; "
        "it would fit on n2 with 0.1 GiB less memory)"
    ]


def test_a_path_is_read_only_where_the_nodes_agent_allows_it():
    of = model(cpu=1, source={"from": "/mnt/models/m.gguf"})
    closed = node("n1")
    closed = closed.__class__("n1", 1.0, "boot", closed.inventory.__class__("n1", 8, 1 << 40, engines=LLAMACPP))

    _, said = placed(of, closed)

    assert said == [
        "m/cpu/0: no node may read /mnt/models/m.gguf (n1: its agent does not allow path:/mnt/models/m.gguf; "
        "it would fit on n1 were path:/mnt/models/m.gguf allowed there); allow it where it should run: "
        '`allow = ["path:/mnt/models/m.gguf"]` in the agent\'s file, or llmgw up --allow-path'
    ]


def test_an_agent_that_does_not_say_its_engines_is_not_excluded():
    where, _ = placed(model(cpu=1), node("n1", engines=None))

    assert where == {"m/cpu/0": "n1"}


def test_a_drained_node_gets_nothing_new_and_what_runs_there_moves_off_once_another_serves():
    of = model(cpu=1)
    drained = [{"name": "n1", "address": "10.0.0.1", "drained": True}, "n2"]
    wanted = wanting(of, nodes=drained)
    before = Observed((node("n1", replica("m/cpu/0", of)), node("n2")))
    during = Observed((node("n1", replica("m/cpu/0", of)), node("n2", replica("m/cpu/1", of))))

    first = decide(wanted, before, SETTLED, NOW)
    second = decide(wanted, during, SETTLED, NOW)

    assert [(a.id, a.node) for a in first.actions] == [("m/cpu/1", "n2")]
    assert moves(second) == ["-m/cpu/0"]


def test_a_guaranteed_model_is_placed_before_a_standard_one():
    low = model("a-first-by-name", cpu=1)
    high = model("z", cpu=1, **{"class": "guaranteed"})

    plan = decide(wanting(low, high, nodes=["n1"]), Observed((node(memory_gib=1),)), SETTLED, NOW)

    assert moves(plan) == ["+z/cpu/0"]
    assert held(plan) == ["a-first-by-name/cpu/0: no node has room for it"]


def test_a_running_replica_that_uses_more_than_it_claimed_is_charged_what_it_uses():
    # GS1: a scheduler that counts its own claims only puts a second engine where the first one is.
    of = model(cpu=2)
    seen = Observed((node("n1", replica("m/cpu/0", of, R, memory_bytes=3 << 30), memory_gib=3.5),))

    plan = decide(wanting(of, nodes=["n1"]), seen, SETTLED, NOW)

    assert [h.sentence for h in plan.held] == [
        "m/cpu/1: no node has room for it (n1: 0.5 GiB of memory short; it would fit on n1 with 0.5 GiB less memory)",
    ]


def test_beside_a_card_a_replica_takes_one_core_and_a_cpu_profile_takes_no_card():
    of = model(profiles=[profile("gpu", gpu={"class": L40S}, cpu_cores=None), profile("cpu", cpu_cores=0)])

    plan = decide(wanting(of, nodes=["n1"]), Observed((node(cores=8),)), SETTLED, NOW)

    assert [(p.id, p.claim.cpu_cores, p.claim.cards, p.devices) for p in plan.placements] == [
        ("m/cpu/0", 0, 0, ()),
        ("m/gpu/0", 1, 1, ("GPU-0",)),
    ]


def test_without_cores_in_the_profile_a_replica_takes_half_of_the_nodes():
    of = model(profiles=[profile(cpu_cores=None, replicas=2)])

    plan = decide(wanting(of, nodes=["n1"]), Observed((node(cores=8),)), SETTLED, NOW)

    assert [p.claim.cpu_cores for p in plan.placements] == [4, 4]


def test_a_drained_node_is_among_those_that_do_not_do():
    entries = [{"name": "n1", "address": "10.0.0.1", "drained": True}, {"name": "n2", "address": "10.0.0.2"}]
    seen = Observed((node("n1"), node("n2", memory_gib=0.5)))

    plan = decide(wanting(model("m", cpu=1), nodes=entries), seen, SETTLED, NOW)

    assert moves(plan) == []
    (reasons,) = (h.reasons for h in plan.held if h.reasons)
    assert [(r.rule, [n.node for n in r.nearest]) for r in reasons] == [("not drained", ["n1"]), ("memory", ["n2"])]


def test_a_replica_that_claims_more_cards_than_there_are_takes_what_there_is_and_ends_no_pass():
    m = model("m", profiles=[profile(gpu={"class": L40S}, replicas=2)])
    huge = replica("m/cpu/0", m, claim=Claim(1 << 30, 1, 2**40))
    seen = Observed((node("n1", huge, cards=2), node("n2", cards=2)))

    plan = decide(wanting(m, nodes=["n1", "n2"]), seen, SETTLED, NOW)

    assert {p.id: p.node for p in plan.placements} == {"m/cpu/0": "n1", "m/cpu/1": "n2"}


def test_a_card_that_is_reported_twice_is_given_once():
    m = model("m", profiles=[profile("gpu", gpu={"class": L40S}, replicas=2)])

    plan = decide(wanting(m, nodes=["n1"]), Observed((node("n1", cards=[card(0), card(0)]),)), SETTLED, NOW)

    assert [p.devices for p in plan.placements] == [("GPU-0",)]
