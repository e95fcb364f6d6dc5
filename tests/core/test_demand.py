"""How many replicas a scaled model has: what gateways are asked decides, between its least and its most."""

from __future__ import annotations

import pytest
from fleets import L40S, NOW, R, S, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.core import demand
from llmgw.core.decide import decide
from llmgw.core.memory import Failures, Memory
from llmgw.core.observed import DemandSeen, Load, Observed
from llmgw_agent.protocol import split_id

LONG_AGO = Memory(started_at=NOW - 10_000, settled=True, epoch=1)


def scaled(name: str = "m", profiles=None, **scaling):
    """A model of two slots a replica whose target is that both are taken."""
    target = {"slots": 1, **scaling.pop("target", {})}
    return model(
        name,
        profiles=profiles or [profile(replicas=None)],
        scaling={"min": 0, "max": 10, "window": 0, "target": target, **scaling},
    )


class Asked:
    """A fleet of one node in which everything ordered is there at the next look."""

    def __init__(self, *models, memory_gib: float = 256):
        self.models, self.memory_gib = models, memory_gib
        self.memory, self.now = LONG_AGO, NOW
        self.running = {}
        """What runs, by id and generation, with what it claims."""
        self.phase = R
        self.busy = {}

    def look(self, after_s: float = 10.0, *, silent: tuple[str, ...] = (), **loads: Load):
        """One pass, some seconds after the last."""
        self.now += after_s
        by_name = {m.name: m for m in self.models}
        reports = [
            replica(rid, by_name[split_id(rid)[0]], self.phase, generation=g, busy=self.busy.get(rid, 0), claim=claim)
            for (rid, g), claim in self.running.items()
        ]
        seen = Observed(
            (node("n1", *reports, memory_gib=self.memory_gib),), demand=DemandSeen(loads, silent, whole=not silent)
        )
        plan = decide(wanting(*self.models, nodes=["n1"]), seen, self.memory, self.now)
        stay = tuple(p for p in plan.placements if p.action != "drain")
        self.running = {(p.id, p.generation): p.claim for p in stay}
        self.memory = structs.replace(plan.memory, placements=stay)
        return plan

    @property
    def count(self) -> int:
        return len(self.running)


def test_a_model_on_demand_has_none_until_it_is_asked_and_then_one_at_once():
    fleet = Asked(scaled())

    assert moves(fleet.look()) == []
    assert moves(fleet.look(m=Load(waiting=1))) == ["+m/cpu/0"]


def test_it_has_at_once_as_many_as_those_who_wait_need():
    fleet = Asked(scaled(max=3))

    fleet.look(m=Load(waiting=5))

    assert fleet.count == 3


def test_it_idles_until_its_time_is_over_counted_from_the_end_of_the_last_request():
    fleet = Asked(scaled(idle_timeout=900))
    fleet.look(m=Load(waiting=1))
    fleet.look(2000, m=Load(in_flight=1))

    assert moves(fleet.look(10, m=Load(idle_for_s=890))) == []
    assert moves(fleet.look(10, m=Load(idle_for_s=900))) == ["-m/cpu/0"]
    assert moves(fleet.look(10, m=Load(idle_for_s=910))) == []


def test_one_that_was_started_and_never_asked_again_idles_from_its_start():
    fleet = Asked(scaled(idle_timeout=900))
    fleet.look(m=Load(waiting=1))

    assert moves(fleet.look(890, m=Load(idle_for_s=5000))) == []
    assert moves(fleet.look(10, m=Load(idle_for_s=5000))) == ["-m/cpu/0"]


def test_more_are_started_once_more_have_been_needed_for_a_while():
    fleet = Asked(scaled(min=1, up_delay=30))
    fleet.look()

    assert moves(fleet.look(10, m=Load(in_flight=6))) == []
    assert moves(fleet.look(29, m=Load(in_flight=6))) == []
    assert moves(fleet.look(1, m=Load(in_flight=6))) == ["+m/cpu/1", "+m/cpu/2"]


def test_a_burst_shorter_than_the_delay_starts_nothing():
    fleet = Asked(scaled(min=1, up_delay=30))
    fleet.look()
    fleet.look(10, m=Load(in_flight=6))
    fleet.look(10, m=Load(in_flight=1))

    assert moves(fleet.look(20, m=Load(in_flight=6))) == []


def test_figures_are_averaged_over_the_window():
    fleet = Asked(scaled(min=1, window=60))
    fleet.look()

    assert moves(fleet.look(1, m=Load(in_flight=20))) == []
    assert moves(fleet.look(60, m=Load(in_flight=20))) != []


