"""What is said of a fleet: its states, when it is committed, and in which words."""

import pytest
from fleets import NOW, SETTLED, F, R, S, fleet, model, node, replica, wanting
from msgspec import structs

from llmgw.core.cadence import due_in_s, worth_writing
from llmgw.core.decide import decide
from llmgw.core.explain import message, transitions
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw.core.outlook import with_speeds
from llmgw.core.status import status
from llmgw.planning.learned import Estimates, Figure, Run
from llmgw_agent.protocol import Dossier

MIRROR = {"base": "http://a:1", "api": "http://a:2"}


def said(of, seen, *, memory=SETTLED, now=NOW, **more):
    """The status of a fleet as decided on."""
    wanted = wanting(*of, nodes=[n.name for n in seen.nodes], **more)
    return status(wanted, seen, decide(wanted, seen, memory, now), now)


def states(found):
    return {m.name: m.state for m in found.models}


@pytest.mark.parametrize(
    ("asked", "running", "state"),
    [
        pytest.param({"gpu": 1, "cpu": 1}, {"gpu": [R], "cpu": [R]}, "ready", id="as asked"),
        pytest.param({"gpu": 2}, {"gpu": [R, S]}, "reconciling", id="one starts"),
        pytest.param({"gpu": 1}, {"gpu": [R, R]}, "reconciling", id="one stops"),
        pytest.param({"gpu": 0}, {}, "stopped", id="none asked"),
        pytest.param({"gpu": 2}, {"gpu": [R, F]}, "reconciling", id="one failed and is tried again"),
    ],
)
def test_a_models_state_is_one_word(asked, running, state):
    of = model(**asked)

    assert states(said([of], fleet(of, "n1", **running))) == {"m": state}


def test_what_only_a_change_can_help_is_stalled_and_says_what_to_do():
    of = model(cpu=1)
    failed = replica("m/cpu/0", of, F, age_s=60, dossier=Dossier("bad_flags", "error: invalid argument: --x"))

    found = said([of], Observed((node("n1", failed),)))

    assert states(found) == {"m": "stalled"}
    (condition,) = found.models[0].conditions
    assert condition.why == "it is parked after failing 1 time: bad_flags: error: invalid argument: --x"
    assert condition.next == "change what it runs with, or its source; the same is not tried again"
    assert not found.as_asked


def test_a_model_that_left_the_catalog_is_leaving_until_it_is_gone():
    of = model(cpu=1)

    found = said([], Observed((node("n1", replica("m/cpu/0", of)),)))

    assert states(found) == {"m": "leaving"}


def test_an_unreachable_mirror_is_said_and_is_not_an_empty_one():
    found = said([], Observed((node("n1"),)), mirror={"base": "http://a:1", "api": "http://a:2"})

    assert found.mirror.reachable is False


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"age_s": 3.0}, id="the age of a report"),
        pytest.param({"used_gib": 7}, id="memory that others use"),
        pytest.param({"disk_gib": 500}, id="free disk"),
    ],
)
def test_what_moves_by_itself_is_no_reason_for_a_commit(later):
    of = model(cpu=1)
    before = said([of], Observed((node("n1", replica("m/cpu/0", of)),)))
    after = said([of], Observed((node("n1", replica("m/cpu/0", of, busy=2, tps=9.5), **later),)), now=NOW + 5)

    assert before.digest == after.digest


@pytest.mark.parametrize(
    ("later", "written"),
    [
        pytest.param({"used_gib": 2}, False, id="2 GiB more that others hold"),
        pytest.param({"used_gib": 3}, True, id="3 GiB more"),
        pytest.param({"disk_gib": 498}, False, id="2 GiB less of disk"),
        pytest.param({"disk_gib": 497}, True, id="3 GiB less"),
    ],
)
def test_what_others_take_is_written_when_it_moved_by_over_two_gib_since_plans_count_on_it(later, written):
    of = model(cpu=1)
    before = said([of], Observed((node("n1", replica("m/cpu/0", of), disk_gib=500),)))
    after = said([of], Observed((node("n1", replica("m/cpu/0", of), **{"disk_gib": 500, **later}),)))

    assert worth_writing(before, after) is written
    assert not worth_writing(before, before)


