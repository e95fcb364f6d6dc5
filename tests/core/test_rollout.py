"""A new fingerprint: what runs goes on serving until its successor does."""

import pytest
from fleets import NOW, SETTLED, F, R, S, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw_agent.protocol import Action, Dossier

OLD = {"fingerprint": "of the last commit"}


def run(of, *replicas, memory=SETTLED, now=NOW, **room):
    return decide(wanting(of, nodes=["n1"]), Observed((node("n1", *replicas, **room),)), memory, now)


def test_with_room_the_successor_starts_beside_and_one_at_a_time():
    of = model(cpu=3)

    plan = run(of, *(replica(f"m/cpu/{i}", of, **OLD) for i in range(3)))

    assert moves(plan) == ["+m/cpu/3"]
    assert plan.actions[0].why == "takes the place of m/cpu/2, which is out of date"


def test_while_a_successor_starts_nothing_else_moves():
    of = model(cpu=2)

    plan = run(of, replica("m/cpu/0", of, **OLD), replica("m/cpu/1", of, **OLD), replica("m/cpu/2", of, S))

    assert moves(plan) == []


def test_once_a_successor_serves_one_that_is_out_of_date_stops():
    of = model(cpu=2)

    plan = run(of, replica("m/cpu/0", of, **OLD), replica("m/cpu/1", of, **OLD), replica("m/cpu/2", of))

    assert moves(plan) == ["+m/cpu/3", "-m/cpu/1"]


def test_one_that_is_out_of_date_and_not_serving_yet_is_stopped_at_once():
    of = model(cpu=1)

    plan = run(of, replica("m/cpu/0", of, S, **OLD))

    assert moves(plan) == ["+m/cpu/1", "-m/cpu/0"]


def test_without_room_one_makes_room_in_place_while_another_serves():
    of = model(cpu=2)

    plan = run(of, replica("m/cpu/0", of, **OLD), replica("m/cpu/1", of, **OLD), memory_gib=2)

    assert moves(plan) == ["-m/cpu/1"]
    assert plan.actions[0].why == "it makes room in place for m/cpu/2"
    assert held(plan) == ["m/cpu/2: it waits until m/cpu/1 has made room"]


def test_the_only_one_that_serves_is_never_given_up_for_room():
    # DS1: an update that could not be placed ended the healthy replica.
    of = model(cpu=1)

    plan = run(of, replica("m/cpu/0", of, **OLD), memory_gib=1)

    assert moves(plan) == []
    assert [h.sentence for h in plan.held] == [
        "m/cpu/1: no node has room for it, and m/cpu/0, which would make some, is the only one that serves "
        "(n1: 1.0 GiB of memory short; it would fit on n1 with 1.0 GiB less memory); free room for a second one, "
        "or set `state: stopped` on m for as long as it takes"
    ]
    assert plan.held[0].stalled


@pytest.mark.parametrize(
    ("dossier", "then"),
    [
        pytest.param(
            Dossier("out_of_memory", "failed to allocate"),
            "it is parked after failing 1 time: out_of_memory: failed to allocate",
            id="for good",
        ),
        pytest.param(
            Dossier("exited", "it ended"), "it failed, and is tried again: exited: it ended", id="until its cause goes"
        ),
    ],
)
def test_a_version_that_does_not_come_up_stops_its_rollout_keeps_what_runs_and_is_stalled_with_its_dossier(
    dossier, then
):
    of = model(cpu=2)
    failed = replica("m/cpu/2", of, F, age_s=1, dossier=dossier)

    plan = run(of, replica("m/cpu/0", of, **OLD), replica("m/cpu/1", of, **OLD), failed)

    assert moves(plan) == []
    assert held(plan) == [
        f"m/cpu: it does not come up in its new form ({dossier.cause}: {dossier.message}), and what serves in an "
        "earlier one, which is stale, stays",
        f"m/cpu: {then}",
    ]
    assert plan.held[0].stalled


