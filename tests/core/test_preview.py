"""What a change would do, as one value."""

from fleets import NOW, SETTLED, R, fleet, model, node, profile, replica, wanting

from llmgw.cli.plan import exit_code
from llmgw.cli.plan_text import plan_text
from llmgw.core.observed import Observed
from llmgw.core.preview import preview
from llmgw.core.simulate import course
from llmgw.errors import Exit


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
