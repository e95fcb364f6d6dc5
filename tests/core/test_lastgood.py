"""What comes back where a new form of a model does not come up: the last one that was seen to serve."""

from __future__ import annotations

from typing import ClassVar

import pytest
from fleets import NOW, SETTLED, F, R, S, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.actuators.orders import compose
from llmgw.catalog import canonical
from llmgw.catalog.fingerprint import fingerprint
from llmgw.core.decide import decide
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.memory import LastGood
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw.units import GIB
from llmgw_agent.protocol import Action, Claim, Dossier, WeightFile

IN_PLACE = {"strategy": "in_place"}
MENDED = "change it once more, or take the change back"


def form(context, n=1, **rollout):
    """One form of a model: which one it is, is said by its context."""
    return model(cpu=n, context_length=context, rollout=rollout or IN_PLACE)


OLD, NEW = form(1024), form(2048)


def run(of, *replicas, memory=SETTLED, now=NOW, **room):
    return decide(wanting(of, nodes=["n1"]), Observed((node("n1", *replicas, **room),)), memory, now)


def after(of, *replicas):
    """What control remembers of a model's forms once so much of it was seen in one."""
    return structs.replace(SETTLED, good=run(of, *replicas).memory.good)


REMEMBERED = after(OLD, replica("m/cpu/0", OLD))


def failed(of=NEW, rid="m/cpu/0", **fields):
    return replica(rid, of, F, **{"generation": 2, "age_s": 1, **fields})


def back(of=OLD, phase=R, rid="m/cpu/1", **fields):
    return replica(rid, of, phase, **fields)


def why(of):
    return f"m/cpu: it does not come up in its new form (exited: it ended), {of}"


@pytest.mark.parametrize(
    ("phases", "good"),
    [
        pytest.param([R, R], True, id="all of it serves"),
        pytest.param([R, S], False, id="one is on its way"),
        pytest.param([R, F], False, id="one failed"),
        pytest.param([], False, id="nothing runs"),
    ],
)
def test_a_form_is_good_once_all_that_runs_of_it_serves(phases, good):
    of = form(1024, n=2)

    known = after(of, *(replica(f"m/cpu/{n}", of, phase) for n, phase in enumerate(phases))).good

    assert list(known) == (["m/cpu"] if good else [])


def test_a_form_stays_good_whatever_becomes_of_it_until_another_one_is():
    both = form(1024, n=2), form(2048, n=2)
    known = after(both[0], *(replica(f"m/cpu/{n}", both[0]) for n in range(2)))

    half = run(both[1], replica("m/cpu/0", both[0]), replica("m/cpu/1", both[1]), memory=known).memory
    whole = run(both[1], *(replica(f"m/cpu/{n}", both[1]) for n in range(2)), memory=half).memory

    assert half.good == known.good
    assert whole.good["m/cpu"].fingerprint != known.good["m/cpu"].fingerprint


def test_a_failed_start_in_place_brings_back_the_last_good_form_marked_stale_and_stalled():
    plan = run(NEW, failed(), memory=REMEMBERED)

    assert moves(plan) == ["+m/cpu/1"]
    assert plan.actions[0].why == "its last good form comes back, since the new one does not come up: exited"
    assert [h.sentence for h in plan.held] == [
        why(f"and runs in its last good one, which is stale; {MENDED}"),
    ]
    assert plan.held[0].stalled
    # The one that failed stays with its dossier, and what comes back is of the form before it.
    (kept, placed) = plan.placements
    assert (kept.action, placed.action) == (Action.KEEP, Action.RUN)
    assert placed.fingerprint == REMEMBERED.good["m/cpu"].fingerprint


def test_what_comes_back_is_ordered_as_it_was():
    wanted, seen = wanting(NEW, nodes=["n1"]), Observed((node("n1", failed()),))

    plan = decide(wanted, seen, REMEMBERED, NOW)
    orders, memory = compose(wanted, plan)
    # Not seen yet in the next pass, it is ordered once more, and once it is there it is left as it is.
    again, memory = compose(wanted, decide(wanted, seen, memory, NOW + 1))
    there = Observed((node("n1", failed(), back(phase=S)),))
    then, _ = compose(wanted, decide(wanted, there, memory, NOW + 2))

    for ordered in (orders, again, then):
        _, order = ordered["n1"].replicas
        assert (order.id, order.action, order.spec.context_tokens) == ("m/cpu/1", Action.RUN, 2 * 1024)


def test_while_it_comes_back_and_once_it_is_back_nothing_else_is_tried():
    coming = run(NEW, failed(), back(phase=S), memory=REMEMBERED)
    there = run(NEW, failed(), back(), memory=coming.memory)
    much_later = run(NEW, failed(age_s=90_000), back(age_s=90_000), memory=there.memory, now=NOW + 90_000)

    for plan in (coming, there, much_later):
        assert moves(plan) == []
        assert held(plan) == [why("and runs in its last good one, which is stale")]


