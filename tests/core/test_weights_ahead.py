"""Weights come before what needs them: to the mirror, to the nodes, and only then does anything stop or start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.actuators.orders import compose
from llmgw.catalog.fingerprint import fingerprint
from llmgw.core.decide import decide
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.observed import DemandSeen, Load, Observed
from llmgw.core.simulate import after
from llmgw_agent.protocol import HeldVersion, Phase, WeightFile

MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082"}
GB = 10**9


def of(version="1", name="m", **fields):
    profiles = fields.pop("profiles", [profile()])
    source = {"from": f"https://hub.example/{name}-{version}.gguf", "version": version, **fields.pop("source", {})}
    return model(name, profiles=profiles, source=source, **fields)


def holding(key="m/1", state=HoldingState.PRESENT, size=100):
    files = (WeightFile("m.gguf", size, "a" * 64),) if state is HoldingState.PRESENT else ()
    return Holding(*key.split("/"), state, files=files)


def asked(*models, nodes=("n1",), **mirror):
    return wanting(*models, nodes=nodes, mirror={**MIRROR, **mirror})


def run(wanted, nodes, *holdings, memory=SETTLED, now=NOW, demand=None):
    return decide(wanted, Observed(tuple(nodes), MirrorSeen(holdings), demand or DemandSeen()), memory, now)


def stocked(plan, action="prefetch"):
    return [(s.node, s.version) for s in plan.stock if s.action == action]


def shared(seen, of="nas", **fields):
    """A node whose weights are on a filesystem with this id."""
    return structs.replace(seen, inventory=structs.replace(seen.inventory, weights_id=of, **fields))


def sized(seen, **sizes_gb):
    """A node that holds versions of these sizes."""
    versions = tuple(HeldVersion(n, "1", "held", int(gb * GB)) for n, gb in sizes_gb.items())
    return structs.replace(seen, versions=versions)


WAYS = ["auto", "surge", "in_place"]


class TestARolloutOfANewVersion:
    """Whatever the strategy, what serves goes on until its successor's weights are where it is going to run."""

    def old(self, way, count=1, **fields):
        return of(rollout={"strategy": way}, profiles=[profile(replicas=count)], **fields)

    def new(self, way, count=1, **fields):
        return of("2", rollout={"strategy": way}, profiles=[profile(replicas=count)], **fields)

    @pytest.mark.parametrize("way", [*WAYS, "keep"])
    @pytest.mark.parametrize("state", [None, HoldingState.FETCHING, HoldingState.FAILED])
    def test_nothing_stops_while_the_mirror_has_it_not(self, way, state):
        running = node("n1", replica("m/cpu/0", self.old(way), version="m/1"), versions=["m/1"])
        there = [] if state is None else [holding("m/2", state)]

        plan = run(asked(self.new(way)), [running], holding("m/1"), *there)

        assert [m for m in moves(plan) if m != "fetch m/2"] == []
        assert stocked(plan) == []

    def test_in_place_it_stops_once_its_node_has_them(self):
        way, running = "in_place", replica("m/cpu/0", self.old("in_place"), version="m/1")
        wanted = asked(self.new(way))

        first = run(wanted, [node("n1", running, versions=["m/1"])], holding("m/1"), holding("m/2"))
        then = run(wanted, [node("n1", running, versions=["m/1", "m/2"])], holding("m/1"), holding("m/2"))

        assert moves(first) == []
        assert stocked(first) == [("n1", "m/2")]
        assert held(first) == ["m/cpu/0: it is out of date, and stops once n1 has its successor's weights"]
        assert moves(then) == ["-m/cpu/0"]

    def test_in_place_for_want_of_room_it_stops_once_its_node_has_them(self):
        def small(name, *replicas, versions):
            return node(name, *replicas, memory_gib=1.5, versions=versions)

        old, new = self.old("auto", 2), self.new("auto", 2)
        running = [replica(f"m/cpu/{n}", old, version="m/1") for n in range(2)]
        wanted = asked(new, nodes=["n1", "n2"])
        both = holding("m/1"), holding("m/2")

        first = run(wanted, [small(f"n{n + 1}", running[n], versions=["m/1"]) for n in range(2)], *both)
        there = [small(f"n{n + 1}", running[n], versions=["m/1", "m/2"]) for n in range(2)]
        then = run(wanted, there, *both)

        assert moves(first) == []
        assert len(stocked(first)) == 1
        ((where, _),) = stocked(first)
        stops = f"m/cpu/{int(where[1]) - 1}"
        assert f"m/cpu/2: {stops} makes room for it once {where} has fetched its weights" in held(first)
        assert moves(then) == [f"-{stops}"]

    def test_with_room_the_new_one_fetches_as_it_starts_and_the_old_one_goes_on(self):
        running = replica("m/cpu/0", self.old("auto"), version="m/1")

        plan = run(asked(self.new("auto")), [node("n1", running, versions=["m/1"])], holding("m/1"), holding("m/2"))

        assert moves(plan) == ["+m/cpu/1"]

    @pytest.mark.parametrize("way", WAYS)
    def test_it_comes_to_its_end(self, way):
        old, wanted = self.old(way), asked(self.new(way))
        seen = Observed(
            (node("n1", replica("m/cpu/0", old, version="m/1"), versions=["m/1"]),), MirrorSeen((holding("m/1"),))
        )
        memory, now, stops = SETTLED, NOW, []
        for _ in range(12):
            plan = decide(wanted, seen, memory, now)
            stops += [{v.key for v in seen.nodes[0].versions} for m in moves(plan) if m.startswith("-")]
            seen, memory, now = after(wanted, seen, plan), plan.memory, now + 20

        assert plan.empty
        assert [r.fingerprint for r in seen.nodes[0].replicas] == [
            fingerprint(self.new(way), self.new(way).profiles[0])
        ]
        assert stops == [{"m/1", "m/2"}]

    def test_a_change_that_fetches_nothing_waits_for_nothing(self):
        running = replica("m/cpu/0", self.old("in_place"), version="m/1", fingerprint="earlier")

        plan = run(asked(self.old("in_place")), [node("n1", running)], holding("m/1"))

        assert moves(plan) == ["-m/cpu/0"]


