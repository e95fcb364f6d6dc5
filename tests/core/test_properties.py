"""What a pass never does, whatever it is shown: the rules of docs/decide.md, by their numbers.

Rule 8, that a place which exists is found, is held against brute force in test_packing.py.
Rule 11, that anything may be killed, is shown by simulated fleets whose control forgets
everything (tests/sim) and by real processes (tests/e2e): there is no pass to ask.
"""

from collections import Counter
from dataclasses import replace

from fleets import L40S, NOW, SETTLED, model, node, profile, replica, wanting
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from never import still_referred_to

from llmgw.core.actions import Start, Stop
from llmgw.core.decide import decide
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw.core.replicas import Standing, survey
from llmgw.core.simulate import after, course
from llmgw_agent.protocol import SILENT_AFTER_S, Action, Claim, Phase

NODES = ("n1", "n2", "n3")
PROFILES = ("big", "small")
GIB = 1 << 30


@st.composite
def worlds(draw):
    """One model on few nodes, small enough that everything is in everything's way.

    Few names, few numbers and little memory: what is rare in a large world, two
    generations of one id, a stale one beside its successor, happens all the time here.
    """
    counts = {p: draw(st.integers(0, 3)) for p in PROFILES}
    on_cards = draw(st.booleans())
    of = model(
        profiles=[
            profile(
                "big",
                replicas=counts["big"],
                memory_gib=3,
                priority=100,
                gpu={"class": L40S} if on_cards else None,
            ),
            profile(
                "small",
                replicas=counts["small"],
                memory_gib=1,
                priority=10,
                anti_affinity=draw(st.sampled_from([[], [], ["m"]])),
                placement=draw(st.sampled_from(["spread", "binpack"])),
            ),
        ],
        state=draw(st.sampled_from(["running", "running", "running", "stopped"])),
    )
    names = NODES[: draw(st.integers(1, 3))]
    entries = [
        {
            "name": n,
            "address": "10.0.0.1",
            "drained": draw(st.sampled_from([False, False, False, True])),
            "labels": draw(st.sampled_from([{}, {"rack": "a"}, {"rack": "b"}])),
            "cards_out": draw(st.sampled_from([[], [], ["GPU-0"]])),
        }
        for n in names
    ]
    ids = st.tuples(st.sampled_from(PROFILES), st.integers(0, 3))
    taken: set[tuple[str, int]] = set()
    nodes = []
    for name in names:
        mine = []
        for (kind, ordinal), generation in draw(st.lists(st.tuples(ids, st.integers(1, 3)), max_size=4, unique=True)):
            if (f"{kind}/{ordinal}", generation) in taken:
                continue  # one generation of one id is placed once, on one node
            taken.add((f"{kind}/{ordinal}", generation))
            mine.append(
                replica(
                    f"m/{kind}/{ordinal}",
                    of,
                    draw(st.sampled_from([*Phase, Phase.READY, Phase.READY, Phase.STARTING])),
                    generation=generation,
                    age_s=draw(st.sampled_from([1.0, 30.0, 5000.0])),
                    claim=Claim((3 if kind == "big" else 1) * GIB, 1, int(on_cards and kind == "big")),
                    devices=draw(st.sampled_from([("GPU-0",), ("GPU-1",), ()])) if on_cards and kind == "big" else (),
                    attempts=draw(st.integers(0, 6)),
                    **draw(st.sampled_from([{}, {}, {}, {"fingerprint": "old"}, {"fingerprint": ""}])),
                )
            )
        age = draw(st.sampled_from([1.0, 1.0, 1.0, SILENT_AFTER_S + 1, 601.0]))
        nodes.append(
            node(
                name,
                *mine,
                age_s=age,
                memory_gib=draw(st.sampled_from([2, 4, 8, 32])),
                cores=16,
                cards=draw(st.integers(0, 2)),
            )
        )
    return wanting(of, nodes=entries), Observed(tuple(nodes))


def asked(wanted):
    """Replicas wanted of the one model."""
    m = wanted.models["m"].model
    return sum(p.replicas for p in m.profiles) if m.state == "running" else 0


def stops(plan):
    return [a for a in plan.actions if isinstance(a, Stop)]


