"""Which replica a request goes to."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.table_server import model, replica
from llmgw.core.table import Serving
from llmgw.gateway.pick import Key, Outlook, key_of, outlook, pick

GPUS = [replica(f"m/gpu/{n}", "http://x", tier=100, capacity=4) for n in range(7)]
CPUS = [replica(f"m/cpu/{n}", "http://x", tier=10, capacity=2) for n in range(4)]


class Loads:
    """What is taken, and who has just failed."""

    def __init__(self, taken: dict[str, int] | None = None, *suspects: str) -> None:
        self.counts = Counter(taken or {})
        self.suspects = suspects

    def taken(self, key: Key) -> int:
        return self.counts[key.id]

    def suspect(self, key: Key) -> bool:
        return key.id in self.suspects


def picked(of, load=None, avoid=()):
    found = pick(of, load or Loads(), avoid)
    return found and (found.id, found.generation)


def filled(of) -> list[str]:
    """The order in which every slot is filled, by id."""
    load, order = Loads(), []
    while (found := pick(of, load)) is not None:
        load.counts[found.id] += 1
        order.append(found.id)
    return order


def test_ka1_seven_cards_and_four_cpus_under_one_name_fill_the_cards_first():
    order = filled(model("m", *GPUS, *CPUS))

    assert Counter(order) == {**{r.id: 4 for r in GPUS}, **{r.id: 2 for r in CPUS}}
    assert order[:7] == [r.id for r in GPUS], "spread over the cards"
    assert all("/gpu/" in rid for rid in order[:28]), "every slot of every card"
    assert all("/cpu/" in rid for rid in order[28:])


def test_ka1_a_card_that_frees_is_used_before_the_next_cpu():
    load = Loads({r.id: 4 for r in GPUS} | {"m/cpu/0": 1})
    load.counts["m/gpu/3"] -= 1

    assert picked(model("m", *GPUS, *CPUS), load) == ("m/gpu/3", 1)


def test_ls10_two_like_replicas_share_the_requests():
    order = filled(model("m", *GPUS[:2]))

    assert order == ["m/gpu/0", "m/gpu/1"] * 4


def test_within_a_tier_the_least_share_counts_and_not_the_least_number():
    big, small = replica("m/a/0", "http://x", capacity=8), replica("m/b/0", "http://x", capacity=2)

    assert picked(model("m", big, small), Loads({"m/a/0": 3, "m/b/0": 1})) == ("m/a/0", 1)


def test_a_weight_of_two_gets_two_thirds():
    order = filled(
        model("m", replica("m/a/0", "http://x", capacity=50, weight=2), replica("m/b/0", "http://x", capacity=50))
    )

    assert Counter(order[:30]) == {"m/a/0": 20, "m/b/0": 10}


@pytest.mark.parametrize(
    ("replicas", "taken", "expected"),
    [
        pytest.param({"a": (100, "ready"), "b": (10, "ready")}, {}, "a", id="the highest tier"),
        pytest.param({"a": (100, "ready"), "b": (10, "ready")}, {"a": 4}, "b", id="the next when it is full"),
        pytest.param({"a": (100, "silent"), "b": (10, "ready")}, {}, "b", id="a silent one last, whatever its tier"),
        pytest.param({"a": (100, "silent"), "b": (10, "ready")}, {"b": 4}, "a", id="but before nobody"),
        pytest.param({"a": (100, "draining")}, {}, None, id="DS2 never one that drains"),
        pytest.param({"a": (100, "starting")}, {}, None, id="DS2 never one that has not passed its probe"),
        pytest.param({"a": (100, "ready")}, {"a": 4}, None, id="never one that is full"),
        pytest.param({"b": (100, "ready"), "a": (100, "ready")}, {}, "a", id="equal ones by id"),
    ],
)
def test_who_is_asked(replicas, taken, expected):
    table = model("m", *(replica(rid, "http://x", tier=t, state=Serving(s)) for rid, (t, s) in replicas.items()))

    found = pick(table, Loads(taken))

    assert (found and found.id) == expected


def test_one_that_has_just_failed_is_asked_after_the_others_of_lower_tiers_and_before_silent_ones():
    of = model("m", GPUS[0], CPUS[0], replica("m/s/0", "http://x", state=Serving.SILENT))

    assert picked(of, Loads({}, "m/gpu/0")) == ("m/cpu/0", 1)
    assert picked(of, Loads({"m/cpu/0": 2}, "m/gpu/0")) == ("m/gpu/0", 1)
    assert picked(of, Loads({"m/cpu/0": 2, "m/gpu/0": 4}, "m/gpu/0")) == ("m/s/0", 1)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("ready", "ready", 2, id="the newer if it is ready"),
        pytest.param("ready", "starting", 1, id="the older until then"),
        pytest.param("ready", "silent", 1, id="the older while nobody hears of the newer"),
        pytest.param("silent", "ready", 2, id="and never the older again"),
        pytest.param("draining", "starting", None, id="neither"),
    ],
)
def test_of_two_generations_of_one_id(old, new, expected):
    of = model("m", *(replica("m/gpu/0", "http://x", generation=g, state=Serving(s)) for g, s in ((1, old), (2, new))))

    found = picked(of)

    assert (found and found[1]) == expected


def test_a_full_newer_generation_does_not_send_requests_back_to_the_older():
    of = model("m", *(replica("m/gpu/0", "http://x", generation=g, capacity=1) for g in (1, 2)))
    load = Loads()
    load.taken = lambda key: int(key.generation == 2)

    assert picked(of, load) is None


def test_whoever_was_tried_is_not_asked_again():
    of = model("m", *GPUS[:2])

    assert picked(of, avoid={Key("m/gpu/0", 1)}) == ("m/gpu/1", 1)
    assert picked(of, avoid={Key("m/gpu/0", 1), Key("m/gpu/1", 1)}) is None


@pytest.mark.parametrize(
    ("states", "more", "expected"),
    [
        pytest.param(["ready"], {}, Outlook.FULL, id="ready and full: a slot"),
        pytest.param(["silent"], {}, Outlook.FULL, id="silent and full: a slot"),
        pytest.param(["starting", "draining"], {"why": "on its way"}, Outlook.STARTING, id="one that starts"),
        pytest.param([], {}, Outlook.STARTING, id="none, and no reason why: it is about to be started"),
        pytest.param(["draining"], {}, Outlook.STARTING, id="one that drains is none"),
        pytest.param([], {"why": "no node has 24 GiB"}, Outlook.NOTHING, id="none, and a reason why"),
        pytest.param([], {"state": "stopped"}, Outlook.NOTHING, id="stopped"),
        pytest.param([], {"state": "problem"}, Outlook.NOTHING, id="a problem in its file"),
        pytest.param(
            ["ready"], {"state": "problem", "why": "x"}, Outlook.FULL, id="a problem, and what ran before still runs"
        ),
    ],
)
def test_what_a_request_that_cannot_be_placed_waits_for(states, more, expected):
    of = model("m", *(replica(f"m/p/{n}", "http://x", state=Serving(s)) for n, s in enumerate(states)), **more)

    assert outlook(of) is expected


def test_whoever_has_failed_on_the_only_replica_does_not_wait_for_one_nobody_starts():
    of = model("m", GPUS[0])

    assert outlook(of, avoid={key_of(GPUS[0])}) is Outlook.NOTHING


@st.composite
def loaded_models(draw):
    replicas = [
        replica(
            f"m/p/{draw(st.integers(0, 4))}",
            "http://x",
            generation=draw(st.integers(1, 2)),
            tier=draw(st.sampled_from([10, 100])),
            weight=draw(st.integers(1, 3)),
            capacity=draw(st.integers(0, 3)),
            state=draw(st.sampled_from(Serving)),
        )
        for _ in range(draw(st.integers(0, 6)))
    ]
    unique = {key_of(r): r for r in replicas}
    taken = {key: draw(st.integers(0, 3)) for key in unique}
    load = Loads()
    load.taken = taken.__getitem__
    return model("m", *unique.values()), load


@given(loaded_models(), st.randoms(use_true_random=False))
def test_the_order_of_the_table_does_not_matter(world, dice):
    of, load = world
    shuffled = list(of.replicas)
    dice.shuffle(shuffled)

    assert pick(msgspec.structs.replace(of, replicas=tuple(shuffled)), load) == pick(of, load)


@given(loaded_models())
def test_a_pick_serves_has_a_free_slot_and_passes_over_no_better_one(world):
    of, load = world

    found = pick(of, load)

    def free(r):
        return load.taken(key_of(r)) < max(1, r.capacity)

    def outdated(r):
        return any(o.id == r.id and o.generation > r.generation and o.state is Serving.READY for o in of.replicas)

    ready = [r for r in of.replicas if r.state is Serving.READY and free(r) and not outdated(r)]
    silent = [r for r in of.replicas if r.state is Serving.SILENT and free(r) and not outdated(r)]
    assert found in (ready or silent or [None])
    assert all(r.tier <= found.tier for r in ready or silent)
