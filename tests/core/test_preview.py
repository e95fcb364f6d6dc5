"""What a change would do, as one value."""

from dataclasses import replace

import pytest
from fleets import L40S, NOW, SETTLED, R, card, fleet, model, node, profile, replica, wanting
from locks import FACTS, lock
from msgspec import structs

from llmgw.cli.plan import exit_code
from llmgw.cli.plan_markdown import plan_markdown
from llmgw.cli.plan_text import plan_text
from llmgw.cli.plan_words import interrupted
from llmgw.cli.render import as_json
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.interruption import Interruption, interruptions
from llmgw.core.model_change import Move
from llmgw.core.noticed import noticed, unpinned
from llmgw.core.observed import Observed
from llmgw.core.preview import preview
from llmgw.core.simulate import Course, Step, course
from llmgw.core.wanted import WantedModel
from llmgw.errors import Exit
from llmgw.units import GIB
from llmgw_agent.protocol import Claim, ForeignProcess, InstalledEngine

MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082"}


def change(before, after, seen):
    """The preview of a change from one catalog to another."""
    base = wanting(*before, nodes=[n.name for n in seen.nodes])
    head = wanting(*after, nodes=[n.name for n in seen.nodes])
    ended = course(head, seen, SETTLED, NOW)
    return preview(base, head, ended, observed="control, now", dirty=False, based_on="b" * 40)


def test_a_settled_fleet_without_a_change_has_nothing_to_do():
    of = model(cpu=2)

    plan = change([of], [of], fleet(of, "n1", cpu=[R, R]))

    assert not plan.changes
    assert exit_code(plan, detailed=True) == Exit.DONE
    assert plan_text(plan).splitlines()[-1].startswith("result: nothing to do")


def test_a_change_of_counts_says_who_starts_where_and_that_nothing_restarts():
    before, after = model(cpu=1), model(cpu=2)

    plan = change([before], [after], fleet(before, "n1", cpu=[R]))

    (m,) = plan.models
    assert [(f.field, f.before, f.after, f.effect) for f in m.fields] == [
        ("profiles.cpu.replicas", 1, 2, "the difference starts or stops")
    ]
    assert [(s.id, s.node) for s in m.starts] == [("m/cpu/1", "n1")]
    assert m.stops == ()
    assert exit_code(plan, detailed=True) == Exit.CHANGES


def test_a_new_fingerprint_is_rolled_one_step_after_the_other():
    before, after = model(cpu=2), model(cpu=2, context_length=8192)

    plan = change([before], [after], fleet(before, "n1", cpu=[R, R]))

    assert [[f"{a.__struct_config__.tag} {a.id}" for a in step] for step in plan.steps] == [
        ["start m/cpu/2"],
        ["start m/cpu/3", "stop m/cpu/1"],
        ["stop m/cpu/0"],
    ]


def test_models_that_are_not_in_the_change_are_counted_and_not_listed():
    edited, other = model("edited", cpu=1), model("other", cpu=1)
    seen = Observed((node("n1", replica("edited/cpu/0", edited), replica("other/cpu/0", other)),))

    plan = change([edited, other], [model("edited", cpu=2), other], seen)

    assert ([m.name for m in plan.models], plan.unchanged) == (["edited"], 1)


def test_what_cannot_be_placed_is_held_with_why_and_the_code_tells():
    before, after = model(cpu=0), model(profiles=[profile(memory_gib=999)])

    plan = change([before], [after], Observed((node("n1"),)))

    assert exit_code(plan, detailed=False) == Exit.HELD
    assert (
        "no node has room for it (n1: 743.0 GiB of memory short; it would fit on n1 with 743.0 GiB less memory)"
        in plan_text(plan)
    )