def starts(plan):
    return [a for a in plan.actions if isinstance(a, Start)]


def in_place(plan):
    return [a for a in stops(plan) if "makes room in place" in a.why]


@given(worlds())
def test_rule_1_a_stop_never_leaves_fewer_ready_than_asked_but_for_one_in_place(world):
    wanted, seen = world
    plan = decide(wanted, seen, SETTLED, NOW)
    mine = survey(wanted, seen, SETTLED, NOW).of("m")
    serving = {r.key for r in mine if r.serves}
    left = serving - {(a.id, a.generation, a.node) for a in stops(plan)}

    assert len(in_place(plan)) <= 1
    assert len(left) + len(in_place(plan)) >= min(len(serving), asked(wanted))
    assert left or not in_place(plan), "the last one that serves was given up for room"


@given(worlds(), st.randoms(use_true_random=False))
def test_rule_4_the_order_in_which_things_were_seen_does_not_matter(world, dice):
    wanted, seen = world
    nodes = [structs.replace(n, replicas=tuple(dice.sample(n.replicas, len(n.replicas)))) for n in seen.nodes]
    dice.shuffle(nodes)

    assert decide(wanted, Observed(tuple(nodes)), SETTLED, NOW) == decide(wanted, seen, SETTLED, NOW)


@given(worlds())
def test_started_up_to_the_count_and_not_past_it(world):
    wanted, seen = world
    plan = decide(wanted, seen, SETTLED, NOW)
    m = wanted.models["m"].model
    fleet = survey(wanted, seen, SETTLED, NOW)
    for p in m.profiles:
        want = p.replicas if m.state == "running" else 0
        as_asked = {
            r.id
            for r in fleet.of("m")
            if r.profile == p.name and r.holds and r.fingerprint != "old" and not fleet.nodes[r.node].drains(r.devices)
        }
        started = [a.id for a in starts(plan) if a.id.split("/")[1] == p.name]
        assert not started or len(as_asked) + len(started) <= want, p.name


@given(worlds())
def test_rule_5_nothing_is_asked_of_a_node_that_does_not_report(world):
    wanted, seen = world
    usable = {n.name for n in survey(wanted, seen, SETTLED, NOW).nodes.values() if n.standing is Standing.USABLE}

    assert {
        a.node for a in (*starts(decide(wanted, seen, SETTLED, NOW)), *stops(decide(wanted, seen, SETTLED, NOW)))
    } <= usable


@given(worlds())
def test_no_number_is_given_while_another_may_hold_it(world):
    wanted, seen = world
    plan = decide(wanted, seen, SETTLED, NOW)
    held = {r.id for n in seen.nodes for r in n.replicas if r.phase not in (Phase.FAILED, Phase.STOPPED)}
    ids = [a.id for a in starts(plan)]

    assert len(ids) == len(set(ids))
    assert not held & set(ids)


@given(worlds())
def test_a_start_has_a_higher_generation_than_any_that_is_known(world):
    wanted, seen = world
    for start in starts(decide(wanted, seen, SETTLED, NOW)):
        known = [r.generation for n in seen.nodes for r in n.replicas if r.id == start.id]
        assert start.generation > max(known, default=0)


@given(worlds())
def test_of_two_as_good_the_one_that_serves_outlives_the_one_that_does_not(world):
    wanted, seen = world
    plan = decide(wanted, seen, SETTLED, NOW)
    fleet = survey(wanted, seen, SETTLED, NOW)
    mine = fleet.of("m")
    stopped = {(a.id, a.generation, a.node) for a in stops(plan)}
    for profile_name in PROFILES:
        same = [r for r in mine if r.profile == profile_name and r.holds and r.fingerprint != "old"]
        same = [r for r in same if not fleet.nodes[r.node].drains(r.devices)]
        lost = [r for r in same if r.key in stopped and r.serves]
        kept = [r for r in same if r.key not in stopped and not r.serves and r.standing is Standing.USABLE]
        twins = {r.id for r in same if sum(s.id == r.id for s in same) > 1}
        assert not [r for r in lost if r.id not in twins] or not kept