def test_a_version_that_failed_is_tried_again_by_itself_beside_what_serves_and_goes_on_once_it_does():
    of = model(cpu=2)
    old = [replica(f"m/cpu/{n}", of, **OLD) for n in (0, 1)]

    due = run(of, *old, replica("m/cpu/2", of, F, age_s=6))
    up = run(of, *old, replica("m/cpu/2", of, generation=2, age_s=1, attempts=1), memory=due.memory, now=NOW + 60)

    assert moves(due) == ["+m/cpu/2"]
    assert moves(up) == ["+m/cpu/3", "-m/cpu/1"]
    assert not any(h.stalled for h in up.held)


def test_a_new_fingerprint_after_a_failure_is_tried_at_once():
    of = model(cpu=1)
    failed = replica("m/cpu/1", of, F, age_s=1, fingerprint="of the commit that failed", attempts=5)

    plan = run(of, replica("m/cpu/0", of, **OLD), failed)

    assert moves(plan) == ["+m/cpu/2", "-m/cpu/1"]


def test_an_older_agents_replica_without_a_fingerprint_is_unknown_and_not_stale():
    of = model(cpu=1)

    assert moves(run(of, replica("m/cpu/0", of, fingerprint=""))) == []


def test_what_is_only_described_otherwise_restarts_nothing():
    before = model(cpu=1)
    after = model(cpu=1, description="new words", aliases=["m-also"], owner="ana", max_output=7)

    assert moves(run(after, replica("m/cpu/0", before))) == []


def test_a_change_of_counts_alone_makes_nothing_stale():
    before, after = model(cpu=1), model(cpu=2)

    assert moves(run(after, replica("m/cpu/0", before))) == ["+m/cpu/1"]


def test_models_that_a_change_does_not_touch_do_not_move():
    # LS1: any change of the configuration stopped every running model.
    edited, other = model("edited", cpu=1), model("other", cpu=2)
    seen = Observed(
        (
            node(
                "n1",
                replica("edited/cpu/0", edited, **OLD),
                replica("other/cpu/0", other),
                replica("other/cpu/1", other),
            ),
        )
    )

    plan = decide(wanting(edited, other, nodes=["n1"]), seen, SETTLED, NOW)

    assert moves(plan) == ["+edited/cpu/1"]


def test_a_move_between_profiles_without_room_makes_room_in_place():
    of = model(profiles=[profile("a", replicas=1), profile("b", replicas=1)])

    plan = run(of, replica("m/a/0", of), replica("m/a/1", of), memory_gib=2)

    assert moves(plan) == ["-m/a/1"]
    assert held(plan) == ["m/b/0: it waits until m/a/1 has made room"]


def changed(of, *phases, memory_gib=256.0, memory=SETTLED):
    """A pass over a fleet whose replicas are all of an earlier form."""
    running = [replica(f"m/cpu/{n}", of, phase, **OLD) for n, phase in enumerate(phases)]
    return decide(wanting(of, nodes=["n1"]), Observed((node("n1", *running, memory_gib=memory_gib),)), memory, NOW)


@pytest.mark.parametrize(
    ("rollout", "expected"),
    [
        pytest.param({}, ["+m/cpu/3"], id="one more at a time"),
        pytest.param({"max_surge": 2}, ["+m/cpu/3", "+m/cpu/4"], id="as many more as may be"),
        pytest.param({"strategy": "in_place"}, ["-m/cpu/2"], id="in place, one at a time"),
        pytest.param(
            {"strategy": "in_place", "max_unavailable": 2}, ["-m/cpu/1", "-m/cpu/2"], id="as many as may be missing"
        ),
        pytest.param({"max_surge": 0}, ["-m/cpu/2"], id="without any more it is in place"),
        pytest.param({"strategy": "keep"}, [], id="left as they are"),
        pytest.param({"freeze": True}, [], id="frozen"),
    ],
)
def test_how_replicas_change_from_one_form_to_the_next(rollout, expected):
    of = model(cpu=3, rollout=rollout)

    assert moves(changed(of, R, R, R)) == expected