def test_profiles_whose_names_have_dots_are_no_trouble():
    before = model(profiles=[profile("a.b", replicas=1)])
    after = model(profiles=[profile("a.b", replicas=2, priority=3)])

    plan = change([before], [after], Observed((node("n1", replica("m/a.b/0", before)),)))

    assert [(f.field, f.effect) for f in plan.models[0].fields] == [
        ("profiles.a.b.priority", "nothing that runs is touched"),
        ("profiles.a.b.replicas", "the difference starts or stops"),
    ]


def test_a_path_that_changes_restarts_and_a_version_had_from_elsewhere_does_not():
    def from_(where, version=None):
        return model(cpu=1, source={"from": where} | ({"version": version} if version else {}))

    path = change([from_("/a.gguf")], [from_("/b.gguf")], Observed((node("n1"),)))
    moved = change([from_("https://a/m.gguf", "1")], [from_("https://b/m.gguf", "1")], Observed((node("n1"),)))

    assert path.models[0].fields[0].effect == "its replicas start again"
    assert moved.models[0].fields[0].effect == "nothing that runs is touched"


def test_the_same_change_has_the_same_digest_and_another_has_another():
    before = model(cpu=1)
    seen = fleet(before, "n1", cpu=[R])

    assert change([before], [model(cpu=2)], seen).digest == change([before], [model(cpu=2)], seen).digest
    assert change([before], [model(cpu=3)], seen).digest != change([before], [model(cpu=2)], seen).digest


def test_a_change_of_words_alone_is_a_change_and_no_step():
    before, after = model(cpu=1), model(cpu=1, description="other words")

    plan = change([before], [after], fleet(before, "n1", cpu=[R]))

    assert plan.steps == ()
    assert exit_code(plan, detailed=True) == Exit.CHANGES
    assert "description: empty to other words  (nothing that runs is touched)" in plan_text(plan)


def test_what_runs_and_no_commit_asks_for_is_moved_and_changed_by_none():
    left = model("left", cpu=1)

    plan = change([], [], Observed((node("n1", replica("left/cpu/0", left)),)))

    (m,) = plan.models
    assert (m.name, m.action, m.counts, m.fields) == ("left", "none", (), ())
    assert [s.id for s in m.stops] == ["left/cpu/0"]
    assert plan.changes


def settled(of, *names, **phases):
    """What a fleet that runs a model is planned from: the preview of a change of it, with what it would do anyway."""
    seen = fleet(of, *names, **phases)

    def to(*after, nodes=None):
        given = nodes or [n.name for n in seen.nodes]
        base, head = wanting(of, nodes=names), wanting(*after, nodes=given)
        ended, without = course(head, seen, SETTLED, NOW), course(base, seen, SETTLED, NOW)
        return preview(base, head, ended, observed="here", dirty=False, based_on="b" * 40, without=without)

    return to


def test_cards_are_counted_before_at_the_fullest_and_in_the_end():
    """hashicorp/terraform#17694: no sign says in which order things happen, or what they need meanwhile."""
    of = model(gpu=2)

    plan = settled(of, "n1", gpu=[R, R])(model(gpu=2, context_length=2048))

    assert [(c.card_class, c.before, c.peak, c.after, c.total) for c in plan.cards] == [(L40S, 2, 4, 2, 8)]
    assert [(m.before - m.least, m.after - m.least) for m in plan.memory] == [(2 * GIB, 2 * GIB)]


def test_each_start_is_held_against_what_is_free_on_its_node_and_cards():
    plan = settled(model(gpu=1), "n1", gpu=[R])(model(gpu=2))

    (fit,) = plan.models[0].fits
    assert (fit.id, fit.node, fit.claim_bytes, fit.free_bytes) == ("m/gpu/1", "n1", GIB, 255 * GIB)
    assert [(c.card, c.free_bytes, c.needs_bytes) for c in fit.cards] == [("GPU-1", 45 * GIB, None)]