@given(worlds())
def test_rule_2_claims_never_exceed_what_a_node_has(world):
    wanted, seen = world
    fleet = survey(wanted, seen, SETTLED, NOW)
    plan = decide(wanted, seen, SETTLED, NOW)
    new = {(a.id, a.generation, a.node) for a in starts(plan)}
    for n in seen.nodes:
        running = sum(
            r.claim.memory_bytes
            for rs in fleet.replicas.values()
            for r in rs
            if r.node == n.name and r.phase != "failed"
        )
        placed = sum(
            p.claim.memory_bytes for p in plan.placements if p.node == n.name and (p.id, p.generation, p.node) in new
        )
        assert not placed or running + placed <= n.inventory.memory_bytes


@given(worlds())
def test_rule_2_no_card_is_given_to_two_and_none_that_is_taken_out_to_anybody(world):
    wanted, seen = world
    fleet = survey(wanted, seen, SETTLED, NOW)
    plan = decide(wanted, seen, SETTLED, NOW)
    new = {(a.id, a.generation, a.node) for a in starts(plan)}
    for n in wanted.server.nodes:
        given_now = [
            d for p in plan.placements if (p.id, p.generation, p.node) in new and p.node == n.name for d in p.devices
        ]
        running = [d for r in fleet.of("m") if r.node == n.name and r.phase is not Phase.FAILED for d in r.devices]

        assert len(given_now) == len(set(given_now))
        assert set(given_now).isdisjoint({*running, *n.cards_out})


@given(worlds())
def test_what_keeps_apart_is_never_put_beside_what_it_keeps_from(world):
    wanted, seen = world
    fleet = survey(wanted, seen, SETTLED, NOW)
    plan = decide(wanted, seen, SETTLED, NOW)
    if not any(p.anti_affinity for p in wanted.models["m"].model.profiles):
        return
    for n in seen.nodes:
        started = [a for a in starts(plan) if a.node == n.name]
        running = [r for r in fleet.of("m") if r.node == n.name and r.phase is not Phase.FAILED]
        # Where one of them is of the profile that keeps apart, it is alone.
        small = [a for a in started if a.id.startswith("m/small")]
        alone = len(started) == 1 and not running
        assert not small or alone
        assert not started or not [r for r in running if r.profile == "small"]


@given(worlds())
def test_rule_7_whatever_is_not_done_is_said(world):
    wanted, seen = world
    plan = decide(wanted, seen, SETTLED, NOW)
    m = wanted.models["m"].model
    fleet = survey(wanted, seen, SETTLED, NOW)
    for p in m.profiles:
        want = p.replicas if m.state == "running" else 0
        holding = sum(r.profile == p.name and r.holds for r in fleet.of("m"))
        started = sum(a.id.split("/")[1] == p.name for a in starts(plan))
        trying = [r for r in fleet.of("m") if r.profile == p.name and r.attempts and r.holds and not r.serves]
        if holding + started < want and not trying:
            assert [h for h in plan.held if h.subject.startswith(f"m/{p.name}")], (
                f"{p.name} is short and nothing says why"
            )
    surplus = [r for r in fleet.of("m") if r.serves]
    if not asked(wanted):
        assert {(a.id, a.generation, a.node) for a in stops(plan)} >= {r.key for r in surplus}


@given(worlds())
def test_the_whole_names_every_replica_that_is_there_and_none_twice(world):
    wanted, seen = world
    plan = decide(wanted, seen, SETTLED, NOW)
    keys = Counter((p.id, p.generation, p.node) for p in plan.placements)
    there = {r.key for r in survey(wanted, seen, SETTLED, NOW).of("m") if r.phase is not Phase.FAILED}

    assert not [k for k, n in keys.items() if n > 1]
    assert there <= set(keys)
    assert {(p.id, p.generation, p.node) for p in plan.placements if p.action is Action.DRAIN} >= {
        (a.id, a.generation, a.node) for a in stops(plan) if (a.id, a.generation, a.node) in there
    }


@given(worlds())
def test_rule_3_a_plan_that_comes_true_tends_to_the_empty_plan(world):
    wanted, seen = world

    ended = course(wanted, seen, SETTLED, NOW)

    assert ended.settled
    assert len(ended.steps) < 40