@pytest.mark.parametrize(
    ("field", "said"), [({"strategy": "keep"}, "strategy is keep"), ({"freeze": True}, "freeze is set")]
)
def test_what_is_left_as_it_is_is_said(field, said):
    plan = changed(model(cpu=2, rollout=field), R, R)

    assert held(plan) == [f"m/cpu: 2 replicas of an earlier form are left to run: rollout.{said}"]
    assert not plan.held[0].stalled


def test_what_is_short_is_started_in_the_new_form_while_the_rest_is_left():
    plan = changed(model(cpu=3, rollout={"strategy": "keep"}), R, R)

    assert moves(plan) == ["+m/cpu/2"]


def test_the_last_one_is_given_up_in_place_only_if_the_file_says_so():
    assert moves(changed(model(cpu=1), R, memory_gib=1)) == []
    assert moves(changed(model(cpu=1, rollout={"strategy": "in_place"}), R, memory_gib=1)) == ["-m/cpu/0"]


def test_in_place_no_more_go_while_one_is_missing():
    of = model(cpu=3, rollout={"strategy": "in_place"})
    running = [replica("m/cpu/0", of, R, **OLD), replica("m/cpu/1", of, R, **OLD), replica("m/cpu/2", of, S)]

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", *running),)), SETTLED, NOW)

    assert moves(plan) == []


def test_in_place_none_goes_for_a_form_that_fails():
    of = model(cpu=3, rollout={"strategy": "in_place"})
    running = [replica("m/cpu/0", of, R, **OLD), replica("m/cpu/1", of, R, **OLD), replica("m/cpu/2", of, F, age_s=1)]

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", *running),)), SETTLED, NOW)

    assert [m for m in moves(plan) if m.startswith("-")] == []


def test_in_place_the_next_goes_once_a_form_that_failed_is_seen_to_serve():
    # Its failures are remembered for ten minutes after that; nothing was done meanwhile, and nothing said.
    of = model(cpu=2, rollout={"strategy": "in_place"})

    plan = run(of, replica("m/cpu/0", of, **OLD), replica("m/cpu/1", of, age_s=1.0, attempts=1))

    assert moves(plan) == ["-m/cpu/0"]


def test_in_place_one_that_failed_before_it_served_moves_off_a_drained_node_all_the_same():
    of = model(cpu=1, rollout={"strategy": "in_place"})
    nodes = [{"name": "n1", "address": "10.0.0.1", "drained": True}, "n2"]
    seen = Observed((node("n1", replica("m/cpu/0", of, age_s=1.0, attempts=1)), node("n2")))

    plan = decide(wanting(of, nodes=nodes), seen, SETTLED, NOW)

    assert moves(plan) == ["+m/cpu/1"]


def test_by_surge_nothing_goes_in_place_and_what_would_help_is_said():
    plan = changed(model(cpu=2, rollout={"strategy": "surge"}), R, R, memory_gib=2)

    assert moves(plan) == []
    assert plan.held[0].next == "free room for one more, or let it go in place: `rollout.strategy: auto`"


def test_in_place_none_is_stopped_twice_where_more_run_than_are_asked_for():
    plan = changed(model(cpu=2, rollout={"strategy": "in_place"}), R, R, R)

    assert moves(plan) == ["-m/cpu/2"]


def test_of_several_that_are_missing_one_tries_what_failed_before():
    of = model(cpu=3)
    running = [replica("m/cpu/0", of), replica("m/cpu/1", of, F, age_s=100), replica("m/cpu/2", of, F, age_s=100)]

    plan = run(of, *running)

    assert moves(plan) == ["+m/cpu/1"]
    assert held(plan) == ["m/cpu: the others wait until one is seen to work"]


def test_a_profile_that_has_all_of_its_replicas_says_nothing_of_earlier_failures():
    of = model(cpu=1)

    assert held(run(of, replica("m/cpu/0", of, attempts=2, age_s=1))) == []