def test_what_came_back_is_seen_in_the_status():
    wanted, seen = wanting(NEW, nodes=["n1"]), Observed((node("n1", failed(), back()),))

    (said,) = status(wanted, seen, decide(wanted, seen, REMEMBERED, NOW), NOW).models

    assert said.state == "stalled"
    assert said.good == {"cpu": REMEMBERED.good["m/cpu"]}
    assert said.conditions[0].why.startswith("it does not come up in its new form (exited: it ended)")


def test_what_failed_is_tried_again_when_it_is_changed():
    there = run(NEW, failed(), back(), memory=REMEMBERED).memory

    plan = run(form(4096), failed(), back(), memory=there)

    assert moves(plan) == ["-m/cpu/0", "-m/cpu/1"]
    assert [a.why for a in plan.actions] == ["it failed, and is not tried again", "its successor starts in its place"]


def test_a_change_that_is_taken_back_makes_what_came_back_the_one_that_is_asked_for():
    there = run(NEW, failed(), back(), memory=REMEMBERED).memory

    plan = run(OLD, failed(), back(), memory=there)

    assert moves(plan) == ["-m/cpu/0"]
    assert plan.held == ()


def test_only_what_is_missing_comes_back():
    old, new = form(1024, n=3), form(2048, n=3)
    known = after(old, *(replica(f"m/cpu/{n}", old) for n in range(3)))

    plan = run(new, replica("m/cpu/0", old), replica("m/cpu/1", old), failed(new, "m/cpu/2"), memory=known)

    assert moves(plan) == ["+m/cpu/3"]
    assert plan.placements[-1].fingerprint == known.good["m/cpu"].fingerprint


def test_one_that_fails_while_another_serves_in_the_new_form_comes_back_and_is_not_given_up_again():
    old, new = form(1024, n=2), form(2048, n=2)
    known = after(old, *(replica(f"m/cpu/{n}", old) for n in range(2)))
    there = replica("m/cpu/0", new, generation=2)

    coming = run(new, there, failed(new, "m/cpu/1"), memory=known)
    come = run(new, there, failed(new, "m/cpu/1", age_s=5000), back(old, rid="m/cpu/2"), memory=coming.memory)

    assert moves(coming) == ["+m/cpu/2"]
    assert moves(come) == []
    assert come.held[0].stalled


class TestWhereItIsTriedAgain:
    """A strategy of auto tries it beside what came back, as any failed form; in place never."""

    OLD, NEW = form(1024, n=2, strategy="auto"), form(2048, n=2, strategy="auto")
    KNOWN = after(OLD, *(replica(f"m/cpu/{n}", OLD) for n in range(2)))

    def serving(self):
        return replica("m/cpu/0", self.OLD), back(self.OLD)

    def test_beside_what_came_back_after_its_time(self):
        early = run(self.NEW, *self.serving(), failed(self.NEW, "m/cpu/2"), memory=self.KNOWN)
        late = run(self.NEW, *self.serving(), failed(self.NEW, "m/cpu/2", age_s=6), memory=self.KNOWN)

        assert moves(early) == []
        assert moves(late) == ["+m/cpu/2"]
        assert late.held[0].stalled

    def test_and_not_while_something_is_on_its_way_back(self):
        coming = replica("m/cpu/0", self.OLD), back(self.OLD, S)

        plan = run(self.NEW, *coming, failed(self.NEW, "m/cpu/2", age_s=6), memory=self.KNOWN)

        assert moves(plan) == []

    def test_and_not_where_there_is_no_room_beside_it(self):
        again = failed(self.NEW, "m/cpu/2", age_s=6)

        plan = run(self.NEW, *self.serving(), again, memory=self.KNOWN, memory_gib=2)

        assert moves(plan) == []
        assert held(plan)[1] == (
            "m/cpu/2: no node has room for it, and m/cpu/1, which would make some, is not given up for what failed "
            "before"
        )
        assert all(h.stalled for h in plan.held)


def test_without_auto_return_the_new_form_is_tried_again_and_nothing_comes_back():
    of = form(2048, strategy="in_place", auto_return=False)

    plan = run(of, failed(of, age_s=6), memory=REMEMBERED)

    assert [(a.id, a.why) for a in plan.actions] == [("m/cpu/0", "try 2 of 5")]


def test_the_last_good_form_itself_waits_its_time_when_it_fails():
    plan = run(OLD, replica("m/cpu/0", OLD, F, age_s=1), memory=REMEMBERED)

    assert moves(plan) == []
    assert held(plan) == ["m/cpu: it failed, and is tried again: exited: it ended"]