def test_what_leaves_a_drained_node_is_a_move():
    of = model(cpu=1)
    nodes = [{"name": "n1", "address": "10.0.0.1", "drained": True}, {"name": "n2", "address": "10.0.0.1"}]

    plan = settled(of, "n1", "n2", cpu=[R])(of, nodes=nodes)

    (m,) = plan.models
    assert (m.action, m.moves) == ("none", (Move("cpu", "n1", "n2"),))
    assert [(f.field, f.before, f.after) for f in plan.server] == [("nodes.n1.drained", False, True)]
    assert plan.drift.models == ()


@pytest.mark.parametrize(
    ("phases", "count", "expected"),
    [
        pytest.param([R, R], 2, Interruption(1, 2, 4, None), id="one of two at a time"),
        pytest.param([R], 1, Interruption(0, 1, 2, None), id="the only one"),
    ],
)
def test_what_is_rolled_in_place_has_less_service_meanwhile(phases, count, expected):
    of = model(cpu=count, rollout={"strategy": "in_place"})

    plan = settled(of, "n1", cpu=phases)(model(cpu=count, rollout={"strategy": "in_place"}, context_length=2048))

    assert plan.models[0].interruption == expected


def test_what_starts_before_it_stops_has_all_its_service():
    assert settled(model(cpu=2), "n1", cpu=[R, R])(model(cpu=2, context_length=2048)).models[0].interruption is None


def test_seconds_without_service_are_known_where_starts_were_timed():
    of = model(cpu=1, rollout={"strategy": "in_place"})
    after = model(cpu=1, rollout={"strategy": "in_place"}, context_length=2048)
    seen = Observed((node("n1", replica("m/cpu/0", of, age_s=100, started_age_s=140.0)),))

    (m,) = change([of], [after], seen).models

    assert m.interruption == Interruption(0, 1, 2, 40.0)


def test_who_gives_way_is_said_with_to_whom():
    """(LS8) What is evicted follows from sizes and classes, and the plan shows it."""
    low = model("low", profiles=[profile(memory_gib=200)], **{"class": "opportunistic"})
    high = model("high", profiles=[profile(memory_gib=200)], **{"class": "guaranteed"})

    seen = Observed((node("n1", replica("low/cpu/0", low, claim=Claim(200 * GIB, 1))),))
    plan = change([low], [low, high], seen)

    assert {m.name: m.gives_way_to for m in plan.models} == {"high": "", "low": "high"}
    assert "loses   its place to high" in plan_text(plan)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ({"aliases": ["a", "b"]}, {"aliases": ["b"]}, "requests for a get 404: the alias is gone"),
        ({}, {"aliases": ["b"]}, "b can be asked for"),
        (
            {},
            {"context_length": 2048},
            "one request may use 2048 tokens and not 4096: shorter: a longer",
        ),
        ({}, {"max_output": 100}, "one answer may have 100 tokens, before what is left of the context"),
        ({}, {"state": "stopped"}, "requests are refused: it is stopped"),
        ({}, {"cpu": 1}, "2 requests are answered at the same time and not 4: the others wait"),
        ({}, {"source": {"from": "/other.gguf"}}, "its weights are others: answers may differ"),
        ({"capabilities": ["tools"]}, {}, "the list of models does not say tools of it any more"),
    ],
)
def test_what_clients_notice_is_said(before, after, sentence):
    was, will = model(**{"cpu": 2, **before}), model(**{"cpu": 2, **after})

    said = noticed(WantedModel(was, "", ""), WantedModel(will, "", ""))

    assert any(line.startswith(sentence) for line in said), said


def test_other_words_are_noticed_by_nobody():
    was, will = model(cpu=1), model(cpu=1, description="x", owner="y")

    assert noticed(WantedModel(was, "", ""), WantedModel(will, "", "")) == ()


