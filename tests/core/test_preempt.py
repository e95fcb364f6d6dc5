"""Who gives way: classes, and models on demand that share a card."""

from __future__ import annotations

import pytest
from fleets import L40S, NOW, SETTLED, F, R, S, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.core.decide import decide
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.memory import Scale
from llmgw.core.observed import DemandSeen, Load, Observed
from llmgw.core.preempt import TURN_S
from llmgw_agent.protocol import Action, Claim, Phase, WeightFile, split_id

GIB = 1 << 30
CLASSES = ("guaranteed", "standard", "opportunistic")


def sized(name: str, class_: str = "standard", *, memory_gib: int = 4, replicas: int = 1):
    """A model of so many GiB."""
    return model(name, profiles=[profile(replicas=replicas, memory_gib=memory_gib)], **{"class": class_})


def at(of, n: int = 0, *, memory_gib: int = 4, **fields):
    return replica(f"{of.name}/cpu/{n}", of, claim=Claim(memory_gib * GIB, 1), **fields)


def on_one_node(*models, running, memory_gib: float = 8, **demand):
    """A pass over a node of 8 GiB."""
    seen = Observed((node("n1", *running, memory_gib=memory_gib),), demand=DemandSeen(**demand))
    return decide(wanting(*models, nodes=["n1"]), seen, SETTLED, NOW)


@pytest.mark.parametrize("high", CLASSES)
@pytest.mark.parametrize("low", CLASSES)
def test_a_class_takes_room_from_lower_ones_only(high, low):
    a, b = sized("a", high, memory_gib=8), sized("b", low, memory_gib=8)

    plan = on_one_node(a, b, running=[at(b, memory_gib=8)])

    gives_way = CLASSES.index(high) < CLASSES.index(low)
    assert moves(plan) == (["-b/cpu/0"] if gives_way else [])
    assert "a/cpu/0" in [h.subject for h in plan.held]


def test_what_gives_way_is_said_on_both_sides_and_comes_back_by_itself():
    a, b = sized("a", "guaranteed", memory_gib=8), sized("b", memory_gib=8)
    running = at(b, memory_gib=8)

    first = on_one_node(a, b, running=[running])
    assert [s.why for s in first.actions] == ["it gives way to a/cpu/0, whose class is guaranteed"]
    assert held(first) == ["a/cpu/0: it waits until b/cpu/0 on n1 gave way to it"]

    # It is gone, and the room is taken by what it was taken for.
    empty = Observed((node("n1", memory_gib=8),))
    second = decide(wanting(a, b, nodes=["n1"]), empty, structs.replace(first.memory, placements=()), NOW + 60)
    assert moves(second) == ["+a/cpu/0"]
    assert held(second) == ["b/cpu/0: it gave way to a, and no node has room for it"]

    # What it gave way to is stopped: it starts again.
    stopped = a.model_copy(update={"state": "stopped"})
    third = decide(wanting(stopped, b, nodes=["n1"]), empty, structs.replace(second.memory, placements=()), NOW + 120)
    assert moves(third) == ["+b/cpu/0"]
    assert third.memory.gave_way == {}


def test_the_first_to_go_leaves_its_place_to_nobody_else_while_the_other_still_stops():
    # b has gone and c still stops: b would fit where it was, and would have to give way to a again.
    a = sized("a", "guaranteed", memory_gib=8)
    b, c = sized("b"), sized("c")

    plan = on_one_node(a, b, c, running=[at(c, phase=Phase.STOPPING)])

    assert moves(plan) == []
    assert held(plan) == [
        "a/cpu/0: it waits until what is stopping has made room",
        "b/cpu/0: it waits until a/cpu/0 has its place on n1",
        "c/cpu/1: no node has room for it",
    ]


def test_what_one_waits_for_no_other_counts_on():
    # Once c has gone there is room for one of the two: the other is not told to wait for the same.
    a, b, c = sized("a", "guaranteed"), sized("b", memory_gib=4), sized("c", "opportunistic")

    plan = on_one_node(a, b, c, running=[at(c, phase=Phase.STOPPING)], memory_gib=4)

    assert held(plan)[:2] == [
        "a/cpu/0: it waits until what is stopping has made room",
        "b/cpu/0: no node has room for it",
    ]


def test_nothing_gives_way_for_what_would_still_not_fit():
    a, b = sized("a", "guaranteed", memory_gib=16), sized("b", "opportunistic", replicas=2)

    plan = on_one_node(a, b, running=[at(b, 0), at(b, 1)])

    assert moves(plan) == []
    assert held(plan) == ["a/cpu/0: no node has room for it"]