def test_a_disk_that_fills_all_day_is_a_commit_each_ten_minutes():
    of = model(cpu=1)
    before, after = (said([of], Observed((node("n1", replica("m/cpu/0", of), disk_gib=gib),))) for gib in (500, 400))

    assert [waits(before, after, changed_s=60.0, committed_s=s) for s in (60.0, 600.0)] == [540.0, 0.0]


def test_what_comes_to_need_a_person_is_not_held_back_by_the_commit_before_it():
    of = model(cpu=1)
    starting = said([of], fleet(of, "n1", cpu=[S]))
    parked = Dossier("bad_flags", "error: invalid argument: --x")
    failed = said([of], Observed((node("n1", replica("m/cpu/0", of, F, age_s=60, dossier=parked)),)))

    assert waits(starting, failed, committed_s=1.0) == 10.0


@pytest.mark.parametrize(("done", "arrived"), [(0, 0), (24, 0), (25, 25), (49, 25), (50, 50), (99, 75), (100, 100)])
def test_what_arrives_is_said_in_quarters_since_each_would_be_a_commit(done, arrived):
    of = model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1"})
    holding = Holding("m", "1", HoldingState.FETCHING, total_bytes=100, done_bytes=done)

    found = said([of], Observed((node("n1"),), MirrorSeen((holding,))), mirror=MIRROR)

    assert [(h.bytes, h.arrived) for h in found.mirror.holdings] == [(100, arrived)]


def test_weights_that_no_model_refers_to_are_said_of_the_node_that_holds_them():
    of = model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1"})

    found = said([of], Observed((node("n1", versions=["m/1", "old/3"]),)), mirror=MIRROR)

    assert found.nodes[0].unwanted == ("old/3",)


def test_how_fast_a_model_answers_is_what_was_measured_and_moves_no_commit():
    of = model(cpu=1)
    seen = Observed((node("n1", replica("m/cpu/0", of)),))
    runs = tuple(
        Run("m", "cpu", n, "llamacpp", "llama", "cpu", tps=Figure(30.0, tps)) for n, tps in (("n1", 20.0), ("n2", 24.0))
    )
    plain = structs.replace(said([of], seen), estimates=Estimates(int(NOW), runs))

    found = with_speeds(plain, wanting(of, nodes=["n1"]), seen)

    (taken,) = found.models[0].now.taken
    assert (taken.profile, taken.memory_bytes, taken.tps, taken.measured) == ("cpu", 1 << 30, 22.0, True)
    assert found.digest == plain.digest


def test_a_replica_that_changed_its_phase_is():
    of = model(cpu=1)

    assert said([of], fleet(of, "n1", cpu=[S])).digest != said([of], fleet(of, "n1", cpu=[R])).digest


def waits(before, now, *, changed_s=0.0, committed_s=1e9):
    return due_in_s(before, now, changed_s=changed_s, committed_s=committed_s)


def test_a_verdict_on_a_commit_comes_within_two_seconds():
    found = said([], Observed((node("n1"),)))

    assert waits(None, found) <= 2
    assert waits(structs.replace(found, observed_commit="d" * 40), found, committed_s=1.0) <= 2


def test_the_end_of_a_rollout_is_not_waited_for():
    of = model(cpu=1)
    starting, ready = said([of], fleet(of, "n1", cpu=[S])), said([of], fleet(of, "n1", cpu=[R]))

    assert waits(starting, ready, committed_s=1.0) <= 2


def test_a_lost_node_or_model_is_committed_after_ten_seconds():
    of = model(cpu=1)
    well = said([of], fleet(of, "n1", "n2", cpu=[R]))
    silent = said([of], fleet(of, "n1", "n2", silent=["n2"], cpu=[R]))
    down = said([of], fleet(of, "n1", "n2", cpu=[F]))

    assert [waits(well, now, committed_s=1.0) for now in (silent, down)] == [10.0, 10.0]
    assert waits(well, silent, changed_s=10.0, committed_s=1.0) == 0