def test_however_long_the_window_is_the_first_that_is_asked_for_starts_at_once():
    fleet = Asked(scaled(window=3600))

    assert moves(fleet.look(1, m=Load(waiting=1))) == ["+m/cpu/0"]


def test_what_waits_is_averaged_as_what_runs_is():
    fleet = Asked(scaled(min=1, window=60, target={"queue": 1, "concurrency": 1000, "slots": 1}))
    fleet.look()

    assert moves(fleet.look(1, m=Load(waiting=8))) == []
    fleet.look(600, m=Load(waiting=8))
    assert fleet.count == 8
    assert fleet.memory.scales["m"].waiting == pytest.approx(8, abs=0.01)


def test_fewer_are_kept_for_a_while_and_then_as_many_as_were_needed_in_it():
    fleet = Asked(scaled(min=1, down_delay=600))
    fleet.look(m=Load(in_flight=10))
    assert fleet.count == 5

    assert moves(fleet.look(10, m=Load(in_flight=2))) == []
    assert moves(fleet.look(300, m=Load(in_flight=6))) == []
    assert moves(fleet.look(299, m=Load(in_flight=2))) == []
    assert moves(fleet.look(1, m=Load(in_flight=2))) == ["-m/cpu/3", "-m/cpu/4"]


def test_the_least_and_the_most_count_at_once():
    fleet = Asked(scaled(min=2, max=4))
    fleet.look()
    assert fleet.count == 2

    fleet.models = (scaled(min=3, max=4),)
    fleet.look()
    assert fleet.count == 3

    fleet.models = (scaled(min=0, max=1),)
    fleet.look(m=Load(in_flight=1))
    assert fleet.count == 1


@pytest.mark.parametrize(
    ("target", "load", "count"),
    [
        pytest.param({"concurrency": 4}, Load(in_flight=9), 5, id="slots ask for more than concurrency"),
        pytest.param({"concurrency": 1}, Load(in_flight=3), 3, id="requests at the same time"),
        pytest.param({"queue": 2}, Load(in_flight=1, waiting=7), 4, id="requests that wait"),
        pytest.param({"rps": 0.5}, Load(in_flight=1, rps=3.0), 6, id="requests a second"),
        pytest.param({"rps": 0.5}, Load(in_flight=1, rps=None), 1, id="a gateway that does not tell its rate"),
        pytest.param({"slots": 0.5}, Load(in_flight=4), 4, id="a share of the slots"),
    ],
)
def test_the_figure_that_asks_for_most_counts(target, load, count):
    fleet = Asked(scaled(min=1, target=target))

    fleet.look(m=load)

    assert fleet.count == count


def test_some_are_kept_ready_for_who_comes_next():
    fleet = Asked(scaled(min=1, warm=2))
    fleet.look(m=Load(in_flight=4))

    assert fleet.count == 4


def test_more_than_the_most_is_said():
    fleet = Asked(scaled(max=2))

    plan = fleet.look(m=Load(waiting=50))

    assert [h.sentence for h in plan.held] == [
        "m: more is asked of it than its max of 2 replicas serves (50 wait); raise scaling.max"
    ]


def test_ka4_after_control_started_again_none_is_taken_away_for_a_whole_window():
    fleet = Asked(scaled(min=1, down_delay=0, idle_timeout=0))
    fleet.look(m=Load(in_flight=10))
    fleet.memory = Memory(started_at=fleet.now, settled=True, epoch=1)

    assert moves(fleet.look(1)) == []
    assert moves(fleet.look(598)) == []
    assert fleet.count == 5
    assert moves(fleet.look(2)) == ["-m/cpu/1", "-m/cpu/2", "-m/cpu/3", "-m/cpu/4"]


def test_ka4_after_control_started_again_a_window_longer_than_ten_minutes_is_waited_for_too():
    fleet = Asked(scaled(min=0, window=1800, down_delay=0, idle_timeout=0))
    fleet.look(m=Load(in_flight=10))
    fleet.memory = Memory(started_at=fleet.now, settled=True, epoch=1)

    assert moves(fleet.look(1799)) == []
    assert moves(fleet.look(1)) != []


def test_ka4_while_a_gateway_is_silent_none_is_taken_away_and_it_is_said():
    fleet = Asked(scaled(min=1, down_delay=0))
    fleet.look(m=Load(in_flight=10))

    plan = fleet.look(10, silent=("g2",))

    assert moves(plan) == []
    assert held(plan) == ["m: fewer replicas would do, and none is stopped while gateway g2 is not heard of"]
    assert moves(fleet.look(10)) != []