def test_room_in_place_is_made_once_what_is_under_way_is_ready():
    of = model(cpu=3)
    old = [replica(f"m/cpu/{i}", of, **OLD) for i in range(2)]

    plan = run(of, *old, replica("m/gone/0", of, S, fingerprint=""), memory_gib=3)

    assert [m for m in moves(plan) if m.startswith("-m/cpu")] == []


def test_room_in_place_waits_for_what_is_under_way_in_another_profile():
    of = model(profiles=[profile("a", replicas=2), profile("b", replicas=1)])
    running = [replica("m/a/0", of, **OLD), replica("m/a/1", of, **OLD), replica("m/b/0", of, S)]

    plan = run(of, *running, memory_gib=3)

    assert moves(plan) == []
    assert held(plan) == ["m/a/2: no node has room for it; m/a/1 makes some once the others are ready"]
    assert not plan.held[0].stalled


DRAINED = {"name": "n1", "address": "10.0.0.1", "drained": True}
WITHOUT_SURGE = [{"strategy": strategy, "max_surge": 0} for strategy in ("auto", "surge")]


@pytest.mark.parametrize("rollout", [*WITHOUT_SURGE, {"strategy": "auto"}, {"strategy": "surge"}])
@pytest.mark.parametrize("nodes", [["n1"], [DRAINED], [DRAINED, {**DRAINED, "name": "n2"}]])
@pytest.mark.parametrize("fingerprint", ["old", None])
def test_the_last_one_that_serves_is_never_given_up_first_unless_the_file_says_in_place(rollout, nodes, fingerprint):
    of = model(cpu=1, rollout=rollout)
    fields = {"fingerprint": fingerprint} if fingerprint else {}
    names = [n if isinstance(n, str) else n["name"] for n in nodes]
    on = [node(name, *([replica("m/cpu/0", of, **fields)] if name == "n1" else []), memory_gib=1) for name in names]

    plan = decide(wanting(of, nodes=nodes), Observed(tuple(on)), SETTLED, NOW)

    as_asked = fingerprint is None and nodes == ["n1"]
    assert moves(plan) == []
    assert bool(plan.held) is not as_asked


@pytest.mark.parametrize(
    ("rollout", "count", "said"),
    [
        pytest.param(WITHOUT_SURGE[0], 1, "it is the only one that serves", id="auto, the only one"),
        pytest.param(WITHOUT_SURGE[1], 1, "it is the only one that serves", id="surge, the only one"),
        pytest.param(WITHOUT_SURGE[1], 2, "its strategy is surge", id="surge, one of two"),
    ],
)
def test_without_surge_what_stays_is_said_with_what_would_let_it_go(rollout, count, said):
    plan = changed(model(cpu=count, rollout=rollout), *[R] * count)

    assert moves(plan) == []
    assert plan.held[0].why == f"it is out of date, and stays: rollout.max_surge is 0, and {said}"
    assert plan.held[0].next == "set rollout.max_surge to 1, or let it go first: `rollout.strategy: in_place`"


IN_PLACE = {"strategy": "in_place"}


@pytest.mark.parametrize("strategy", [IN_PLACE, {"max_surge": 0}, {"strategy": "in_place", "max_unavailable": 3}])
@pytest.mark.parametrize(
    ("fields", "server", "why"),
    [
        pytest.param(
            {"engine_version": "b99999"}, {}, "no node has llamacpp b99999 for it", id="no engine of that version"
        ),
        pytest.param({"memory_gib": 5000}, {}, "no node has room for it", id="more memory than any has"),
        pytest.param({"node_selector": {"x": "y"}}, {}, "no node has its labels (x: y)", id="labels that none has"),
        pytest.param(
            {"memory_gib": 3},
            {"policy": {"quotas": [{"owner": "us", "memory_gib": 3}]}},
            "the quota of the models of us is full",
            id="more than a quota allows",
        ),
    ],
)
def test_in_place_none_stops_for_a_successor_that_has_nowhere_to_go(strategy, fields, server, why):
    of = model(profiles=[profile(replicas=2, **fields)], rollout=strategy, owner="us")
    running = [replica(f"m/cpu/{n}", of, **OLD) for n in range(2)]

    plan = decide(wanting(of, nodes=["n1"], **server), Observed((node("n1", *running),)), SETTLED, NOW)

    assert moves(plan) == []
    assert f"m/cpu/2: {why}, and m/cpu/1, which is out of date, is not given up for it" in held(plan)