def test_another_version_of_an_engine_says_who_has_it_and_in_which_order_models_roll():
    had = (InstalledEngine("llamacpp", "b1"), InstalledEngine("llamacpp", "b2"))
    of = model("m", profiles=[profile(engine_version="b1")])
    seen = Observed((node("n1", replica("m/cpu/0", of), engines=had), node("n2", engines=had[:1])))

    plan = change([of], [model("m", profiles=[profile(engine_version="b2")])], seen)

    (rolled,) = plan.engines
    assert (rolled.before, rolled.after) == ("b1", "b2")
    assert (rolled.nodes_with, rolled.nodes_without, rolled.nodes_unknown) == (("n1",), ("n2",), ())
    assert rolled.models == ("m",)
    assert "is not known here" in rolled.flags


def test_drift_is_what_would_happen_without_the_change_too():
    of, other = model(cpu=2), model("other", cpu=1)
    seen = fleet(of, "n1", cpu=[R])
    base, head = wanting(of, nodes=["n1"]), wanting(of, other, nodes=["n1"])
    ended, without = course(head, seen, SETTLED, NOW), course(base, seen, SETTLED, NOW)

    plan = preview(base, head, ended, observed="", dirty=False, based_on="", without=without)

    assert [m.name for m in plan.models] == ["other"]
    assert [m.name for m in plan.drift.models] == ["m"]
    assert [[a.id for a in step] for step in plan.own_steps] == [["other/cpu/0"]]


def test_what_is_fetched_is_counted_with_its_bytes_and_what_is_left_of_disks():
    source = {"from": "https://a/m.gguf", "version": "1", "sha256": "0" * 64}
    of = model(cpu=1, source=source)
    head = wanting(of, nodes=["n1"], mirror=MIRROR)
    head = replace(head, models={"m": replace(head.models["m"], lock=lock(5 * GIB))})
    seen = Observed((node("n1", disk_gib=100),), MirrorSeen((), 50 * GIB))

    plan = preview(None, head, course(head, seen, SETTLED, NOW), observed="", dirty=False, based_on="")

    assert [(d.to, d.version, d.bytes, d.seconds) for d in plan.downloads] == [
        ("n1", "m/1", 5 * GIB, None),
        ("the mirror", "m/1", 5 * GIB, None),
    ]
    assert [(d.at, d.before, d.after) for d in plan.disks] == [
        ("n1", 100 * GIB, 95 * GIB),
        ("the mirror", 50 * GIB, 45 * GIB),
    ]


def test_a_url_is_shown_without_what_lets_somebody_in():
    source = {"from": "https://a/m.gguf?token=hunter2", "version": "1", "sha256": "0" * 64}
    head = wanting(model(cpu=1, source=source), nodes=["n1"], mirror=MIRROR)

    seen = Observed((node("n1"),), MirrorSeen((), 50 * GIB))
    plan = preview(None, head, course(head, seen, SETTLED, NOW), observed="", dirty=False, based_on="")

    assert plan.models[0].fetches[0].source == "https://a/m.gguf?…"
    assert "hunter2" not in as_json(plan) + plan_text(plan) + plan_markdown(plan)


@pytest.mark.parametrize(
    ("purged", "note"),
    [
        (frozenset(), "push a commit with the line `Llmgw-Purge: m` at its end"),
        (frozenset({"m"}), "its files are freed as soon as its replicas have stopped"),
    ],
)
def test_a_removal_says_what_becomes_of_the_files_and_the_line_to_paste(purged, note):
    of = model(cpu=1, source={"from": "https://a/m.gguf", "version": "1", "sha256": "0" * 64})
    head = replace(wanting(nodes=["n1"]), purged=purged)
    seen = fleet(of, "n1", cpu=[R])

    ended = course(head, seen, SETTLED, NOW)
    (m,) = preview(wanting(of, nodes=["n1"]), head, ended, observed="", dirty=False, based_on="").models

    assert m.notes[0].endswith(note)


def test_a_claim_below_what_is_expected_is_said():
    head = wanting(model(cpu=1), nodes=["n1"])
    head = replace(head, models={"m": replace(head.models["m"], lock=lock(**FACTS))})

    ended = course(head, Observed((node("n1"),)), SETTLED, NOW)
    (m,) = preview(None, head, ended, observed="", dirty=False, based_on="").models

    assert "cpu: 9.4 GiB of memory are expected, and 1.0 GiB are claimed: raise its memory_gib" in m.notes