@given(worlds())
def test_rule_3_a_settled_fleet_stays_settled(world):
    wanted, seen = world
    ended = course(wanted, seen, SETTLED, NOW)
    later = NOW + 100_000.0
    first = decide(wanted, ended.end, ended.memory, later)
    again = decide(wanted, after(wanted, ended.end, first), first.memory, later + 30)

    assert first.empty
    assert again.empty


VERSIONS = ("1", "2", "3")


@given(
    asked=st.sampled_from(VERSIONS),
    running=st.lists(st.tuples(st.sampled_from(VERSIONS), st.sampled_from(list(Phase))), max_size=3),
    held=st.sets(st.sampled_from(VERSIONS)),
    age=st.sampled_from([1.0, SILENT_AFTER_S + 1, 700.0]),
    purged=st.booleans(),
    complete=st.booleans(),
)
def test_rule_6_no_weights_are_removed_that_anything_refers_to(asked, running, held, age, purged, complete):
    of = model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": asked})
    mirror = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082"}
    wanted = replace(
        wanting(of, nodes=["n1"], mirror=mirror, complete=complete), purged=frozenset({"m"} if purged else ())
    )
    there = [replica(f"m/cpu/{n}", of, phase, version=f"m/{v}") for n, (v, phase) in enumerate(running)]
    holdings = MirrorSeen(tuple(Holding("m", v, HoldingState.PRESENT) for v in sorted(held)))
    seen = Observed((node("n1", *there, age_s=age),), holdings)
    long_ago = structs.replace(SETTLED, unreferenced={f"m/{v}": 1.0 for v in VERSIONS})

    plan = decide(wanted, seen, long_ago, NOW)

    assert list(still_referred_to(wanted, survey(wanted, seen, long_ago, NOW), plan)) == []


@given(worlds())
def test_rule_9_what_a_plan_says_first_is_what_the_next_pass_does(world):
    # The rest of what it says is shown by the one before it: each step is a pass over what the last one made.
    wanted, seen = world
    said = course(wanted, seen, SETTLED, NOW)
    done = decide(wanted, seen, SETTLED, NOW)

    assert not done.actions or said.steps[0].actions == done.actions


@given(worlds(), st.sampled_from([{"description": "other words"}, {"aliases": ("other",)}, {"context_length": 8192}]))
def test_rule_10_what_is_not_in_a_change_does_not_move_and_words_move_nothing(world, change):
    wanted, seen = world
    other = model("other", cpu=1, **{"class": "guaranteed"})
    beside = replica("other/cpu/0", other, claim=Claim(GIB // 4, 0))
    first, *rest = seen.nodes
    seen = Observed((structs.replace(first, age_s=1.0, replicas=(*first.replicas, beside)), *rest))
    nodes = [{"name": n.name, "address": n.address} for n in wanted.server.nodes]
    of = wanted.models["m"].model
    before = decide(wanting(of, other, nodes=nodes), seen, SETTLED, NOW)
    after_it = decide(wanting(of.model_copy(update=change), other, nodes=nodes), seen, SETTLED, NOW)

    assert [a for a in after_it.actions if a.id.startswith("other/")] == []
    assert "context_length" in change or after_it.actions == before.actions


@given(
    worlds(),
    st.sampled_from([0, 1, 1 << 60]),
    st.sampled_from([-1e12, 0.0, 1e300]),
    st.sampled_from(list(Phase)),
    st.sampled_from(["", "x" * 1000, "\x00"]),
)
def test_rule_12_what_is_odd_about_one_model_changes_nothing_of_another(world, number, age_s, phase, words):
    wanted, seen = world
    odd = replica(
        "odd/cpu/0",
        model("odd", cpu=1),
        phase,
        generation=number,
        attempts=number,
        age_s=age_s,
        fingerprint=words,
        version=words,
        claim=Claim(0, 0),
    )
    first, *rest = seen.nodes
    beside = Observed((structs.replace(first, replicas=(*first.replicas, odd)), *rest))

    def mine(plan):
        return [a for a in plan.actions if a.id.startswith("m/")], [h for h in plan.held if h.model == "m"]

    assert mine(decide(wanted, beside, SETTLED, NOW)) == mine(decide(wanted, seen, SETTLED, NOW))