def test_what_gives_way_goes_on_until_the_weights_are_there():
    low = model("low", cpu=1, **{"class": "opportunistic"})
    wanted = asked(of(**{"class": "guaranteed"}), low)
    running = replica("low/cpu/0", low)

    first = run(wanted, [node("n1", running, memory_gib=1.5)], holding())
    then = run(wanted, [node("n1", running, memory_gib=1.5, versions=["m/1"])], holding())

    assert moves(first) == []
    assert stocked(first) == [("n1", "m/1")]
    assert held(first) == ["m/cpu/0: low/cpu/0 will give way to it, and go on until n1 has fetched its weights"]
    assert moves(then) == ["-low/cpu/0"]


class TestPrefetch:
    """A model that says so has its weights on nodes before anybody asks."""

    def ahead(self, name="m", replicas=1, **fields):
        fields.setdefault("state", "stopped")
        return of(name=name, profiles=[profile(replicas=replicas)], source={"prefetch": True}, **fields)

    def on_demand(self, most=1):
        scaling = {"min": 0, "max": most}
        return of(profiles=[profile(replicas=None)], source={"prefetch": True}, scaling=scaling)

    def test_a_stopped_models_weights_come_to_the_mirror_and_then_to_a_node(self):
        first = run(asked(self.ahead()), [node("n1")])
        then = run(asked(self.ahead()), [node("n1")], holding())
        there = run(asked(self.ahead()), [node("n1", versions=["m/1"])], holding())

        assert moves(first) == ["fetch m/1"]
        assert moves(then) == moves(there) == []
        assert stocked(then) == [("n1", "m/1")]
        assert (stocked(there), there.held) == ([], ())

    def test_a_model_on_demand_is_ready_on_as_many_nodes_as_it_may_have_replicas(self):
        nodes = [node(f"n{n}") for n in range(4)]
        wanted = asked(self.on_demand(2), nodes=[n.name for n in nodes])

        plan = run(wanted, nodes, holding())

        assert moves(plan) == []
        assert stocked(plan) == [("n0", "m/1"), ("n1", "m/1")]

    def test_eight_nodes_a_profile_are_the_most(self):
        nodes = [node(f"n{n:02}") for n in range(12)]
        wanted = asked(self.on_demand(100), nodes=[n.name for n in nodes], parallel_nodes=100)

        assert len(stocked(run(wanted, nodes, holding()))) == 8

    def test_it_goes_where_a_profile_fits_and_first_where_there_is_room_now(self):
        of_cards = of(profiles=[profile("gpu", gpu={"class": "l40s-48g"})], source={"prefetch": True}, state="stopped")
        nodes = [node("n1", cards=0), node("n2", memory_gib=0.5), node("n3")]
        wanted = asked(of_cards, nodes=["n1", "n2", "n3"])

        assert stocked(run(wanted, nodes, holding())) == [("n3", "m/1")]
        assert stocked(run(wanted, nodes[:2], holding())) == [("n2", "m/1")], "what runs there may give way"
        assert stocked(run(wanted, nodes[:1], holding())) == []

    def test_nodes_that_have_it_are_enough(self):
        nodes = [node("n1"), node("n2", versions=["m/1"])]

        assert stocked(run(asked(self.ahead(), nodes=["n1", "n2"]), nodes, holding())) == []

    def test_it_waits_while_anything_that_is_to_run_waits_to_be_fetched(self):
        needed = of(name="o", profiles=[profile(replicas=2)])
        nodes = [node("n1"), node("n2")]
        wanted = asked(self.ahead(), needed, nodes=["n1", "n2"], parallel_nodes=1)

        plan = run(wanted, nodes, holding(), holding("o/1"))

        assert moves(plan) == ["+o/cpu/0"]
        assert stocked(plan) == []
        assert (
            "m: its weights are fetched ahead once no node waits to fetch what is to run (mirror.parallel_nodes)"
            in held(plan)
        )

    def test_what_is_fetched_ahead_takes_nobodys_turn(self):
        arriving = structs.replace(node("n1"), versions=(HeldVersion("m", "1", "arriving"),))
        wanted = asked(self.ahead(), of(name="o"), nodes=["n1", "n2"], parallel_nodes=1)

        plan = run(wanted, [arriving, node("n2", memory_gib=128)], holding(), holding("o/1"))

        assert moves(plan) == ["+o/cpu/0"]

    def test_nothing_has_to_go_for_it_and_a_full_disk_is_said(self):
        full = sized(node("n1", disk_gib=3), old=5)
        memory = structs.replace(SETTLED, unreferenced={"old/1": NOW})

        plan = run(asked(self.ahead()), [full], holding(size=4 * GB), holding("old/1"), memory=memory)

        assert stocked(plan) == []
        assert held(plan) == ["m: nodes have no room on their disk to fetch its weights ahead"]

    def test_it_is_an_order_of_its_own(self):
        wanted = asked(self.ahead())
        orders, _ = compose(wanted, run(wanted, [node("n1")], holding()))

        (version,) = orders["n1"].versions
        assert (version.key, version.action, len(version.files)) == ("m/1", "prefetch", 1)
        assert version.sources == ("http://10.0.0.2:8081/m/1/",)

    def test_why_the_mirror_has_it_not_is_said_though_nobody_asks(self):
        lasting = structs.replace(holding(state=HoldingState.FAILED))

        assert held(run(asked(self.ahead()), [node("n1")], lasting)) == ["m: the mirror is asked for its weights"]

    def test_nothing_is_asked_of_a_silent_node(self):
        assert stocked(run(asked(self.ahead()), [node("n1", age_s=100.0)], holding())) == []

    def test_asked_for_it_starts_where_its_weights_are(self):
        nodes = [node("n1"), node("n2", versions=["m/1"])]
        waiting = DemandSeen({"m": Load(waiting=1)})

        plan = run(asked(self.on_demand(), nodes=["n1", "n2"]), nodes, holding(), demand=waiting)

        assert [(a.id, a.node) for a in plan.actions] == [("m/cpu/0", "n2")]