def test_less_service_that_does_not_end_is_said_to_stay():
    of = model(cpu=2)
    two, one = fleet(of, "n1", cpu=[R, R]), fleet(of, "n1", cpu=[R])
    ended = Course((Step((), two, one),), (), one, SETTLED, settled=True)

    (found,) = interruptions(ended, {"m": 2}).values()

    assert found == Interruption(1, 2, 1, None, lasts=True)
    assert interrupted(found) == "1 of 2 replicas serve for 1 step, and it stays so"


def test_what_is_replaced_where_it_is_does_not_move():
    assert settled(model(cpu=1), "n1", cpu=[R])(model(cpu=1, context_length=2048)).models[0].moves == ()


def test_nodes_that_share_a_disk_fetch_once():
    source = {"from": "https://a/m.gguf", "version": "1", "sha256": "0" * 64}
    head = wanting(model(cpu=2, source=source, context_length=4096), nodes=["n1", "n2"], mirror=MIRROR)
    two = (node(name, cores=1) for name in ("n1", "n2"))
    shared = (structs.replace(n, inventory=structs.replace(n.inventory, weights_id="disk-1")) for n in two)
    seen = Observed(tuple(shared), MirrorSeen((Holding("m", "1", HoldingState.PRESENT),), None))

    plan = preview(None, head, course(head, seen, SETTLED, NOW), observed="", dirty=False, based_on="")

    assert {s.node for s in plan.models[0].starts} == {"n1", "n2"}
    assert [(d.to, d.version) for d in plan.downloads] == [("n1", "m/1")]


def test_a_node_that_does_not_say_its_version_may_have_the_asked_one():
    of = model("m", profiles=[profile(replicas=0)])
    engines = {"old": (InstalledEngine("llamacpp", "b1"),), "mute": (InstalledEngine("llamacpp"),), "older": None}
    seen = Observed(tuple(node(name, engines=has) for name, has in sorted(engines.items())))

    (rolled,) = change([of], [model("m", profiles=[profile(replicas=0, engine_version="b2")])], seen).engines

    assert (rolled.nodes_with, rolled.nodes_without, rolled.nodes_unknown) == ((), ("old",), ("mute", "older"))


@pytest.mark.parametrize(
    ("source", "locked", "sentence"),
    [
        ({"from": "/m.gguf"}, None, ""),
        ({"from": "hf://o/n@main/m.gguf", "version": "1"}, None, "its revision main moves, and there is no lock"),
        ({"from": "https://a/m.gguf", "version": "1"}, None, "it has no lock and no sha256"),
        ({"from": "https://a/m.gguf", "version": "1", "sha256": "0" * 64}, None, ""),
        ({"from": "https://a/m.gguf", "version": "1"}, lock(1), "its lock has no sha256 of m.gguf"),
        ({"from": "https://a/m.gguf", "version": "1", "sha256": "0" * 64}, lock(1), ""),
    ],
)
def test_what_of_a_source_is_not_fixed_is_said(source, locked, sentence):
    said = unpinned(WantedModel(model(cpu=1, source=source), "", "", lock=locked))

    assert [line.startswith(sentence) for line in said] == [True] * bool(sentence)


def test_a_card_that_another_program_holds_is_short_and_its_program_is_named():
    """(GS1) The scheduler counted only its own claims, and the engine failed without saying why."""
    theirs = structs.replace(card(0, used_gib=27), processes=(ForeignProcess(4711, 27 * GIB, "python3"),))
    after = model(gpu=1)

    plan = change([], [after], Observed((node("n1", cards=[theirs]),)))

    assert plan.models[0].starts == ()
    assert "27.0 GiB of GPU-0 held by python3 (pid 4711)" in plan_text(plan)
    assert "python3 \\(pid 4711\\)" in plan_markdown(plan)