@pytest.mark.parametrize("rollout", [IN_PLACE, *WITHOUT_SURGE, {"strategy": "keep"}])
def test_what_is_on_a_drained_node_starts_elsewhere_before_it_stops_whatever_is_said_of_changes(rollout):
    of = model(cpu=1, rollout=rollout)
    seen = Observed((node("n1", replica("m/cpu/0", of)), node("n2")))

    plan = decide(wanting(of, nodes=[DRAINED, "n2"]), seen, SETTLED, NOW)

    assert moves(plan) == ["+m/cpu/1"]


def test_what_is_on_the_only_card_that_is_taken_out_stays_until_there_is_another():
    of = model(gpu=1, rollout=IN_PLACE)
    seen = Observed((node("n1", replica("m/gpu/0", of, devices=("GPU-0",)), cards=1),))
    out = {"name": "n1", "address": "10.0.0.1", "cards_out": ["GPU-0"]}

    plan = decide(wanting(of, nodes=[out]), seen, SETTLED, NOW)

    assert moves(plan) == []
    assert plan.held


@pytest.mark.parametrize("rollout", [{}, IN_PLACE, {"max_surge": 0}])
def test_one_that_finds_no_place_keeps_no_change_from_the_others(rollout):
    # Three are asked for, a node with two cards is left, and the fix has to reach what serves there.
    of = model(gpu=3, rollout=rollout)
    there, memory, fewest = [replica(f"m/gpu/{n}", of, devices=(f"GPU-{n}",), **OLD) for n in range(2)], SETTLED, 2

    for turn in range(12):
        now = NOW + 60 * turn
        plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", *there, cards=2),)), memory, now)
        stay = tuple(p for p in plan.placements if p.action is not Action.DRAIN)
        known = {(r.id, r.generation): r for r in there}
        memory = structs.replace(plan.memory, placements=stay)
        there = [
            known.get((p.id, p.generation))
            or replica(p.id, of, generation=p.generation, devices=p.devices, fingerprint=p.fingerprint)
            for p in stay
        ]
        fewest = min(fewest, len(there))

    assert (fewest, len(there)) == (1, 2)
    assert all(r.fingerprint != "old" for r in there)
    assert [h.why for h in plan.held] == ["no node has room for it"]


def test_one_that_waits_for_a_silent_node_is_said():
    of = model(cpu=2)
    on = (node("n1", replica("m/cpu/0", of, **OLD)), node("n2", replica("m/cpu/1", of), age_s=100.0), node("n3"))

    plan = decide(wanting(of, nodes=["n1", "n2", "n3"]), Observed(on), SETTLED, NOW)

    assert moves(plan) == []
    assert held(plan) == ["m/cpu/0: it is out of date, and goes on until m/cpu/1 is heard of again"]


@pytest.mark.parametrize("rollout", [{}, IN_PLACE])
@pytest.mark.parametrize("fields", [{}, OLD])
def test_that_a_drained_node_is_not_emptied_for_a_form_that_fails_is_said(rollout, fields):
    of = model(cpu=1, rollout=rollout)
    on = (node("n1", replica("m/cpu/0", of, **fields)), node("n2", replica("m/cpu/1", of, F, attempts=5)))

    plan = decide(wanting(of, nodes=[DRAINED, "n2"]), Observed(on), SETTLED, NOW)

    assert moves(plan) == []
    assert any(
        h.startswith("m/cpu/0: it is on a drained node or card, and goes on there: it is park") for h in held(plan)
    )