def test_one_that_works_is_not_stopped_and_the_idle_one_is():
    fleet = Asked(scaled(min=1, down_delay=0))
    fleet.look(m=Load(in_flight=4))
    assert fleet.count == 2

    fleet.busy = {"m/cpu/1": 1}
    assert moves(fleet.look(10, m=Load(in_flight=1))) == ["-m/cpu/0"]


def test_while_all_work_none_is_stopped_and_that_is_said():
    fleet = Asked(scaled(min=1, down_delay=0))
    fleet.look(m=Load(in_flight=4))

    fleet.busy = {"m/cpu/0": 1, "m/cpu/1": 1}
    plan = fleet.look(10, m=Load(in_flight=2))

    assert moves(plan) == []
    assert held(plan) == ["m/cpu: fewer replicas are needed, and one that answers requests is not stopped"]


@pytest.mark.parametrize(
    ("busy", "in_flight", "goes"),
    [
        pytest.param({"m/cpu/0": None, "m/cpu/1": None}, 1, [], id="either may answer it"),
        pytest.param({"m/cpu/0": None, "m/cpu/1": None}, 0, ["-m/cpu/1"], id="nobody is answered"),
        pytest.param({"m/cpu/0": None, "m/cpu/1": 1}, 1, ["-m/cpu/0"], id="the other one answers it"),
        pytest.param({"m/cpu/0": None, "m/cpu/1": 0}, 1, ["-m/cpu/1"], id="one is known to idle"),
        pytest.param({"m/cpu/0": 0, "m/cpu/1": None}, 1, ["-m/cpu/0"], id="the other one is known to idle"),
        pytest.param({"m/cpu/0": None, "m/cpu/1": 1}, 2, [], id="the other one answers one of two"),
    ],
)
def test_one_of_which_it_is_not_known_whether_it_works_is_stopped_only_if_all_requests_are_accounted_for(
    busy, in_flight, goes
):
    fleet = Asked(scaled(min=1, down_delay=0))
    fleet.look(m=Load(in_flight=4))

    fleet.busy = busy
    assert moves(fleet.look(10, m=Load(in_flight=in_flight))) == goes


def test_the_highest_priority_is_filled_first_and_what_has_no_room_there_goes_on_to_the_next():
    gpu = profile("gpu", replicas=None, gpu={"class": L40S}, priority=100)
    fleet = Asked(scaled(min=1, profiles=[profile("cpu", replicas=None, priority=10), gpu]))

    fleet.look(m=Load(in_flight=20))

    # The node has eight cards.
    assert sorted(rid for rid, _ in fleet.running)[:3] == ["m/cpu/0", "m/cpu/1", "m/gpu/0"]
    assert fleet.count == 10


def test_what_is_over_goes_from_the_lowest_priority_first():
    gpu = profile("gpu", replicas=None, gpu={"class": L40S}, priority=100)
    fleet = Asked(scaled(min=1, down_delay=0, profiles=[profile("cpu", replicas=None, priority=10), gpu]))
    fleet.look(m=Load(in_flight=20))

    assert moves(fleet.look(10, m=Load(in_flight=16))) == ["-m/cpu/0", "-m/cpu/1"]


def test_a_stopped_model_has_none_whoever_waits():
    fleet = Asked(scaled().model_copy(update={"state": "stopped"}))

    assert moves(fleet.look(m=Load(waiting=5))) == []


def test_a_schedule_sets_other_bounds_for_its_time():
    # NOW is 2027-01-15 08:00 UTC.
    nine = [{"cron": "0 9 * * *", "min": 3}, {"cron": "0 10 * * *", "min": 0}]
    fleet = Asked(scaled(schedule=nine, down_delay=0, idle_timeout=0))

    assert moves(fleet.look()) == []
    assert moves(fleet.look(3600)) == ["+m/cpu/0", "+m/cpu/1", "+m/cpu/2"]
    assert moves(fleet.look(3600)) == ["-m/cpu/0", "-m/cpu/1", "-m/cpu/2"]


def test_a_claim_of_next_to_nothing_fits_as_often_as_it_is_asked_for():
    tiny = [profile("a", replicas=None, memory_gib=1e-10), profile("b", replicas=None, memory_gib=1e-10)]
    fleet = Asked(scaled(profiles=tiny))

    assert len(moves(fleet.look(m=Load(waiting=3)))) == 2


