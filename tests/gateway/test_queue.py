"""Slots are granted in order, bounded, and never lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.table_server import model, replica
from fakes.waiting import until
from llmgw.core.table import Serving, TableModel
from llmgw.gateway.bounds import Bounds
from llmgw.gateway.ledger import Hold, Ledger
from llmgw.gateway.openai import ApiError
from llmgw.gateway.pick import Key
from llmgw.gateway.queue import Lines


class World:
    """A table, a ledger, the lines, and the tasks of those who asked."""

    def __init__(self, *replicas: Any, bounds: Bounds | None = None, **more: Any) -> None:
        self.models: dict[str, TableModel] = {"m": model("m", *replicas, **more)}
        self.ledger = Ledger(asyncio.get_running_loop().time, suspect_s=10)
        self.lines = Lines(self.models.get, self.ledger, bounds or Bounds(full_wait_s=10, start_wait_s=10))
        self.order: list[str] = []
        self.colds = 0
        self.lines.cold = self._cold

    def _cold(self) -> None:
        self.colds += 1

    async def ask(self, who: str, name: str = "m", avoid: frozenset[Key] = frozenset()) -> Hold:
        hold = await self.lines.enter(name, avoid)
        self.order.append(who)
        return hold

    async def asking(self, who: str, avoid: frozenset[Key] = frozenset()) -> asyncio.Task[Hold]:
        """Somebody who is in line when this is back, or has a slot."""
        before = self.count
        task = asyncio.create_task(self.ask(who, avoid=avoid))
        await until(lambda: task.done() or self.count > before, said=f"{who} in line")
        return task

    @property
    def count(self) -> int:
        return sum(self.lines.waiting().values())

    def put(self, *replicas: Any, **more: Any) -> None:
        self.models["m"] = model("m", *replicas, **more)
        self.lines.wake_all()


def one(rid: str = "m/gpu/0", **more: Any) -> Any:
    return replica(rid, "http://x", **{"capacity": 1, **more})


async def test_a_free_slot_is_had_at_once():
    world = World(one())

    hold = await world.ask("a")

    assert hold.key == Key("m/gpu/0", 1)
    assert world.ledger.in_flight() == {"m": 1}


async def test_ls10_those_who_wait_are_served_in_the_order_they_came():
    world = World(one())
    hold = await world.ask("first")
    tasks = [await world.asking(who) for who in "abc"]

    for task in tasks:
        hold.release()
        hold = await task

    assert world.order == ["first", "a", "b", "c"]


async def test_nobody_overtakes_who_comes_in_the_moment_a_slot_is_free():
    world = World(one())
    hold = await world.ask("first")
    waiting = await world.asking("waits")

    hold.release()
    late = asyncio.create_task(world.ask("late"))
    (await waiting).release()
    await late

    assert world.order == ["first", "waits", "late"]


async def test_in_flight_never_passes_the_capacity():
    world = World(one("m/gpu/0", capacity=2), one("m/cpu/0", capacity=1, tier=1))
    tasks = [asyncio.create_task(world.ask(str(n))) for n in range(20)]
    most = 0

    for task in tasks:
        hold = await task
        most = max(most, world.ledger.taken(Key("m/gpu/0", 1)))
        assert world.ledger.taken(Key("m/gpu/0", 1)) <= 2
        assert world.ledger.taken(Key("m/cpu/0", 1)) <= 1
        hold.release()

    assert most == 2
    assert world.ledger.in_flight() == {}


async def test_the_line_is_bounded_and_says_when_to_come_again():
    world = World(one(), bounds=Bounds(waiting=2))
    await world.ask("first")
    await world.asking("a")
    await world.asking("b")

    with pytest.raises(ApiError) as refused:
        await world.ask("c")

    assert (refused.value.status, refused.value.code) == (429, "queue_full")
    assert 1 <= int(refused.value.headers()["retry-after"]) <= 30


async def test_who_waits_too_long_for_a_slot_is_told_so_and_leaves_the_line():
    world = World(one(), bounds=Bounds(full_wait_s=0.05))
    await world.ask("first")

    with pytest.raises(ApiError, match="had no free slot") as refused:
        await world.ask("a")

    assert (refused.value.status, refused.value.code) == (503, "model_unavailable")
    assert world.lines.waiting() == {}


async def test_who_waits_too_long_for_a_start_is_told_that_it_loads():
    world = World(one(state=Serving.STARTING), bounds=Bounds(start_wait_s=0.05))

    with pytest.raises(ApiError, match="was not ready") as refused:
        await world.ask("a")

    assert (refused.value.status, refused.value.code) == (503, "model_loading")


async def test_f46_those_who_wait_for_a_start_are_all_served_once_it_is_ready():
    world = World(one(state=Serving.STARTING, capacity=2))
    tasks = [await world.asking(who) for who in "abc"]

    world.put(one(capacity=2))

    (await tasks[0]).release()
    await asyncio.gather(*tasks[1:])
    assert world.order == ["a", "b", "c"]


async def test_f46_a_start_that_fails_fails_everybody_once_with_its_reason():
    world = World(one(state=Serving.STARTING))
    tasks = [await world.asking(who) for who in "abc"]

    world.put(why="m/gpu/0 ended: out of memory")

    for answer in await asyncio.gather(*tasks, return_exceptions=True):
        assert answer.status == 503
        assert "out of memory" in answer.message
    assert world.lines.waiting() == {}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param({"why": "no node has 24 GiB"}, "nothing serves m: no node has 24 GiB", id="cannot be placed"),
        pytest.param({"state": "stopped"}, "nothing serves m: it is stopped", id="stopped"),
        pytest.param(
            {"state": "stopped", "why": "it is being moved"}, "nothing serves m: it is being moved", id="with a reason"
        ),
        pytest.param({"state": "problem", "why": "catalog/m.yaml:3:1: no"}, "catalog/m.yaml:3:1", id="a problem"),
    ],
)
async def test_f39_where_there_is_nothing_to_wait_for_nobody_waits(more, message):
    world = World(**more)

    with pytest.raises(ApiError, match=message) as refused:
        await world.ask("a")

    assert (refused.value.status, refused.value.code) == (503, "model_unavailable")


async def test_a_model_that_is_removed_fails_those_who_wait_for_it():
    world = World(one(state=Serving.STARTING))
    waiting = await world.asking("a")

    del world.models["m"]
    world.lines.wake_all()

    with pytest.raises(ApiError, match="removed from the catalog"):
        await waiting


async def test_ka6_who_gives_up_leaves_the_line_and_its_turn_to_the_next():
    world = World(one())
    hold = await world.ask("first")
    leaving, staying = await world.asking("leaves"), await world.asking("stays")

    leaving.cancel()
    await asyncio.wait({leaving})
    assert world.lines.waiting() == {"m": 1}
    hold.release()

    await staying
    assert world.order == ["first", "stays"]


async def test_f41_who_leaves_in_the_moment_it_is_granted_loses_no_slot():
    world = World(one())
    hold = await world.ask("first")
    leaving, staying = await world.asking("leaves"), await world.asking("stays")

    hold.release()  # granted to the first in line, who has not run yet
    leaving.cancel()

    await staying
    assert world.order == ["first", "stays"]


async def test_who_has_failed_on_a_replica_waits_for_another_at_the_head_of_the_line():
    world = World(one("m/gpu/0"), one("m/gpu/1"))
    zero, first = await world.ask("zero"), await world.ask("first")
    waits = await world.asking("waits")
    again = await world.asking("again", frozenset({zero.key}))

    first.release()
    await again
    zero.release()
    await waits

    assert world.order[2:] == ["again", "waits"]


async def test_who_avoids_what_becomes_free_does_not_stop_those_behind():
    world = World(one("m/gpu/0"), one("m/gpu/1"))
    zero, _ = await world.ask("zero"), await world.ask("first")
    again = await world.asking("again", frozenset({zero.key}))
    waits = await world.asking("waits")

    zero.release()

    await waits
    assert not again.done()
    again.cancel()


async def test_the_first_who_asks_a_cold_model_is_said_and_not_the_second():
    world = World()

    for who in "ab":
        await world.asking(who)

    assert world.colds == 1


async def test_who_waits_for_a_full_model_is_not_said_to_be_cold():
    world = World(one())
    await world.ask("first")

    await world.asking("a")

    assert world.colds == 0


async def test_f21_a_slot_left_behind_stays_taken_until_the_engine_says_it_is_idle():
    world = World(one())
    key = Key("m/gpu/0", 1)
    hold = await world.ask("first")
    waits = await world.asking("waits")

    hold.linger()
    assert world.ledger.in_flight() == {}
    world.ledger.settle(key, "m", processing=1)
    assert not waits.done()
    world.ledger.settle(key, "m", processing=0)

    await waits
    assert world.ledger.taken(key) == 1


async def test_the_engine_works_on_live_requests_first_and_on_left_ones_with_what_is_over():
    world = World(one(capacity=3))
    key = Key("m/gpu/0", 1)
    holds = [await world.ask(who) for who in "abc"]
    holds[0].linger()
    holds[1].linger()

    world.ledger.settle(key, "m", processing=2)

    assert world.ledger.lingering(key) == 1
    assert world.ledger.taken(key) == 2


async def test_f41_a_hold_gives_back_once_whatever_is_called_how_often():
    world = World(one(capacity=2))
    with await world.ask("a") as hold:
        hold.release()
        hold.linger()
        hold.release()

    assert world.ledger.taken(hold.key) == 0
    assert world.ledger.in_flight() == {}


async def test_f41_a_hold_gives_back_whatever_ends_its_block():
    world = World(one())

    for error in (ValueError, asyncio.CancelledError, KeyboardInterrupt):
        with pytest.raises(error), await world.ask("a"):
            raise error

    assert world.ledger.in_flight() == {}


def test_a_replica_is_suspect_for_a_while_after_it_failed():
    now = 100.0
    ledger = Ledger(lambda: now, suspect_s=10)
    ledger.accuse(Key("a", 1))

    assert ledger.suspect(Key("a", 1))
    assert not ledger.suspect(Key("a", 2))
    now = 110.0
    assert not ledger.suspect(Key("a", 1))


STEPS = ["ask", "release", "linger", "cancel", "settle", "table"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=60))
def test_f41_whatever_happens_in_which_order_nothing_is_lost_or_negative(steps):
    asyncio.run(_happens(steps))


async def _happens(steps: list[tuple[str, int]]) -> None:  # noqa: C901 - a step a case
    world = World(one("m/gpu/0", capacity=2), one("m/gpu/1", capacity=1))
    tasks: list[asyncio.Task[Hold]] = []
    keys = [Key("m/gpu/0", 1), Key("m/gpu/1", 1)]

    def held() -> list[Hold]:
        return [t.result() for t in tasks if t.done() and not t.cancelled() and not t.exception()]

    for step, n in steps:
        live = [h for h in held() if h._held]
        match step:
            case "ask":
                tasks.append(asyncio.create_task(world.ask(str(n))))
            case "release" if live:
                live[n % len(live)].release()
            case "linger" if live:
                live[n % len(live)].linger()
            case "cancel" if tasks:
                tasks[n % len(tasks)].cancel()
            case "settle":
                world.ledger.settle(keys[n % 2], "m", n % 3)
            case "table":
                world.put(*(one(f"m/gpu/{i}", capacity=2 - i) for i in range(1 + n % 2)))
        if n % 2:
            await asyncio.sleep(0)
        for key, capacity in zip(keys, (2, 1), strict=True):
            assert 0 <= world.ledger.taken(key) <= capacity
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for hold in held():
        hold.release()
    for key in keys:
        world.ledger.settle(key, "m", 0)
        assert world.ledger.taken(key) == 0
    assert world.ledger.in_flight() == {}
    assert world.lines.waiting() == {}
    assert world.ledger._live == {}
    assert world.ledger._lingering == {}


async def test_who_names_a_profile_waits_for_that_one_and_holds_nobody_else_up():
    world = World(one("m/gpu/0"), one("m/cpu/0", tier=1))
    first = await world.lines.enter("m", profile="gpu")
    named = asyncio.create_task(world.lines.enter("m", profile="gpu"))
    await until(lambda: world.count == 1, said="one in line")

    other = await world.ask("anybody")
    assert (first.key.id, other.key.id) == ("m/gpu/0", "m/cpu/0")

    other.release()
    assert not named.done()
    first.release()
    assert (await named).key.id == "m/gpu/0"


async def test_a_profile_that_nothing_runs_is_not_waited_for():
    world = World(one("m/gpu/0"))

    with pytest.raises(ApiError, match="nothing serves m: it has no replica of a profile 'cpu'"):
        await world.lines.enter("m", profile="cpu")
