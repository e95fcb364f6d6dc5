"""The table is followed, kept, and served on with."""

from __future__ import annotations

import asyncio
import stat

import pytest

from fakes.quirks import well_behaved
from fakes.table_server import model, replica, table
from fakes.waiting import until
from llmgw.gateway.bounds import Bounds
from llmgw.gateway.table import Snapshot

CHAT = "/v1/chat/completions"


async def served(fleet, chat, name: str = "m") -> int:
    async with fleet.post(CHAT, chat(name)) as got:
        return got.status


@pytest.fixture
async def one(fleet):
    engine = await fleet.engine()
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))
    await fleet.start()
    return engine


async def test_a_new_table_is_in_use_as_soon_as_control_has_it(fleet, one, chat):
    assert await served(fleet, chat, "new") == 404

    async with asyncio.timeout(2):
        await fleet.put(model("new", replica("new/gpu/0", one.url)))

    assert await served(fleet, chat, "new") == 200
    assert await served(fleet, chat) == 404


async def test_control_is_told_which_version_is_there_and_asked_again_at_once(fleet, one):
    first = fleet.control.table.version
    await until(lambda: fleet.control.asked == ["", first])

    await fleet.put(model("m"))

    await until(lambda: fleet.control.asked == ["", first, fleet.control.table.version])


async def test_a_control_that_has_no_news_is_asked_once_in_the_time_it_holds(fleet):
    fleet.control.put(model("m"))
    await fleet.start(bounds=Bounds(table_wait_s=1))
    await until(lambda: len(fleet.control.asked) >= 3)

    assert len(fleet.control.asked) == 3


async def test_a_control_that_came_back_without_a_table_yet_is_waited_on_for_its_first(fleet, chat):
    # It settles after its restart: a gateway that came again with longer and longer pauses would miss the moment.
    engine = await fleet.engine()
    await fleet.control.down()
    await fleet.start()
    await fleet.control.up()
    await until(lambda: len(fleet.control.asked) >= 2, within_s=20)

    async with asyncio.timeout(1):
        await fleet.put(model("m", replica("m/gpu/0", engine.url)))

    assert await served(fleet, chat) == 200


async def test_the_table_is_kept_for_this_user_alone(fleet, one):
    kept = fleet.state / "state" / "table.json"
    await until(kept.exists)

    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert not list(kept.parent.glob("*.part"))


async def test_while_control_is_away_requests_are_served_and_its_return_is_noticed(fleet, one, chat):
    await fleet.control.down()
    await _until_control(fleet, "away")

    assert await served(fleet, chat) == 200
    await fleet.control.up()

    await _until_control(fleet, "ok")
    await fleet.put(model("new", replica("new/gpu/0", one.url)))
    assert await served(fleet, chat, "new") == 200


async def test_a_gateway_that_starts_while_control_is_away_serves_with_the_table_of_before(fleet, one, chat):
    await until((fleet.state / "state" / "table.json").exists)
    version = fleet.control.table.version
    await fleet.stop()
    await fleet.control.down()

    fleet.control.table, kept = None, fleet.control.table
    await fleet.start()

    assert (await fleet.health())["table"] == version
    assert await served(fleet, chat) == 200
    fleet.control.table = kept
    await fleet.control.up()
    await _until_control(fleet, "ok")
    await until(lambda: fleet.control.asked[-1] == version, said="the kept version is what it asks with")


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"version":1}', b"\xff\xfe"])
async def test_a_kept_table_that_is_of_no_use_is_not_the_end(fleet, chat, kept):
    (fleet.state / "state").mkdir()
    (fleet.state / "state" / "table.json").write_bytes(kept)
    engine = await fleet.engine()
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))

    await fleet.start()

    assert await served(fleet, chat) == 200


async def test_a_table_that_cannot_be_kept_is_used_all_the_same(fleet, chat):
    (fleet.state / "state").write_text("a file where the folder should be")
    engine = await fleet.engine()
    fleet.control.put(model("m", replica("m/gpu/0", engine.url)))

    await fleet.start()

    assert await served(fleet, chat) == 200
    await until(lambda: any("cannot be kept" in r.getMessage() for r in fleet.logged.records))


