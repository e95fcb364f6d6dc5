"""Retention that a model says itself, and what becomes of a purge: in each place one of three words, with whom."""

from dataclasses import replace

from fleets import NOW, SETTLED, model, moves, node, replica, wanting

from llmgw.core.decide import decide
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw.sources.readme import readme
from llmgw.sources.resumed import remembered
from llmgw.sources.status_files import from_files, to_files
from llmgw_agent.protocol import WeightFile

MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082", "retain": "1h"}
FILES = (WeightFile("m.gguf", 100, "a" * 64),)
DAY_S = 86_400


HERE = (Holding("m", "1", HoldingState.PRESENT, files=FILES),)


def of(state="running", **source):
    return model("m", cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1", **source}, state=state)


def wanted(*models, purged=(), nodes=("n1", "n2")):
    return replace(wanting(*models, nodes=nodes, mirror=MIRROR), purged=frozenset(purged))


def holding(name="m", **fields):
    return Holding(name, "1", HoldingState.PRESENT, files=FILES, **fields)


def run(asked, *nodes, mirror=HERE, memory=SETTLED, now=NOW):
    return decide(asked, Observed(nodes, None if mirror is None else MirrorSeen(tuple(mirror))), memory, now)


def purged(plan):
    return [p.sentence for p in plan.memory.purges]


class TestRetain:
    def test_a_model_that_says_how_long_is_kept_so_long_after_it_has_gone(self):
        here = run(wanted(of("stopped", retain="1d")), node("n1", versions=["m/1"]), node("n2"))
        gone = run(wanted(), node("n1", versions=["m/1"]), node("n2"), memory=here.memory, now=NOW + 10)

        def after(seconds):
            return run(wanted(), node("n1", versions=["m/1"]), node("n2"), memory=gone.memory, now=NOW + 10 + seconds)

        assert moves(after(DAY_S - 1)) == []
        assert moves(after(DAY_S)) == ["remove m/1"]
        assert [(s.node, s.action) for s in after(DAY_S - 1).stock] == [("n1", "spare")]
        assert [(s.node, s.action) for s in after(DAY_S).stock] == [("n1", "may_remove")]

    def test_it_counts_for_its_earlier_versions_as_well_and_not_for_others(self):
        old = Holding("m", "0", HoldingState.PRESENT, files=FILES)
        first = run(wanted(of("stopped", retain="1d")), node("n1"), mirror=[old, holding(), holding("x")])
        later = run(
            wanted(of("stopped", retain="1d")),
            node("n1"),
            mirror=[old, holding(), holding("x")],
            memory=first.memory,
            now=NOW + 3600,
        )

        assert "remove x/1" in moves(later)
        assert "remove m/0" not in moves(later)

    def test_it_is_remembered_by_the_status_when_control_starts_again(self):
        here = run(wanted(of("stopped", retain="1d")), node("n1"), node("n2"))
        seen = Observed((node("n1"), node("n2")), MirrorSeen((holding(),)))
        gone = decide(wanted(), seen, here.memory, NOW)
        files = to_files(status(wanted(), seen, gone, NOW), wanted(), version="1")

        memory = remembered(from_files(files), now=NOW)

        assert memory.retains == {"m/1": DAY_S}
        assert memory.unreferenced == {"m/1": NOW}


class TestPurge:
    def test_a_version_waits_for_the_replica_that_runs_on_it_in_every_place(self):
        stops = replica("m/cpu/0", of(), version="m/1")

        plan = run(wanted(purged=["m"]), node("n1", stops, versions=["m/1"]), node("n2", versions=["m/1"]))

        assert purged(plan) == [
            "m/1 on n1: waiting for m/cpu/0 on n1",
            "m/1 on n2: waiting for m/cpu/0 on n1",
            "m/1 on the mirror: waiting for m/cpu/0 on n1",
        ]
        assert moves(plan) == ["-m/cpu/0"]
        assert plan.stock == ()

    def test_then_it_is_removed_on_the_mirror_and_on_every_node_and_that_is_said(self):
        nodes = node("n1", versions=["m/1"]), node("n2", versions=["m/1"], age_s=100.0)
        first = run(wanted(purged=["m"]), *nodes)
        after = run(wanted(purged=["m"]), node("n1"), nodes[1], mirror=(), memory=first.memory)

        assert moves(first) == ["remove m/1"]
        assert [(s.node, s.action) for s in first.stock] == [("n1", "may_remove")], "n2 is silent"
        assert purged(first) == [
            "m/1 on n1: waiting for n1",
            "m/1 on n2: waiting for n2",
            "m/1 on the mirror: waiting for the mirror",
        ]
        assert purged(after) == ["m/1 on n1: removed", "m/1 on n2: waiting for n2", "m/1 on the mirror: removed"]

    def test_what_is_not_seen_is_not_said_to_be_removed(self):
        first = run(wanted(purged=["m"]), node("n1", versions=["m/1"]))
        blind = run(wanted(purged=["m"]), node("n1", age_s=100.0), mirror=None, memory=first.memory)

        assert purged(blind) == purged(first)

    def test_what_another_model_uses_and_what_came_by_hand_is_kept_and_for_whom(self):
        used = run(wanted(of(), purged=["m"]), node("n1", versions=["m/1"]))
        by_hand = run(wanted(purged=["m"]), node("n1"), mirror=[holding(origin="hand")])

        assert purged(used) == ["m/1 on n1: kept for m", "m/1 on the mirror: kept for m"]
        assert purged(by_hand) == ["m/1 on the mirror: kept for who put it there by hand"]
        assert moves(used) == ["+m/cpu/0"]
        assert moves(by_hand) == []

    def test_the_status_says_it(self):
        seen = Observed((node("n1", versions=["m/1"]), node("n2")), MirrorSeen((holding(),)))
        asked = wanted(purged=["m"])

        said = status(asked, seen, decide(asked, seen, SETTLED, NOW), NOW)

        assert said.mirror.purges == ("m/1 on n1: waiting for n1", "m/1 on the mirror: waiting for the mirror")
        assert "Purges:\n\n- m/1 on n1: waiting for n1\n- m/1 on the mirror: waiting for the mirror\n" in readme(
            said, asked
        )

    def test_a_model_that_is_not_purged_is_not_spoken_of(self):
        assert purged(run(wanted(purged=["x"]), node("n1", versions=["m/1"]))) == []

    def test_nothing_is_removed_at_once_that_may_run_where_nobody_sees_it(self):
        nameless = replica("m/cpu/0", of(), version="")
        unseen = run(wanted(purged=["m"]), node("n1", versions=["m/1"]), node("n2", age_s=None))
        unsaid = run(wanted(purged=["m"]), node("n1", nameless, versions=["m/1"]), node("n2"))

        assert (moves(unseen), unseen.memory.unreferenced) == ([], {"m/1": NOW})
        assert purged(unseen) == ["m/1 on n1: waiting for n2", "m/1 on the mirror: waiting for n2"]
        assert (moves(unsaid), [s.action for s in unsaid.stock]) == (["-m/cpu/0"], ["spare"])
        assert purged(unsaid) == [
            "m/1 on n1: waiting for m/cpu/0 on n1",
            "m/1 on the mirror: waiting for m/cpu/0 on n1",
        ]