def test_the_lowest_class_gives_way_first_and_no_more_of_it_than_is_needed():
    a = sized("a", "guaranteed")
    b, c = sized("b"), sized("c", "opportunistic")

    plan = on_one_node(a, b, c, running=[at(b), at(c)])

    assert moves(plan) == ["-c/cpu/0"]


def test_a_large_one_goes_alone_where_small_ones_would_not_do():
    # The small one is given up first, does not make the room, and is kept once the large one does.
    a = sized("a", "guaranteed", memory_gib=6)
    b = model("b", profiles=[profile(replicas=1, memory_gib=1)], **{"class": "opportunistic"})
    c = model("c", profiles=[profile(replicas=1, memory_gib=7)], **{"class": "opportunistic"})

    plan = on_one_node(a, b, c, running=[at(b, memory_gib=1), at(c, memory_gib=7)])

    assert moves(plan) == ["-c/cpu/0"]


def test_an_idle_one_gives_way_before_one_that_works():
    a, b, c = sized("a"), sized("b", "opportunistic"), sized("c", "opportunistic")

    plan = on_one_node(a, b, c, running=[at(b), at(c)], loads={"b": Load(in_flight=1), "c": Load(idle_for_s=1.0)})

    assert moves(plan) == ["-c/cpu/0"]


def test_the_one_asked_least_recently_gives_way_first():
    a, b, c = sized("a"), sized("b", "opportunistic"), sized("c", "opportunistic")

    plan = on_one_node(a, b, c, running=[at(b), at(c)], loads={"b": Load(idle_for_s=9.0), "c": Load(idle_for_s=1.0)})

    assert moves(plan) == ["-b/cpu/0"]


def test_the_node_where_least_is_lost_is_chosen():
    a, b, c = sized("a", "guaranteed", memory_gib=8), sized("b"), sized("c", "opportunistic", replicas=2)
    seen = Observed(
        (
            node("n1", at(b), at(c, 0), memory_gib=8),
            node("n2", at(c, 1), memory_gib=8),
        )
    )

    plan = decide(wanting(a, b, c), seen, SETTLED, NOW)

    assert moves(plan) == ["-c/cpu/1"]


def test_room_that_was_freed_for_one_is_not_counted_on_by_another():
    a, b = sized("a", "guaranteed", memory_gib=8), sized("b", "guaranteed", memory_gib=8)
    c = sized("c", memory_gib=8, replicas=2)
    seen = Observed(tuple(node(f"n{n}", at(c, n, memory_gib=8), memory_gib=8) for n in range(2)))

    plan = decide(wanting(a, b, c, nodes=["n0", "n1"]), seen, SETTLED, NOW)

    assert moves(plan) == ["-c/cpu/0", "-c/cpu/1"]


def test_a_successor_of_what_serves_takes_nobodys_room():
    old = {"fingerprint": "old"}
    a, b = sized("a", "guaranteed"), sized("b", "opportunistic")

    plan = on_one_node(a, b, running=[at(a, **old), at(b)])

    assert moves(plan) == []


def test_cards_give_way_too():
    gpu = {"class": L40S, "count": 1}
    a = model("a", profiles=[profile("gpu", gpu=gpu)], **{"class": "guaranteed"})
    b = model("b", profiles=[profile("gpu", gpu=gpu)])
    running = replica("b/gpu/0", b, devices=("GPU-0",))

    plan = decide(wanting(a, b, nodes=["n1"]), Observed((node("n1", running, cards=1),)), SETTLED, NOW)

    assert moves(plan) == ["-b/gpu/0"]


def test_what_is_on_its_way_out_is_waited_for_before_another_is_given_up():
    a, b, c = sized("a", "guaranteed"), sized("b"), sized("c", "opportunistic")
    leaving = structs.replace(at(b), phase=Phase.DRAINING)

    plan = on_one_node(a, b.model_copy(update={"state": "stopped"}), c, running=[leaving, at(c)])

    assert moves(plan) == []
    assert held(plan) == ["a/cpu/0: it waits until what is stopping has made room"]


@pytest.mark.parametrize("phase", [R, S])
def test_a_lower_class_gives_way_whether_it_serves_or_is_on_its_way(phase):
    a, b = sized("a", memory_gib=8), sized("b", "opportunistic", memory_gib=8)

    plan = on_one_node(a, b, running=[at(b, memory_gib=8, phase=phase)])

    assert moves(plan) == ["-b/cpu/0"]


def test_what_is_left_of_the_room_that_is_freed_is_waited_for_by_the_next():
    a, b, c = sized("a", "guaranteed"), sized("b", "guaranteed"), sized("c", memory_gib=8)

    plan = on_one_node(a, b, c, running=[at(c, memory_gib=8)])

    assert moves(plan) == ["-c/cpu/0"]
    assert held(plan) == [
        "a/cpu/0: it waits until c/cpu/0 on n1 gave way to it",
        "b/cpu/0: it waits until what is stopping has made room",
    ]