def test_anything_else_settles_first_and_comes_at_most_once_a_minute():
    of = model(cpu=3)
    one, two = said([of], fleet(of, "n1", cpu=[R, S, S])), said([of], fleet(of, "n1", cpu=[R, R, S]))

    assert waits(one, two) == 10
    assert waits(one, two, changed_s=30.0, committed_s=31.0) == 29
    assert waits(one, two, changed_s=60.0, committed_s=61.0) == 0


def test_in_a_busy_hour_what_nobody_waits_for_comes_every_ten_minutes():
    of = model(cpu=3)
    one, two = said([of], fleet(of, "n1", cpu=[R, S, S])), said([of], fleet(of, "n1", cpu=[R, R, S]))
    lost = said([of], fleet(of, "n1", "n2", silent=["n2"], cpu=[R, S, S]))

    def wait(now, in_hour):
        return due_in_s(one, now, changed_s=60.0, committed_s=60.0, in_hour=in_hour)

    assert [wait(two, n) for n in (5, 6)] == [0.0, 540.0]
    assert wait(lost, 6) == 0.0, "a lost node is said as soon as ever"


def test_the_subject_says_what_happened_and_the_body_has_a_line_for_each():
    of = model(gpu=1, cpu=1)
    before = said([of], fleet(of, "n1", gpu=[S], cpu=[S]))
    after = said([of], fleet(of, "n1", gpu=[R], cpu=[R]))

    assert message(before, after) == ("m: 1/1 cpu, 1/1 gpu ready", "m: 1/1 cpu, 1/1 gpu ready")


def test_a_subject_fits_and_says_how_many_more_there_are():
    many = [model(f"a-model-with-quite-a-long-name-number-{n}", cpu=1) for n in range(60)]
    seen = Observed((node("n1", *(replica(f"{m.name}/cpu/0", m) for m in many), cores=100),))

    subject, body = message(None, said(many, seen))

    assert len(subject) <= 72
    assert subject.endswith("(and 60 more)")
    assert len(body.splitlines()) == 51
    assert body.endswith("and 11 more")


def test_trouble_is_named_first_and_what_is_over_is_said_too():
    of = model(cpu=1)
    well = said([of], fleet(of, "n1", cpu=[R]))
    broken = structs.replace(well, problems=("catalog/a.yaml:3:1: it is broken",))

    assert transitions(well, broken) == ["catalog/a.yaml:3:1: it is broken"]
    assert transitions(broken, well) == ["every file of the catalog can be used again"]


def test_nothing_secret_is_in_a_status():
    import msgspec

    of = model(cpu=1)
    seen = Observed((node("n1", replica("m/cpu/0", of, key="engine-secret", port=7500)),))

    assert b"engine-secret" not in msgspec.json.encode(said([of], seen))


def test_why_a_profile_has_no_node_is_a_table_in_the_status_that_makes_no_commit():
    of = model(cpu=3)

    def looked(used_gib):
        wanted, seen = wanting(of, nodes=["n1"]), Observed((node("n1", memory_gib=1, used_gib=used_gib),))
        return status(wanted, seen, decide(wanted, seen, SETTLED, NOW), NOW)

    (shortage,) = looked(0.5).models[0].now.unplaced
    (reason,) = shortage.reasons
    assert (shortage.profile, reason.rule, reason.nodes) == ("cpu", "memory", 1)
    assert [(n.node, n.missing, n.changes) for n in reason.nearest] == [
        ("n1", "0.5 GiB of memory short", ("with 0.5 GiB less memory",))
    ]
    assert shortage.detail.endswith("it would fit on n1 with 0.5 GiB less memory")
    assert looked(0.5).digest == looked(0.75).digest


def test_what_nothing_refers_to_says_since_when():
    of = model("m", cpu=1, source={"from": "https://h.example/m.gguf", "version": "1"})
    used, unused = (Holding(name, "1", HoldingState.PRESENT) for name in ("m", "old"))

    found = said([of], Observed((node("n1"),), MirrorSeen((used, unused))), mirror=MIRROR)

    assert {h.name: h.unreferenced_since for h in found.mirror.holdings} == {"m": None, "old": int(NOW)}