def test_a_model_that_never_served_has_nothing_that_could_come_back():
    plan = run(NEW, failed(generation=1, age_s=6))

    assert [a.why for a in plan.actions] == ["try 2 of 5"]
    assert held(plan) == []


def test_that_the_last_good_form_is_not_known_any_more_is_said():
    plan = run(NEW, failed())

    assert held(plan) == [
        "m/cpu: it failed, and is tried again: exited: it ended",
        "m/cpu: what served before does not come back: its last good form is not known any more",
    ]


def test_one_that_fails_as_well_waits_longer_each_time_and_then_comes_back_no_more():
    lapsed = back(phase=F, age_s=2, dossier=Dossier("killed", "it was killed"))

    early = run(NEW, failed(age_s=100), lapsed, memory=REMEMBERED)
    late = run(NEW, failed(age_s=100), structs.replace(lapsed, age_s=6.0), memory=REMEMBERED)
    never = run(NEW, failed(age_s=100), structs.replace(lapsed, attempts=5), memory=REMEMBERED)

    assert moves(early) == []
    assert [(a.id, a.generation) for a in late.actions] == [("m/cpu/1", 2)]
    # Then there is nothing left but the new one, by its own failures.
    assert [(m, a.why) for m, a in zip(moves(never), never.actions, strict=True)] == [
        ("+m/cpu/0", "try 2 of 5"),
        ("-m/cpu/1", "it failed, and is not tried again"),
    ]
    assert held(never) == [why("nor in its last good one (killed: it was killed)")]


def test_of_several_that_fail_as_well_one_comes_back_at_a_time():
    old, new = form(1024, n=3), form(2048, n=3)
    known = after(old, *(replica(f"m/cpu/{n}", old) for n in range(3)))
    broken = failed(new, age_s=100)
    lapsed = [back(old, F, rid=f"m/cpu/{n}", age_s=60) for n in (1, 2)]

    first = run(new, broken, *lapsed, memory=known)
    then = run(new, broken, back(old, S, attempts=1, generation=2), lapsed[1], memory=first.memory, now=NOW + 60)

    assert moves(first) == ["+m/cpu/1"]
    assert [m for m in moves(then) if m.startswith("+")] == []


def test_what_comes_back_on_a_node_that_is_drained_comes_back_elsewhere():
    nodes = [{"name": "n1", "address": "10.0.0.1", "drained": True}, "n2"]
    seen = Observed((node("n1", back(phase=S)), node("n2", failed())))

    plan = decide(wanting(NEW, nodes=nodes), seen, REMEMBERED, NOW)

    assert [(m, a.node) for m, a in zip(moves(plan), plan.actions, strict=True)] == [
        ("+m/cpu/2", "n2"),
        ("-m/cpu/1", "n1"),
    ]


@pytest.mark.parametrize(("written", "claimed"), [(1, 1), (None, 3)], ids=["as written", "as it took where none is"])
def test_what_comes_back_claims_what_it_did(written, claimed):
    old, new = (
        model(profiles=[profile(memory_gib=written)], context_length=context, rollout=IN_PLACE)
        for context in (1024, 2048)
    )
    known = after(old, replica("m/cpu/0", old, claim=Claim(3 * GIB, 1)))

    (*_, placed) = run(new, failed(new), memory=known).placements

    assert placed.claim.memory_bytes == claimed * GIB


class TestWithWeightsOfItsOwn:
    """The last good form is of an earlier version of the weights."""

    MIRROR: ClassVar = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082", "retain": "1h"}
    FILES = (WeightFile("m.gguf", 100, "0" * 64),)

    def of(self, version, **fields):
        source = {"from": f"https://hub.example/{version}.gguf", "version": version}
        return model(cpu=1, source=source, rollout=IN_PLACE, **{"class": "guaranteed"}, **fields)

    def run(self, of, *running, held_, others=(), memory_gib=256):
        good = LastGood(fingerprint(self.of("1"), self.of("1").profiles[0]), canonical.spec(self.of("1")), 1.0, "m/1")
        mirror = MirrorSeen(tuple(Holding("m", v, HoldingState.PRESENT, files=self.FILES) for v in held_))
        seen = Observed((node("n1", *running, versions=["m/1"], memory_gib=memory_gib),), mirror)
        memory = structs.replace(SETTLED, good={"m/cpu": good})
        return decide(wanting(of, *others, nodes=["n1"], mirror=self.MIRROR), seen, memory, NOW)

    def test_it_comes_back_whether_or_not_those_of_the_new_one_can_be_had(self):
        new = self.of("2")

        for there in ("12", "1"):
            plan = self.run(new, failed(new, version="m/2"), held_=there)

            assert [m for m in moves(plan) if m.startswith("+")] == ["+m/cpu/1"]
            assert plan.placements[-1].version == "m/1"

    def test_they_are_kept_for_it_unless_the_model_is_stopped(self):
        running, asleep = self.of("2"), self.of("2", state="stopped")

        assert self.run(running, held_="12").memory.unreferenced == {}
        assert self.run(asleep, held_="12").memory.unreferenced == {"m/1": NOW}

    def test_who_took_its_place_gives_way_to_it_without_any_fetch(self):
        new, other = self.of("2"), model("o", cpu=1, **{"class": "opportunistic"})
        running = failed(new, version="m/2"), replica("o/cpu/0", other)

        plan = self.run(new, *running, held_="12", others=[other], memory_gib=1)

        assert moves(plan) == ["-o/cpu/0"]