def test_what_runs_and_cannot_be_explained_gives_way_to_nobody():
    a = sized("a", "guaranteed", memory_gib=8)
    unknown = at(sized("left", "opportunistic"), memory_gib=8)
    seen = Observed((node("n1", unknown, memory_gib=8),))

    plan = decide(wanting(a, nodes=["n1"], complete=False), seen, SETTLED, NOW)

    assert moves(plan) == []


GPU = {"class": L40S, "count": 1}


def on_demand(name, version=None):
    source = {"from": "https://hub.example/m.gguf", "version": version} if version else {"from": "/m.gguf"}
    cards = [profile("gpu", gpu=GPU, replicas=None)]
    return model(name, profiles=cards, source=source, scaling={"min": 0, "max": 1, "idle_timeout": 9000})


@pytest.mark.parametrize(
    ("loads", "loaded", "goes"),
    [
        pytest.param({"b": Load(in_flight=1), "c": Load(idle_for_s=1)}, {"b": 1, "c": 9}, "c", id="the idle one first"),
        pytest.param(
            {"b": Load(idle_for_s=9), "c": Load(idle_for_s=8)},
            {"b": 9, "c": 1},
            "b",
            id="then the least recently asked",
        ),
        pytest.param(
            {"b": Load(idle_for_s=8), "c": Load(idle_for_s=8)}, {"b": 9, "c": 1}, "c", id="then the cheapest to load"
        ),
        pytest.param({"b": Load(idle_for_s=8), "c": Load(idle_for_s=8)}, {"b": 1, "c": 1}, "b", id="then by name"),
    ],
)
def test_on_demand_the_order_of_eviction_is_idle_least_recently_asked_cheapest_to_load(loads, loaded, goes):
    a, b, c = on_demand("a"), on_demand("b", "1"), on_demand("c", "1")
    held_ = [
        Holding(name, "1", HoldingState.PRESENT, files=(WeightFile("m.gguf", size * GIB, "0" * 64),))
        for name, size in loaded.items()
    ]
    running = [
        replica(f"{of.name}/gpu/0", of, devices=(f"GPU-{n}",), version=f"{of.name}/1") for n, of in enumerate((b, c))
    ]
    mirror = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082"}
    scales = {name: Scale(total=1, since=NOW - 100, counts={"gpu": 1}, on_demand=True, at=NOW) for name in "bc"}
    demand = DemandSeen({"a": Load(waiting=1), **loads})
    nodes = (node("n1", *running, cards=2, versions=["b/1", "c/1"]),)

    plan = decide(
        wanting(a, b, c, nodes=["n1"], mirror=mirror),
        Observed(nodes, MirrorSeen(tuple(held_)), demand),
        structs.replace(SETTLED, scales=scales),
        NOW,
    )

    assert moves(plan) == [f"-{goes}/gpu/0"]


class Sharing:
    """One card, models on demand of one slot each, and clients that always have the next request ready."""

    REQUEST_S = 6.0
    DRAIN_S = 60.0

    def __init__(self, names: str, load_s: float):
        self.models = {name: on_demand(name) for name in names}
        self.load_s, self.memory, self.now = load_s, SETTLED, NOW
        self.up = {}
        """What is on the card, by id and generation: its phase, and since when."""
        self.until = {}
        """When the request that a model answers ends."""
        self.asked = dict.fromkeys(names, NOW)
        """Since when the longest waiting request of each waits."""
        self.served, self.longest, self.aborted, self.swaps = dict.fromkeys(names, 0), 0.0, 0, 0

    def look(self, step_s: float = 6.0):
        """Let some seconds pass, then one pass."""
        self.now += step_s
        for key, (phase, since) in list(self.up.items()):
            name = split_id(key[0])[0]
            if phase is S and self.now - since >= self.load_s:
                self.up[key] = (R, self.now)
            if name in self.until and self.until[name] <= self.now:
                del self.until[name]
                self.served[name] += 1
                self.asked[name] = self.now
            if self.up[key][0] is R and name not in self.until:
                self.longest = max(self.longest, self.now - self.asked[name])
                self.until[name] = self.now + self.REQUEST_S
            if phase is Phase.DRAINING and (name not in self.until or self.now - since >= self.DRAIN_S):
                self.aborted += name in self.until
                del self.up[key]
        running = [
            replica(rid, self.models[name], phase, generation=generation, age_s=self.now - since, devices=("GPU-0",))
            for (rid, generation), (phase, since) in self.up.items()
            for name in (split_id(rid)[0],)
        ]
        loads = {name: Load(int(name not in self.until), int(name in self.until)) for name in self.models}
        seen = Observed((node("n1", *running, cards=1),), demand=DemandSeen(loads))
        plan = decide(wanting(*self.models.values(), nodes=["n1"]), seen, self.memory, self.now)
        told = {(p.id, p.generation): p.action for p in plan.placements}
        for key in told.keys() - self.up.keys():
            if told[key] is not Action.DRAIN:
                self.up[key] = (S, self.now)
                self.swaps += 1
        for key, (phase, _) in list(self.up.items()):
            if told.get(key) is Action.DRAIN and phase is not Phase.DRAINING:
                self.up[key] = (Phase.DRAINING, self.now)
        stay = tuple(p for p in plan.placements if (p.id, p.generation) in self.up)
        self.memory = structs.replace(plan.memory, placements=stay)