class TestANodesDisk:
    def test_what_is_spare_counts_as_room_and_goes_when_it_is_needed(self):
        full = sized(node("n1", disk_gib=3), old=5)
        memory = structs.replace(SETTLED, unreferenced={"old/1": NOW})
        both = holding(size=4 * GB), holding("old/1")

        plan = run(asked(of()), [full], *both, memory=memory)
        orders, _ = compose(asked(of()), plan)

        assert moves(plan) == ["+m/cpu/0"]
        assert [(v.key, v.action) for v in orders["n1"].versions] == [("m/1", "hold"), ("old/1", "spare")]

    def test_what_something_refers_to_does_not(self):
        full = sized(node("n1", disk_gib=3), used=5)
        used = of(name="used", profiles=[profile(replicas=0)])

        plan = run(asked(of(), used), [full], holding(size=4 * GB), holding("used/1"))

        assert moves(plan) == []
        assert "of disk short for the weights" in plan.held[0].sentence


class TestWhoFetchesFirst:
    def test_of_one_class_the_model_that_has_least(self):
        """A model's second replica waits for another's first."""
        apart = {"node_selector": {"for": "b"}}
        many = of(name="a", profiles=[profile(replicas=2, anti_affinity=["a"])])
        first = of(name="b", profiles=[profile(**apart)])
        nodes = [node("n1", replica("a/cpu/0", many, version="a/1"), versions=["a/1"]), node("n2"), node("n3")]
        entries = [
            {"name": n, "address": "10.0.0.1", "labels": {"for": "b" if n == "n3" else "a"}} for n in ("n1", "n2", "n3")
        ]

        plan = run(asked(many, first, nodes=entries, parallel_nodes=1), nodes, holding("a/1"), holding("b/1"))

        assert [m for m in moves(plan) if m.startswith("+")] == ["+b/cpu/0"]
        assert held(plan) == [
            "a/cpu/1: another node fetches weights, and it waits until one has them (mirror.parallel_nodes)"
        ]