def test_weights_that_are_gone_keep_the_last_good_form_from_coming_back_and_that_is_said():
    spec = canonical.spec(model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1"}))
    known = structs.replace(REMEMBERED, good={"m/cpu": LastGood("0" * 16, spec, 1.0, "m/1")})

    plan = run(NEW, failed(), memory=known)

    assert moves(plan) == []
    assert "m/cpu/1: its last good form does not come back: nobody is known to have m/1 any more" in held(plan)


def test_where_what_serves_is_left_beside_a_form_that_fails_that_is_said():
    new = form(2048, n=2)
    old = [replica(f"m/cpu/{n}", form(1024, n=2)) for n in (0, 1)]

    plan = run(new, *old, failed(new, "m/cpu/2"))

    assert moves(plan) == []
    assert held(plan) == [why("and what serves in an earlier one, which is stale, stays")]


def test_what_comes_back_is_of_the_class_and_under_the_quota_that_are_wanted_now():
    # As its form was, two of it would have come back where one is allowed.
    was = model(cpu=2, rollout=IN_PLACE, owner="them")
    now = model(cpu=2, rollout=IN_PLACE, owner="us", context_length=2048, **{"class": "opportunistic"})
    known = after(was, *(replica(f"m/cpu/{n}", was) for n in range(2)))
    seen = Observed((node("n1", *(failed(now, f"m/cpu/{n}") for n in range(2))),))
    quotas = [{"owner": "us", "class": "opportunistic", "replicas": 1}]

    plan = decide(wanting(now, nodes=["n1"], policy={"quotas": quotas}), seen, known, NOW)

    assert moves(plan) == ["+m/cpu/2"]
    assert "m/cpu/3: the quota of the opportunistic models of us is full" in held(plan)


def lived(old, new, *, memory_gib, hours=2):
    """What starts and how few serve while a form is asked for that never comes up, on a node of its own."""
    there = [replica(f"m/cpu/{n}", old) for n in range(old.profiles[0].replicas)]
    wanted, memory, now = wanting(new, nodes=["n1"]), after(old, *there), NOW
    good = memory.good["m/cpu"].fingerprint
    started, least = [], len(there)
    for _ in range(hours * 60):
        now += 60
        there = [structs.replace(r, age_s=r.age_s + 60) for r in there]
        plan = decide(wanted, Observed((node("n1", *there, memory_gib=memory_gib),)), memory, now)
        stay = tuple(p for p in plan.placements if p.action is not Action.DRAIN)
        memory, known = structs.replace(plan.memory, placements=stay), {(r.id, r.generation): r for r in there}
        there = []
        for p in stay:
            if (r := known.get((p.id, p.generation))) is None:
                started.append("old" if p.fingerprint == good else "new")
                phase = R if started[-1] == "old" else F
                r = replica(p.id, old, phase, generation=p.generation, age_s=0, fingerprint=p.fingerprint)
                r = structs.replace(r, attempts=p.attempt + (phase is F))
            there.append(r)
        least = min(least, sum(r.phase is R for r in there))
    return started, least, sum(r.phase is R and r.fingerprint == good for r in there), plan


@pytest.mark.parametrize(
    ("count", "rollout", "memory_gib", "expected", "fewest"),
    [
        pytest.param(1, IN_PLACE, 1, ["new", "old"], 0, id="the only one, in place"),
        pytest.param(3, IN_PLACE, 9, ["new", "old"], 2, id="one of three, in place, with room beside it"),
        pytest.param(2, {"strategy": "auto"}, 2, ["new", "old"], 1, id="in place for want of room"),
        pytest.param(2, {"strategy": "auto"}, 9, ["new"] * 5, 2, id="beside what serves, until it is parked"),
        pytest.param(1, {"strategy": "auto"}, 1, [], 1, id="the only one, without room"),
    ],
)
def test_what_serves_is_given_up_once_at_most_for_a_form_that_never_comes_up(
    count, rollout, memory_gib, expected, fewest
):
    started, least, serving, plan = lived(
        form(1024, count, **rollout), form(2048, count, **rollout), memory_gib=memory_gib
    )

    assert started == expected
    assert (least, serving) == (fewest, count)
    assert any(h.stalled for h in plan.held)