@pytest.mark.parametrize("load_s", [20, 180])
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_models_that_share_a_card_are_each_served_within_a_bounded_wait_however_long_they_load(names, load_s):
    """None is stopped before it has had its turn, and no request is cut off (LS6, LS7)."""
    shared = Sharing(names, load_s)
    turn = load_s + TURN_S + Sharing.REQUEST_S + 30

    while shared.now < NOW + 3 * len(names) * turn:
        shared.look()

    assert shared.aborted == 0
    assert shared.longest <= len(names) * turn
    assert all(n >= TURN_S / Sharing.REQUEST_S / 2 for n in shared.served.values())
    assert shared.swaps <= 1 + (shared.now - NOW) / (load_s + TURN_S)


def failing(of, attempts: int):
    return at(of, phase=F, attempts=attempts, age_s=700.0, memory_gib=8)


@pytest.mark.parametrize(("attempts", "goes"), [(0, ["-b/cpu/0"]), (1, ["-b/cpu/0"]), (2, []), (3, []), (4, [])])
def test_a_class_takes_no_room_for_a_model_that_keeps_failing_and_that_is_said(attempts, goes):
    a, b = sized("a", "guaranteed", memory_gib=8), sized("b", memory_gib=8)

    plan = on_one_node(a, b, running=[at(b, memory_gib=8), *([failing(a, attempts)] if attempts else [])])

    assert moves(plan) == goes
    assert attempts < 2 or held(plan) == [
        f"a/cpu/0: no node has room for it, and b/cpu/0 does not give way to what failed {attempts} times"
    ]


def test_on_demand_none_gives_way_to_one_that_keeps_failing():
    a, b = on_demand("a"), on_demand("b")
    failed = replica("a/gpu/0", a, F, attempts=2, age_s=700.0)
    seen = Observed(
        (node("n1", replica("b/gpu/0", b, devices=("GPU-0",)), failed, cards=1),),
        demand=DemandSeen({"a": Load(waiting=1), "b": Load(idle_for_s=9.0)}),
    )
    scales = {name: Scale(1, NOW - 100, {"gpu": 1}, on_demand=True, at=NOW) for name in "ab"}

    plan = decide(wanting(a, b, nodes=["n1"]), seen, structs.replace(SETTLED, scales=scales), NOW)

    assert moves(plan) == []


@pytest.mark.parametrize("class_", ["standard", "opportunistic"])
def test_room_is_not_taken_where_a_model_just_failed_while_another_would_give_way_elsewhere(class_):
    # What gives way on the node it failed on may be of the lowest class: what is gained there is nothing.
    a, b, c = sized("a", "guaranteed", memory_gib=8), sized("b", class_, memory_gib=8), sized("c", memory_gib=8)
    seen = Observed(
        (
            node("n1", at(b, memory_gib=8), failing(a, 1), memory_gib=8),
            node("n2", at(c, memory_gib=8), memory_gib=8),
        )
    )

    plan = decide(wanting(a, b, c), seen, SETTLED, NOW)

    assert moves(plan) == ["-c/cpu/0"]


def test_one_of_several_gives_way_before_the_only_one_of_its_model():
    a, b, c = sized("a", "guaranteed", memory_gib=8), sized("b", memory_gib=8), sized("c", memory_gib=8, replicas=2)
    seen = Observed(
        (
            node("n1", at(b, memory_gib=8), memory_gib=8),
            *(node(f"n{n + 2}", at(c, n, memory_gib=8), memory_gib=8) for n in range(2)),
        )
    )

    plan = decide(wanting(a, b, c, nodes=["n1", "n2", "n3"]), seen, SETTLED, NOW)

    assert moves(plan) == ["-c/cpu/0"]