async def test_the_key_is_read_at_each_use(fleet, one):
    fleet.control.key = "another"
    await fleet.control.down()
    await fleet.control.up()
    await until(lambda: any("server.yaml has the sha256 of the key" in r.getMessage() for r in fleet.logged.records))

    (fleet.state / "key").write_text("another\n")

    await _until_control(fleet, "ok")


async def test_a_key_file_that_is_not_there_is_said_and_nobody_stops(fleet, one, chat):
    (fleet.state / "key").unlink()
    await fleet.control.down()
    await fleet.control.up()

    await until(lambda: any("the key file" in r.getMessage() for r in fleet.logged.records))
    assert await served(fleet, chat) == 200
    assert not [r for r in fleet.logged.records if r.exc_info]


async def test_control_that_stays_away_is_said_once(fleet, one):
    fleet.control.broken = True
    await fleet.control.down()
    await fleet.control.up()
    before = len(fleet.control.asked)
    await until(lambda: len(fleet.control.asked) >= before + 3, said="three more tries")

    said = [r.getMessage() for r in fleet.logged.records if "serving on with the last table" in r.getMessage()]
    assert len([s for s in said if "does not give the table" in s]) == 1
    assert all("\n" not in s for s in said)


async def test_a_table_this_gateway_does_not_understand_changes_nothing(fleet, one, chat):
    odd = fleet.control.table
    fleet.control.put(model("m", replica("m/gpu/0", one.url, state="melting")))
    await _until_control(fleet, "away")
    assert await served(fleet, chat) == 200

    fleet.control.table = odd
    fleet.control.put(model("m", replica("m/gpu/0", one.url)))
    await _until_control(fleet, "ok")


def test_a_name_is_never_taken_over_by_an_alias():
    snapshot = Snapshot.of(table(model("a", aliases=("b", "c")), model("b")))

    assert snapshot.find("b").name == "b"
    assert snapshot.find("c").name == "a"
    assert snapshot.find("d") is None


async def test_demand_says_who_waits_who_is_served_and_how_long_nobody_asked(fleet, chat):
    gate = asyncio.Event()

    async def play(connection, request):
        await gate.wait()
        await well_behaved(connection, request)

    engine = await fleet.engine(play=play)
    fleet.control.put(model("m", replica("m/gpu/0", engine.url, capacity=1)), model("unasked"))
    await fleet.start(bounds=Bounds(demand_every_s=0.05))
    tasks = [asyncio.create_task(served(fleet, chat)) for _ in range(3)]

    await until(lambda: _last(fleet) and (_last(fleet).waiting, _last(fleet).in_flight) == (2, 1))
    assert _last(fleet).idle_for_s is None
    gate.set()
    await asyncio.gather(*tasks)
    await until(lambda: (_last(fleet).waiting, _last(fleet).in_flight) == (0, 0))

    await until(lambda: (_last(fleet).idle_for_s or 0) > 0.2)
    demands = fleet.control.demands
    assert {d.gateway for d in demands} == {"g1"}
    assert len({d.boot for d in demands}) == 1
    assert [d.seq for d in demands] == list(range(1, len(demands) + 1))
    assert all("unasked" not in d.models for d in demands)


async def test_demand_goes_on_after_control_was_away_and_a_new_gateway_has_another_boot(fleet, one):
    await until(lambda: fleet.control.demands)
    boot = fleet.control.demands[-1].boot
    await fleet.stop()
    await fleet.start(bounds=Bounds(demand_every_s=0.05))
    await until(lambda: fleet.control.demands[-1].boot != boot)
    await fleet.control.down()
    seen = len(fleet.control.demands)

    await fleet.control.up()

    await until(lambda: len(fleet.control.demands) > seen)


def _last(fleet):
    return fleet.control.demands[-1].models.get("m") if fleet.control.demands else None


async def _until_control(fleet, word: str) -> None:
    await fleet.until_health(lambda h: h["control"] == word)
