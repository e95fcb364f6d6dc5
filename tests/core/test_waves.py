"""A change that many models share goes from one to the next, and stops where it does harm."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, F, R, S, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.catalog import canonical
from llmgw.catalog.check import read_fleet
from llmgw.catalog.fingerprint import fingerprint
from llmgw.core.decide import decide
from llmgw.core.memory import LastGood, Wave
from llmgw.core.observed import Observed
from llmgw.core.wanted import judge
from llmgw_agent.protocol import Dossier

SHARED = "the change of defaults in 1a2b3c4d"
OLD = {"fingerprint": "old"}
FRIDAY = [{"name": "friday", "cron": "0 6 * * 5", "duration": "12h"}]
"""NOW is 2027-01-15 08:00 UTC, a Friday."""


def sized(name, memory_gib=1, class_="standard"):
    return model(name, profiles=[profile(memory_gib=memory_gib)], **{"class": class_})


MODELS = (sized("a", 8), sized("b", 2), sized("c", 4, "opportunistic"), sized("d", 1))


def run(*running, wave=None, now=NOW, models=MODELS, **server):
    """A pass in which all four models share a change."""
    wanted = wanting(*models, nodes=["n1"], **server)
    entries = {name: replace(entry, shared=SHARED) for name, entry in wanted.models.items()}
    memory = structs.replace(SETTLED, waves={SHARED: wave} if wave else {})
    return decide(replace(wanted, models=entries), Observed((node("n1", *running),)), memory, now)


def at(name, phase=R, n=0, **fields):
    of = next(m for m in MODELS if m.name == name)
    return replica(f"{name}/cpu/{n}", of, phase, **fields)


def test_the_lowest_class_goes_first_and_of_that_the_smallest():
    plan = run(*(at(name, **OLD) for name in "abcd"))

    assert moves(plan) == ["+c/cpu/1"]
    first = "c goes first in the change of defaults in 1a2b3c4d, and the others follow once it has served for 600 s"
    assert [line for line in held(plan) if "goes first" in line] == [f"{name}: {first}" for name in "abd"]


def test_while_the_first_has_not_served_long_enough_the_others_wait():
    running = [at("c"), *(at(name, **OLD) for name in "abd")]

    assert moves(run(*running)) == []
    assert moves(run(*running, wave=Wave({"c": NOW - 599}))) == []
    assert moves(run(*running, wave=Wave({"c": NOW - 600}))) == ["+b/cpu/1", "+d/cpu/1"]


def test_two_at_a_time_follow_and_the_next_when_one_is_through():
    moving = [at("c"), at("a", **OLD), at("b", **OLD), at("b", S, 1), at("d")]
    wave = Wave({"c": NOW - 700, "d": NOW - 5})

    plan = run(*moving, wave=wave)

    assert moves(plan) == ["+a/cpu/1"]
    assert moves(run(*moving, wave=wave, policy={"models_at_once": 1})) == []


def test_what_waits_is_said():
    plan = run(at("c"), *(at(name, **OLD) for name in "abd"), wave=Wave({"c": NOW - 700}))

    assert "a: it waits its turn in the change of defaults in 1a2b3c4d" in held(plan)


def test_a_failure_holds_the_rest_and_names_it():
    failed = at("c", F, 1, dossier=Dossier("bad_flags", "unknown argument"), attempts=1)

    plan = run(at("c", **OLD), failed, *(at(name, **OLD) for name in "abd"))

    assert moves(plan) == []
    stalled = [h for h in plan.held if h.subject == "a"]
    assert stalled[0].stalled
    assert stalled[0].why == "the change of defaults in 1a2b3c4d goes no further: c fails with it (bad_flags)"


def test_of_one_class_what_takes_no_card_is_smaller_than_what_takes_one_and_then_the_memory_counts():
    cards = model("k", profiles=[profile("gpu", memory_gib=1, gpu={"class": "l40s-48g"})])
    models = (cards, sized("l", 16), sized("m", 8))
    running = [replica(f"{m.name}/{m.profiles[0].name}/0", m, devices=("GPU-0",), **OLD) for m in models]

    plan = run(*running, models=models)

    assert moves(plan) == ["+m/cpu/1"]
    then = run(
        replica("m/cpu/0", models[2]),
        *running[:2],
        models=models,
        wave=Wave({"m": NOW - 600}),
        policy={"models_at_once": 1},
    )
    assert moves(then) == ["+l/cpu/1"]


def test_a_model_that_came_through_and_left_the_catalog_holds_nobody_and_ends_no_pass():
    running = [at(name, **OLD) for name in "abd"]
    rest = tuple(m for m in MODELS if m.name != "c")

    plan = run(*running, wave=Wave({"c": NOW - 700}, speeds={"c": 9.0}, moving=("c",)), models=rest)

    assert [line for line in held(plan) if "goes first" in line]
    assert len(moves(plan)) == 1


def test_a_profile_that_the_change_leaves_alone_is_no_sign_that_it_has_begun():
    two = [profile("cpu"), profile("other")]
    models = tuple(model(n, profiles=two) for n in "abcdef")
    running = [r for m in models for r in (replica(f"{m.name}/cpu/0", m, **OLD), replica(f"{m.name}/other/0", m))]

    assert moves(run(*running, models=models)) == ["+a/cpu/1"]


@pytest.mark.parametrize("stays", [{"strategy": "keep"}, {"freeze": True}], ids=["keep", "freeze"])
def test_nobody_waits_for_a_model_that_keeps_what_runs(stays):
    first = model("c", profiles=[profile(memory_gib=4)], rollout=stays, **{"class": "opportunistic"})
    models = (*(m for m in MODELS if m.name != "c"), first)
    running = [replica("c/cpu/0", first, **OLD), *(at(name, **OLD) for name in "abd")]

    assert moves(run(*running, models=models)) == ["+d/cpu/1"]


def test_a_profile_that_was_parked_before_the_change_stops_nobody():
    both = model("d", profiles=[profile("cpu"), profile("other")])
    failed = replica("d/other/0", both, F, dossier=Dossier("bad_flags", "x"), attempts=1, age_s=9000.0)
    models = (*(m for m in MODELS if m.name != "d"), both)
    running = [*(at(name, **OLD) for name in "abc"), replica("d/cpu/0", both, **OLD), failed]

    plan = run(*running, models=models, wave=Wave(since=NOW - 60))

    assert not [line for line in held(plan) if "goes no further" in line]
    assert "+c/cpu/1" in moves(plan)


@pytest.mark.parametrize(
    ("tps", "follows"),
    [
        pytest.param(76.0, True, id="a fall of 24 %"),
        pytest.param(75.0, True, id="of 25 %"),
        pytest.param(74.0, False, id="of more"),
        pytest.param(None, True, id="not measured yet"),
    ],
)
def test_one_that_answers_more_than_a_quarter_slower_than_before_holds_the_rest_stalled(tps, follows):
    running = [at("c", tps=tps), *(at(name, **OLD) for name in "abd")]

    plan = run(*running, wave=Wave({"c": NOW - 700}, {"c": 100.0}))

    assert bool(moves(plan)) == follows
    if not follows:
        why = "the change of defaults in 1a2b3c4d goes no further: c answers with 74 tokens a second, and did with 100"
        assert [(h.subject, h.why, h.stalled) for h in plan.held] == [(name, why, True) for name in "abd"]


def test_speeds_before_the_change_are_remembered():
    plan = run(at("c", tps=40.0, **OLD), *(at(name, **OLD) for name in "abd"))

    assert plan.memory.waves[SHARED].speeds == {"c": 40.0}


def test_those_that_have_begun_go_on_whatever_was_forgotten():
    running = [at("a", **OLD), at("a", S, 1), at("b", **OLD), at("b", S, 1), at("c", **OLD), at("d", **OLD)]

    plan = run(*running)

    assert sorted(h.subject for h in plan.held if "goes first" in h.why) == ["c", "d"]


def test_a_change_of_one_model_waits_for_nobody():
    assert moves(run(at("a", **OLD), models=MODELS[:1])) == ["+a/cpu/1"]


def test_what_is_short_is_started_while_the_change_waits():
    plan = run(*(at(name, **OLD) for name in "abc"))

    # d has none, and starts in the new form whatever the others wait for.
    assert moves(plan) == ["+c/cpu/1", "+d/cpu/0"]


def test_once_all_are_through_nothing_is_remembered():
    plan = run(*(at(name) for name in "abcd"), wave=Wave(dict.fromkeys("abcd", NOW)))

    assert moves(plan) == []
    assert plan.memory.waves == {}


def test_in_a_freeze_window_nothing_that_runs_is_changed_and_what_is_short_is_started():
    plan = run(at("a", **OLD), models=MODELS[:2], freeze=FRIDAY)

    assert moves(plan) == ["+b/cpu/0"]
    assert held(plan) == ["a: nothing that runs is changed in the freeze window friday"]
    assert moves(run(at("a", **OLD), models=MODELS[:1], freeze=FRIDAY, now=NOW + 13 * 3600)) == ["+a/cpu/1"]


class TestWhatIsShared:
    SERVER = "schema: 1\ncluster: lab\nnodes: [{name: n1, address: 10.0.0.1}]\n"
    MODEL = (
        "name: NAME\ncontext_length: 4096\nsource: {from: /m.gguf}\n"
        "profiles: [{name: cpu, engine: llamacpp, replicas: 1, memory_gib: 1}]\n"
    )

    def commit(self, server="", last=None, **models):
        files = {f"catalog/{n}.yaml": self.MODEL.replace("NAME", n).encode() + t.encode() for n, t in models.items()}
        found = read_fleet({"server.yaml": (self.SERVER + server).encode(), **files})
        assert found.problems == ()
        return judge(found, commit="1a2b3c4d" * 5, committed_at=0, last=last)

    def test_a_default_that_restarts_is(self):
        first = self.commit(a="", b="")
        second = self.commit("defaults: {profile: {batch: 512}}\n", first, a="", b="")

        assert {m.shared for m in second.models.values()} == {SHARED}

    def test_another_version_of_the_engine_is(self):
        first = self.commit("defaults: {profile: {engine_version: b9000}}\n", a="", b="")
        second = self.commit("defaults: {profile: {engine_version: b11549}}\n", first, a="", b="")

        assert {m.shared for m in second.models.values()} == {SHARED}
        assert {m.model.profiles[0].engine_version for m in second.models.values()} == {"b11549"}

    def test_a_block_is_for_those_that_extend_it(self):
        first = self.commit("blocks: {big: {profile: {batch: 512}}}\n", a="extends: big\n", b="")
        second = self.commit("blocks: {big: {profile: {batch: 256}}}\n", first, a="extends: big\n", b="")

        assert second.models["a"].shared == "the change of block big in 1a2b3c4d"
        assert second.models["b"].shared == ""

    def test_a_default_that_restarts_nothing_is_not(self):
        first = self.commit(a="")
        second = self.commit("defaults: {owner: ana}\n", first, a="")

        assert second.models["a"].shared == ""

    def test_a_models_own_change_is_not(self):
        first = self.commit("defaults: {profile: {batch: 512}}\n", a="")
        second = self.commit("defaults: {profile: {batch: 512}}\n", first, a="kind: completion\n")

        assert second.models["a"].shared == ""

    def test_it_stays_until_the_model_changes_again(self):
        first = self.commit(a="", b="")
        second = self.commit("defaults: {profile: {batch: 512}}\n", first, a="", b="")
        third = self.commit("defaults: {profile: {batch: 512}}\n", second, a="", b="kind: completion\n")

        assert third.models["a"].shared == SHARED
        assert third.models["b"].shared == ""


@pytest.mark.parametrize("server", [{}, {"freeze": FRIDAY}], ids=["a shared change", "a freeze window"])
def test_what_a_lost_node_had_comes_back_as_it_was_while_the_change_waits(server):
    before = {m.name: m.model_copy(update={"context_length": m.context_length // 2}) for m in MODELS}
    good = {f"{n}/cpu": LastGood(fingerprint(m, m.profiles[0]), canonical.spec(m)) for n, m in before.items()}
    wanted = wanting(*MODELS, nodes=["n1", "n2"], **server)
    entries = {name: replace(entry, shared=SHARED) for name, entry in wanted.models.items()}
    lost = [replica(f"{name}/cpu/0", m) for name, m in before.items()]
    seen = Observed((node("n1", *lost, age_s=5000.0), node("n2")))

    plan = decide(replace(wanted, models=entries), seen, structs.replace(SETTLED, good=good), NOW)

    new = {p.id.partition("/")[0]: p.fingerprint for p in plan.placements if p.node == "n2"}
    as_it_was = {name for name, form in new.items() if form == good[f"{name}/cpu"].fingerprint}
    assert sorted(new) == ["a", "b", "c", "d"]
    # In a wave one goes first; in a window none does.
    assert set(new) - as_it_was == (set() if server else {"c"})