class TestASharedFilesystem:
    """Nodes that report one id of their weights' folder: one fetches, and all have it."""

    def two(self, **fields):
        return [shared(node("n1", **fields)), shared(node("n2", **fields))]

    def test_the_first_by_name_fetches_and_the_others_wait_until_their_own_report_has_it(self):
        wanted = asked(of(profiles=[profile(replicas=2)]), nodes=["n1", "n2"])

        first = run(wanted, self.two(), holding())
        arriving = [
            shared(node("n1", replica("m/cpu/0", of(profiles=[profile(replicas=2)]), Phase.FETCHING, version="m/1"))),
            shared(node("n2")),
        ]
        coming = run(wanted, arriving, holding())
        seen_by_one = [shared(node("n1", *arriving[0].replicas, versions=["m/1"])), shared(node("n2"))]
        waits = run(wanted, seen_by_one, holding())
        there = run(wanted, [seen_by_one[0], shared(node("n2", versions=["m/1"]))], holding())

        assert [(a.id, a.node) for a in first.actions] == [("m/cpu/0", "n1")]
        assert held(first) == held(coming) == ["m/cpu/1: n1 fetches it for the shared filesystem"]
        assert moves(coming) == moves(waits) == []
        assert held(waits) == [
            "m/cpu/1: n1 has its weights on the filesystem they share, and n2 has not seen them there yet"
        ]
        assert [(a.id, a.node) for a in there.actions] == [("m/cpu/1", "n2")]

    def test_it_is_the_first_by_name_whoever_is_placed_first(self):
        nodes = [shared(node("n1")), shared(node("n2", memory_gib=2))]
        two = of(profiles=[profile(replicas=2, anti_affinity=["m"])])

        plan = run(asked(two, nodes=["n1", "n2"]), nodes, holding())

        assert [(a.id, a.node) for a in plan.actions] == [("m/cpu/1", "n1")]
        assert held(plan) == ["m/cpu/0: n1 fetches it for the shared filesystem"]

    def test_what_a_silent_one_had_is_not_waited_for(self):
        silent = structs.replace(shared(node("n1", versions=["m/1"])), age_s=100.0)

        plan = run(asked(of(), nodes=["n1", "n2"]), [silent, shared(node("n2"))], holding())

        assert [(a.id, a.node) for a in plan.actions] == [("m/cpu/0", "n2")]

    def test_a_silent_one_is_not_waited_for(self):
        silent = structs.replace(shared(node("n1")), age_s=100.0, versions=(HeldVersion("m", "1", "arriving"),))

        plan = run(asked(of(), nodes=["n1", "n2"]), [silent, shared(node("n2"))], holding())

        assert [(a.id, a.node) for a in plan.actions] == [("m/cpu/0", "n2")]

    def test_an_empty_id_is_unknown_and_shares_nothing(self):
        wanted = asked(of(profiles=[profile(replicas=2)]), nodes=["n1", "n2"])

        assert moves(run(wanted, [node("n1"), node("n2")], holding())) == ["+m/cpu/0", "+m/cpu/1"]

    def test_its_disk_is_counted_once(self):
        # Room for one of them, though each of the nodes reports that room.
        nodes = self.two(disk_gib=6)
        pair = [of(name=n, profiles=[profile(memory_gib=200)]) for n in ("a", "b")]
        alone = [node("n1", disk_gib=6), node("n2", disk_gib=6)]
        both = holding("a/1", size=4 * GB), holding("b/1", size=4 * GB)
        wanted = asked(*pair, nodes=["n1", "n2"])

        assert moves(run(wanted, nodes, *both)) == ["+a/cpu/0"]
        assert moves(run(wanted, alone, *both)) == ["+a/cpu/0", "+b/cpu/0"]

    def test_what_is_there_takes_no_more_room_on_any_of_them(self):
        nodes = [shared(node("n1", disk_gib=2, memory_gib=0.5, versions=["m/1"])), shared(node("n2", disk_gib=2))]

        plan = run(asked(of(), nodes=["n1", "n2"]), nodes, holding(size=4 * GB))

        assert [h.why for h in plan.held if "no node" in h.why] == []

    def test_one_of_them_removes_what_may_go(self):
        nodes = [shared(node(n, versions=["old/1"])) for n in ("n1", "n2")]
        memory = structs.replace(SETTLED, unreferenced={"old/1": 0.0})

        plan = run(asked(nodes=["n1", "n2"]), nodes, memory=memory)

        assert stocked(plan, "may_remove") == [("n1", "old/1")]

    def test_nobody_removes_what_one_of_them_still_runs(self):
        old = of(name="old")
        nodes = [
            shared(node("n1", versions=["old/1"])),
            shared(node("n2", replica("old/cpu/0", old, version="old/1"), versions=["old/1"])),
        ]
        memory = structs.replace(SETTLED, unreferenced={"old/1": 0.0})

        assert run(asked(nodes=["n1", "n2"]), nodes, memory=memory).stock == ()

    def test_one_of_them_fetches_ahead_for_all(self):
        ahead = of(profiles=[profile(replicas=2)], source={"prefetch": True}, state="stopped")

        plan = run(asked(ahead, nodes=["n1", "n2"]), self.two(), holding())

        assert stocked(plan) == [("n1", "m/1")]
        assert plan.held == ()


def test_one_holding_that_is_out_of_order_stops_nothing_else():
    odd = Holding("", "", HoldingState.PRESENT), Holding("x", "..", HoldingState.FAILED, total_bytes=-5)
    wanted = replace(asked(of()), purged=frozenset({"", "x"}))

    plan = run(wanted, [node("n1")], *odd, holding())

    assert "+m/cpu/0" in moves(plan)