def test_a_model_whose_number_cannot_be_decided_keeps_what_it_has_and_the_others_go_on(monkeypatch):
    fleet = Asked(scaled("a", min=1), scaled("b", min=1))
    fleet.look()
    real = demand.bounds
    monkeypatch.setattr(demand, "bounds", lambda s, now: 1 / 0 if s.max == 7 else real(s, now))
    fleet.models = (scaled("a", min=1, max=7), scaled("b", min=2))

    plan = fleet.look()

    assert moves(plan) == ["+b/cpu/1"]
    assert held(plan) == ["a: internal error: ZeroDivisionError('division by zero')"]


class TestOnOneCard:
    """Models on demand that do not fit beside each other."""

    def two(self, **more):
        sized = [profile(replicas=None, memory_gib=6)]
        return Asked(
            scaled("a", profiles=sized, idle_timeout=900, **more),
            scaled("b", profiles=sized, idle_timeout=900, **more),
            memory_gib=8,
        )

    def test_one_that_idles_gives_way_to_one_that_somebody_waits_for(self):
        fleet = self.two()
        fleet.look(a=Load(waiting=1))

        plan = fleet.look(10, a=Load(idle_for_s=1), b=Load(waiting=1))
        assert moves(plan) == ["-a/cpu/0"]
        assert held(plan) == ["b/cpu/0: it waits until a/cpu/0 on n1 gave way to it"]
        assert moves(fleet.look(10, b=Load(waiting=1))) == ["+b/cpu/0"]
        assert fleet.memory.gave_way == {}

    def test_ls6_one_that_works_does_not(self):
        fleet = self.two()
        fleet.look(a=Load(waiting=1))

        plan = fleet.look(10, a=Load(in_flight=1), b=Load(waiting=1))

        assert moves(plan) == []
        assert held(plan) == ["b/cpu/0: no node has room for it"]

    def test_ls7_one_that_is_kept_busy_gives_way_once_the_other_has_waited_its_time(self):
        fleet = self.two()
        fleet.look(a=Load(waiting=1))
        both = {"a": Load(in_flight=1, waiting=1), "b": Load(waiting=1)}

        swaps = 0
        for _ in range(60):
            plan = fleet.look(10, **both)
            swaps += len([m for m in moves(plan) if m.startswith("-")])

        # Ten minutes, and a turn of each is a minute at least.
        assert 4 <= swaps <= 10

    def test_one_that_is_being_loaded_for_somebody_is_not_given_up(self):
        fleet = self.two()
        fleet.phase = S
        fleet.look(a=Load(waiting=1))

        assert moves(fleet.look(10, a=Load(waiting=1), b=Load(waiting=1))) == []

    def test_one_that_nobody_waits_for_takes_no_room(self):
        fleet = self.two()
        fleet.look(a=Load(waiting=1))

        assert moves(fleet.look(10, a=Load(idle_for_s=1), b=Load(idle_for_s=1))) == []

    def test_the_one_asked_least_recently_gives_way_first(self):
        small = [profile(replicas=None, memory_gib=4)]
        fleet = Asked(*(scaled(n, profiles=small) for n in "abc"), memory_gib=8)
        fleet.look(a=Load(waiting=1), b=Load(waiting=1))

        plan = fleet.look(10, a=Load(idle_for_s=100), b=Load(idle_for_s=1), c=Load(waiting=1))

        assert moves(plan) == ["-a/cpu/0"]

    def test_a_model_that_is_always_there_takes_the_room_of_one_on_demand(self):
        always = model("z", profiles=[profile(memory_gib=6)])
        fleet = self.two()
        fleet.look(a=Load(waiting=1))
        fleet.models = (*fleet.models, always)

        assert moves(fleet.look(10, a=Load(in_flight=1))) == ["-a/cpu/0"]

    def test_of_two_that_idle_the_one_that_is_given_up_is_the_only_one_less(self):
        small = [profile(replicas=None, memory_gib=4)]
        fleet = Asked(*(scaled(n, profiles=small) for n in "ab"), memory_gib=8)
        fleet.look(a=Load(waiting=4))
        assert fleet.count == 2

        plan = fleet.look(10, a=Load(idle_for_s=1), b=Load(waiting=1))

        assert moves(plan) == ["-a/cpu/0"]
        assert fleet.memory.scales["a"].total == 1


def test_a_profile_that_is_parked_counts_none_while_another_has_room():
    two = [profile("big", replicas=None, priority=200), profile("small", replicas=None, priority=10)]
    m = scaled(profiles=two, min=1)
    wanted = wanting(m, nodes=["n1"])
    parked = Failures(wanted.models["m"].outcomes["big"], 9, NOW - 5, "bad_flags", "")

    plan = decide(wanted, Observed((node("n1"),)), structs.replace(LONG_AGO, failures={"m/big": parked}), NOW)

    assert moves(plan) == ["+m/small/0"]
