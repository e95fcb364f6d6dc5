"""A replica's life on a node: ordered, started, serving, drained, gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from fakes import launch
from fakes.agents import QUICK
from fakes.waiting import until
from llmgw_agent.protocol import Action, Phase, ReplicaOrder

SLOW_TO_WEDGE = replace(QUICK, wedged_after_s=60)


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_an_ordered_replica_starts_serves_and_is_reported(agents, control):
    control.order(agents.order())
    await agents.start()

    r = await control.sees(Phase.READY)

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{r.port}", trust_env=False) as client:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        refused = await client.post("/v1/chat/completions", json=body)
        served = await client.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {r.key}"})
    assert refused.status_code == 401
    assert served.json()["choices"][0]["message"]["content"] == "w0 w1 w2"
    assert r.pid in agents.processes()
    assert (r.fingerprint, r.engine, r.parallel, r.attempts, r.dossier) == ("f1", "llamacpp", 2, 0, None)
    assert r.port in range(7500, 8000)
    assert control.keys == {"Bearer node-key"}


async def test_its_key_is_on_no_command_line_and_readable_by_its_owner_only(agents, control):
    control.order(agents.order())
    await agents.start()

    r = await control.sees(Phase.READY)

    assert r.key
    assert r.key not in command_line(r.pid)
    (key_file,) = agents.settings.state.glob("replicas/*/key")
    assert key_file.read_text() == r.key
    assert key_file.stat().st_mode & 0o777 == 0o600


async def test_what_is_ordered_no_more_is_drained_stopped_and_forgotten(agents, control):
    control.order(agents.order())
    await agents.start()
    await control.sees(Phase.READY)

    control.order()

    await control.sees(Phase.DRAINING)
    await control.misses()
    assert agents.processes() == {}
    assert list(agents.settings.state.glob("replicas/*")) == []


async def test_a_drain_waits_for_what_is_under_way(agents, control, tmp_path):
    agents.engine(wedge_while=str(tmp_path / "slow"), tokens=30)
    control.order(agents.order(drain_timeout_s=60))
    await agents.start(pace=SLOW_TO_WEDGE)
    r = await control.sees(Phase.READY)
    (tmp_path / "slow").touch()

    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {r.key}"}) as client:
        body = {"prompt": "a", "max_tokens": 30}
        asked = asyncio.create_task(client.post(f"http://127.0.0.1:{r.port}/v1/completions", json=body))
        await until(lambda: agents.node.report().replicas[0].busy == 1)
        control.order(ReplicaOrder("m/cpu/0", 1, Action.DRAIN))
        await control.sees(Phase.DRAINING)
        (tmp_path / "slow").unlink()
        answer = await asked

    assert len(answer.json()["choices"][0]["text"].split()) == 30
    stopped = await control.sees(Phase.STOPPED)
    assert stopped.pid is None
    assert agents.processes() == {}


async def test_a_drain_waits_for_a_request_that_came_after_the_first_idle_look(agents, control):
    # A gateway that has not heard of the drain yet still sends one.
    agents.engine(token_ms=100, tokens=20)
    control.order(agents.order())
    await agents.start(pace=replace(QUICK, idle_gap_s=1.0))
    r = await control.sees(Phase.READY)
    control.order()
    await control.sees(Phase.DRAINING)

    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {r.key}"}) as client:
        body = {"prompt": "a", "max_tokens": 20}
        answer = await client.post(f"http://127.0.0.1:{r.port}/v1/completions", json=body)

    assert answer.json()["usage"]["completion_tokens"] == 20


async def test_a_drain_ends_when_its_time_is_over(agents, control, tmp_path):
    agents.engine(wedge_while=str(tmp_path / "wedge"))
    control.order(agents.order(drain_timeout_s=0.5))
    await agents.start(pace=SLOW_TO_WEDGE)
    r = await control.sees(Phase.READY)
    (tmp_path / "wedge").touch()

    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {r.key}"}) as client:
        asked = asyncio.create_task(client.post(f"http://127.0.0.1:{r.port}/v1/completions", json={"prompt": "a"}))
        await until(lambda: agents.node.report().replicas[0].busy == 1)
        control.order()

        await control.misses(within_s=8)
        with pytest.raises(httpx.HTTPError):
            await asked


async def test_a_drain_taken_back_leaves_the_same_process_serving(agents, control, tmp_path):
    agents.engine(wedge_while=str(tmp_path / "wedge"))
    control.order(agents.order(drain_timeout_s=60))
    await agents.start(pace=SLOW_TO_WEDGE)
    before = await control.sees(Phase.READY)
    (tmp_path / "wedge").touch()
    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {before.key}"}) as client:
        asked = asyncio.create_task(client.post(f"http://127.0.0.1:{before.port}/v1/completions", json={"prompt": "a"}))
        await until(lambda: agents.node.report().replicas[0].busy == 1)
        control.order(ReplicaOrder("m/cpu/0", 1, Action.DRAIN))
        await control.sees(Phase.DRAINING)

        control.order(agents.order(drain_timeout_s=60))

        after = await control.sees(Phase.READY)
        (tmp_path / "wedge").unlink()
        assert (await asked).status_code == 200
    assert after.pid == before.pid


async def test_keep_leaves_what_runs_alone(agents, control):
    control.order(agents.order())
    await agents.start()
    before = await control.sees(Phase.READY)

    kept = control.order(ReplicaOrder("m/cpu/0", 1, Action.KEEP))

    await until(lambda: control.posts[-1].obeyed_seq == kept.seq)
    assert control.replica("m/cpu/0").pid == before.pid
    assert control.replica("m/cpu/0").phase is Phase.READY


async def test_keep_of_what_is_not_there_starts_nothing(agents, control):
    kept = control.order(ReplicaOrder("m/cpu/0", 1, Action.KEEP), ReplicaOrder("m/cpu/1", 1, Action.DRAIN))
    await agents.start()

    await until(lambda: control.posts and control.posts[-1].obeyed_seq == kept.seq)

    assert control.report.replicas == ()


async def test_two_generations_run_side_by_side_until_the_older_is_not_ordered(agents, control):
    control.order(agents.order(generation=1))
    await agents.start()
    old = await control.sees(Phase.READY)

    control.order(agents.order(generation=1), agents.order(generation=2))
    new = await control.sees(Phase.READY, generation=2)
    control.order(agents.order(generation=2))
    await control.misses(generation=1)

    assert old.pid != new.pid
    assert control.replica("m/cpu/0", 2).pid == new.pid
    assert list(agents.processes()) == [new.pid]


async def test_a_start_waits_for_the_card_of_what_is_going(agents, control, tmp_path):
    stamp = tmp_path / "stamp"
    agents.engine(stamp=str(stamp), ignore_sigterm=True)
    control.order(agents.order("m/gpu/0", devices=("GPU-1",)))
    await agents.start()
    await control.sees(Phase.READY, "m/gpu/0")

    control.order(agents.order("m/gpu/0", 2, devices=("GPU-1",)), agents.order("m/gpu/1", devices=("GPU-2",)))
    await control.sees(Phase.READY, "m/gpu/1")
    # The first is deaf, so it still ends; the other card was free at once.
    assert control.replica("m/gpu/0", 1).phase in {Phase.DRAINING, Phase.STOPPING}
    assert control.replica("m/gpu/0", 2).phase is Phase.FETCHING

    await control.sees(Phase.READY, "m/gpu/0", 2)
    assert control.replica("m/gpu/0", 1) is None


async def test_a_start_waits_for_memory_that_is_being_given_back(agents, control):
    agents.engine(ignore_sigterm=True)
    control.order(agents.order(generation=1))
    await agents.start(reserve_bytes=1 << 60)  # so that never is enough free
    await control.sees(Phase.READY)

    control.order(agents.order(generation=2))
    await control.sees(Phase.STOPPING, generation=1)
    assert control.replica("m/cpu/0", 2).phase is Phase.FETCHING

    # Once nothing is on its way out the wait is over: whether it fits was decided elsewhere.
    await control.sees(Phase.READY, generation=2)
    assert control.replica("m/cpu/0", 1) is None


async def test_what_did_not_change_is_said_as_the_same(agents, control):
    control._hold_s = 0.2
    control.order(agents.order())
    await agents.start()
    await control.sees(Phase.READY)

    calls = len(control.posts)
    control.order(agents.order())  # the same again, under a new seq

    await until(lambda: any(post.same and not post.replicas for post in control.posts[calls:]))


async def test_a_control_that_forgot_gets_the_whole_report(agents, control):
    control._hold_s = 0.2
    control.order()
    await agents.start()
    await until(lambda: any(post.same for post in control.posts), said="a report that is the same")

    control.forgetful = True
    await until(lambda: not control.forgetful and len(control.posts) > control.forgot_at)

    again = control.posts[control.forgot_at]
    assert (again.same, again.replicas) == ("", ())


async def test_of_several_builds_the_one_that_the_order_names_is_started_and_none_where_it_is_not_there(
    agents, control
):
    (agents.engines / "llama-server").unlink()
    older, newer = (launch.install(agents.engines / f"llama-{build}") for build in ("b9000", "b11549"))
    names = {"m/a/0": "b9000", "m/b/0": "b11549", "m/c/0": "b12000"}
    control.order(*(agents.order(rid, engine_version=version) for rid, version in names.items()))
    node = await agents.start()

    for rid in ("m/a/0", "m/b/0"):
        await control.sees(Phase.READY, rid)
    refused = await control.sees(Phase.FAILED, "m/c/0")

    started = {r.key[0]: r.started.engine.path for r in node.replicas.values() if r.started}
    assert started == {"m/a/0": str(older), "m/b/0": str(newer)}
    assert refused.dossier.cause == "engine_missing"
    assert "version b12000 is asked for, and this node has" in refused.dossier.message
