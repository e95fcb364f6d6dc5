"""Engines that fail: each ends in a named state, in bounded time, with nothing left of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import signal
import socket
from dataclasses import replace

import httpx
import msgspec
import pytest

from fakes.agents import QUICK
from fakes.waiting import until
from llmgw_agent import ports
from llmgw_agent.protocol import Dossier, Phase


def stamps(file) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def ask_for_tokens(r) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {r.key}"}) as client:
        return await client.post(f"http://127.0.0.1:{r.port}/v1/completions", json={"prompt": "a"}, timeout=30)


@pytest.mark.parametrize("signs", ["log", "io"])
async def test_ls3_a_slow_load_with_progress_is_not_ended(agents, control, signs):
    agents.engine(load_s=2.0, load_signs=signs)
    control.order(agents.order(start_timeout_s=0.8))
    await agents.start()

    r = await control.sees(Phase.READY)

    assert r.attempts == 0


async def test_ls3_a_load_without_progress_is_ended_and_named(agents, control):
    agents.engine(never_ready=True, load_signs="")
    control.order(agents.order(start_timeout_s=0.5))
    await agents.start()

    r = await control.sees(Phase.FAILED)

    assert r.dossier.cause == "timeout"
    assert "without progress" in r.dossier.message
    assert agents.processes() == {}


async def test_a_start_that_prints_for_ever_and_is_never_ready_ends(agents, control, monkeypatch):
    monkeypatch.setattr("llmgw_agent.starts.AT_MOST", 2)
    agents.engine(never_ready=True)
    control.order(agents.order(start_timeout_s=0.5))
    await agents.start()

    r = await control.sees(Phase.FAILED)

    assert r.dossier.cause == "timeout"


async def test_ls4_a_bad_flag_is_named_at_once(agents, control):
    control.order(agents.order(args=("--no-such-flag",)))
    await agents.start()

    r = await control.sees(Phase.FAILED)

    assert (r.dossier.cause, r.dossier.exit_code) == ("bad_flags", 1)
    assert r.dossier.message == "error: invalid argument: --no-such-flag"


async def test_ls4_a_child_in_another_session_and_a_deaf_parent_both_end(agents, control, tmp_path):
    agents.engine(leak_child=str(tmp_path / "child"), ignore_sigterm=True)
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    child = int((tmp_path / "child").read_text())
    assert {r.pid, child} <= set(agents.processes())

    control.order()

    await control.misses()
    assert agents.processes() == {}


async def test_vo2_a_killed_engine_leaves_no_child_with_the_memory(agents, control, tmp_path):
    agents.engine(leak_child=str(tmp_path / "child"))
    control.order(agents.order())
    node = await agents.start()
    r = await control.sees(Phase.READY)
    (replica,) = node.replicas.values()
    assert replica.usage.own_bytes > 0

    os.kill(r.pid, signal.SIGKILL)

    failed = await control.sees(Phase.FAILED)
    assert (failed.dossier.cause, failed.dossier.signal) == ("killed", 9)
    assert agents.processes() == {}
    assert replica.usage.own_bytes == 0  # or others' use would be told too small


async def test_gs4_an_engine_that_calls_itself_otherwise_is_not_ready(agents, control):
    agents.engine(served_name="other")
    control.order(agents.order())
    await agents.start()

    r = await control.sees(Phase.FAILED)

    assert r.dossier.cause == "identity"
    assert "other" in r.dossier.message


async def test_gs4_a_busy_engine_with_slow_answers_is_left_alone(agents, control):
    # Every slot works for longer than the time a wedged one is given.
    agents.engine(token_ms=100, tokens=13)
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)

    answers = await asyncio.gather(*(ask_for_tokens(r) for _ in range(3)))

    assert [a.status_code for a in answers] == [200, 200, 200]
    assert control.replica("m/cpu/0").pid == r.pid


async def test_vo3_an_engine_that_says_healthy_and_makes_no_token_is_wedged(agents, control, tmp_path):
    agents.engine(wedge_while=str(tmp_path / "wedge"))
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    (tmp_path / "wedge").touch()
    asked = asyncio.create_task(ask_for_tokens(r))

    failed = await control.sees(Phase.FAILED)

    assert failed.dossier.cause == "wedged"
    assert agents.processes() == {}
    with pytest.raises(httpx.HTTPError):
        await asked


async def test_an_engine_that_answers_nothing_any_more_is_wedged(agents, control, tmp_path):
    agents.engine(hang_while=str(tmp_path / "hang"))
    control.order(agents.order())
    await agents.start()
    await control.sees(Phase.READY)

    (tmp_path / "hang").touch()

    assert (await control.sees(Phase.FAILED)).dossier.cause == "wedged"


async def test_an_engine_ended_by_a_signal_without_a_name_has_failed(agents, control):
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)

    os.kill(r.pid, 40)

    failed = await control.sees(Phase.FAILED)
    assert (failed.dossier.signal, failed.dossier.message[:24]) == (40, "it ended with signal 40:")


async def test_an_engine_that_ended_has_failed_also_where_looking_for_the_reason_breaks(agents, control, monkeypatch):
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)

    def bug(*_: object, **__: object) -> None:
        raise LookupError

    monkeypatch.setattr("llmgw_agent.dossier.of_exit", bug)
    os.kill(r.pid, signal.SIGSEGV)

    failed = await control.sees(Phase.FAILED)
    assert (failed.dossier.cause, failed.dossier.signal) == ("exited", signal.SIGSEGV)


async def test_an_engine_that_stands_still_is_wedged_also_when_the_watch_over_it_breaks(
    agents, control, tmp_path, monkeypatch
):
    agents.engine(hang_while=str(tmp_path / "hang"))
    monkeypatch.setattr("llmgw_agent.replica.LOOK_AGAIN_S", 0.01)
    looks = itertools.count(1)

    def now_and_then(_: object) -> None:
        if next(looks) % 2 == 0:
            raise LookupError

    control.order(agents.order())
    await agents.start()
    await control.sees(Phase.READY)
    monkeypatch.setattr("llmgw_agent.logs.bound", now_and_then)

    (tmp_path / "hang").touch()

    assert (await control.sees(Phase.FAILED)).dossier.cause == "wedged"


async def test_an_idle_engine_is_not_wedged(agents, control):
    control.order(agents.order())
    node = await agents.start(pace=replace(QUICK, wedged_after_s=0.3))
    await control.sees(Phase.READY)
    (replica,) = node.replicas.values()

    assert await replica.exits_within(1.2) is None
    assert node.report().replicas[0].phase is Phase.READY


async def test_a_short_hiccup_is_no_failure(agents, control, tmp_path):
    agents.engine(hang_while=str(tmp_path / "hang"))
    control.order(agents.order())
    node = await agents.start(pace=replace(QUICK, wedged_after_s=1.5))
    before = await control.sees(Phase.READY)
    (replica,) = node.replicas.values()
    (tmp_path / "hang").touch()
    await asyncio.wait([asyncio.create_task(replica.exits_within(0.8))])
    (tmp_path / "hang").unlink()

    # As long again as it takes to be called wedged, from when it hung.
    await asyncio.wait([asyncio.create_task(replica.exits_within(1.5))])

    assert control.replica("m/cpu/0").pid == before.pid
    assert control.replica("m/cpu/0").phase is Phase.READY


async def test_a_card_profile_that_comes_up_on_the_cpu_has_failed(agents, control):
    # There is no card here: the fake says what llama.cpp says where its driver is missing.
    agents.engine(say="warning: no usable GPU found, --gpu-layers option will be ignored")
    control.order(agents.order(devices=("GPU-1",)))
    await agents.start()

    r = await control.sees(Phase.FAILED)

    assert r.dossier.cause == "device"
    assert "no usable GPU found" in r.dossier.message


async def test_a_state_folder_that_cannot_be_written_ends_neither_the_agent_nor_an_engine(
    agents, control, monkeypatch, caplog
):
    monkeypatch.setattr("llmgw_agent.control.BACKOFF_S", (0.05, 0.1))
    control.order(agents.order())
    node = await agents.start()
    before = await control.sees(Phase.READY)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "record.json")

    monkeypatch.setattr("llmgw_agent.durable.write", full)
    calls = len(control.posts)
    control.order(agents.order(), agents.order("m/cpu/1"))
    await until(lambda: len(control.posts) > calls and control.posts[-1].trouble)
    # An agent that only stood by would look as if it had nothing to do.
    assert "orders.json cannot be written: No space left on device" in control.posts[-1].trouble
    calls = len(control.posts)
    await until(lambda: len(control.posts) > calls + 2)
    assert caplog.text.count("orders were not obeyed") == 1
    monkeypatch.undo()

    # Orders it could not keep are not obeyed, and so they are sent again.
    assert (await control.sees(Phase.READY, "m/cpu/1")).attempts == 0
    assert node.report().replicas[0].pid == before.pid
    await until(lambda: control.posts[-1].trouble == "")


OUT_OF_MEMORY = """\
llama_model_loader: loaded meta data
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 40000.00 MiB on device 0: cudaMalloc failed: out of memory
llama_model_load: error loading model: unable to allocate CUDA0 buffer
srv    load_model: failed to load model
see the root cause above"""


async def test_vo5_the_dossier_has_the_first_causal_line_and_not_the_last(agents, control):
    agents.engine(exit_message=OUT_OF_MEMORY)
    control.order(agents.order())
    await agents.start()

    r = await control.sees(Phase.FAILED)

    assert r.dossier.cause == "out_of_memory"
    assert "cudaMalloc failed" in r.dossier.message
    assert r.dossier.log_tail[-1] == "see the root cause above"


async def test_a_failed_engine_is_not_started_again_until_control_says_so(agents, control, tmp_path):
    stamp = tmp_path / "stamp"
    agents.engine(exit_message="error: broken", stamp=str(stamp))
    control.order(agents.order())
    await agents.start()
    failed = await control.sees(Phase.FAILED)
    assert failed.attempts == 1

    # The same order, said again, changes nothing.
    again = control.order(agents.order())
    await until(lambda: control.posts[-1].obeyed_seq == again.seq)
    assert len(stamps(stamp)) == 1

    agents.engine(stamp=str(stamp))
    control.order(agents.order(attempt=1))

    r = await control.sees(Phase.READY)
    assert (len(stamps(stamp)), r.attempts, r.dossier) == (2, 1, None)


async def test_what_fails_is_added_to_what_control_counted_before(agents, control):
    # The try is a new generation, and control may have lost its memory meanwhile.
    agents.engine(exit_message="error: broken")
    control.order(agents.order(generation=4, attempt=3))
    await agents.start()

    assert (await control.sees(Phase.FAILED, generation=4)).attempts == 4


async def test_failures_are_forgiven_once_it_has_been_ready_for_long(agents, control, monkeypatch):
    monkeypatch.setattr("llmgw_agent.replica.FORGIVEN_AFTER_S", 0.3)
    agents.engine(exit_message="error: broken")
    control.order(agents.order())
    await agents.start()
    await control.sees(Phase.FAILED)
    agents.engine()

    control.order(agents.order(attempt=1))

    await control.sees(Phase.READY)
    await until(lambda: control.replica("m/cpu/0").attempts == 0)


async def test_vo8_the_last_starts_are_kept_with_their_class(agents, control, monkeypatch):
    monkeypatch.setattr("llmgw_agent.logs.KEEP_STARTS", 2)  # five, elsewhere
    agents.engine(exit_message="error: start 0")
    control.order(agents.order())
    await agents.start()
    await control.sees(Phase.FAILED)

    for attempt in range(1, 4):
        agents.engine(exit_message=f"error: start {attempt}")
        control.order(agents.order(attempt=attempt))
        await until(lambda n=attempt: (r := control.replica("m/cpu/0")) and r.attempts == n + 1)
        await control.sees(Phase.FAILED)

    logs = sorted(agents.settings.state.glob("logs/*/*.log"))
    assert [log.read_text().strip() for log in logs] == [f"error: start {n}" for n in range(2, 4)]
    kept = [msgspec.json.decode(log.with_suffix(".json").read_bytes(), type=Dossier) for log in logs]
    assert [(d.cause, d.attempt) for d in kept] == [("exited", n) for n in range(3, 5)]


async def test_what_failed_is_reported_until_it_is_ordered_no_more(agents, control):
    agents.engine(exit_message="error: broken")
    control.order(agents.order())
    await agents.start()
    await control.sees(Phase.FAILED)

    control.order()

    await control.misses()


async def test_a_port_that_a_stranger_takes_first_is_left_to_it(agents, control, monkeypatch):
    # What happens between a port's being free and the engine's taking it: the
    # choice is right, and somebody else is quicker.
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as stranger:
        taken, chosen = stranger.getsockname()[1], []
        choose = ports.choose

        def choice(address, ours):
            chosen.append(choose(address, ours))
            return taken if len(chosen) == 1 else chosen[-1]

        monkeypatch.setattr("llmgw_agent.ports.choose", choice)
        control.order(agents.order())
        await agents.start()

        r = await control.sees(Phase.READY)

    assert (r.port, r.attempts) == (chosen[1], 0)


async def test_two_starts_at_once_never_share_a_port(agents, control, monkeypatch):
    # Some builds listen with SO_REUSEPORT: two of them on one port would both
    # come up, and each get half of the other's requests.
    choose, chosen = ports.choose, []

    def choice(address, ours):
        chosen.append(chosen[0] if len(chosen) == 1 else choose(address, ours))
        return chosen[-1]

    monkeypatch.setattr("llmgw_agent.ports.choose", choice)
    control.order(agents.order("m/cpu/0"), agents.order("m/cpu/1"))
    await agents.start()

    first, second = await control.sees(Phase.READY, "m/cpu/0"), await control.sees(Phase.READY, "m/cpu/1")

    assert first.port != second.port
    assert len(list(agents.settings.state.glob("logs/*/*.log"))) == 2  # neither had to be started twice


async def test_an_address_of_another_machine_is_said(agents, control):
    orders = control.order(agents.order())
    control.orders = msgspec.structs.replace(orders, address="192.0.2.1")
    await agents.start()

    r = await control.sees(Phase.FAILED)

    assert r.dossier.cause == "port"
    assert "server.yaml" in r.dossier.message


async def test_memory_it_takes_is_reported(agents, control):
    agents.engine(claim_bytes=200 << 20)
    control.order(agents.order())
    await agents.start()

    r = await control.sees(Phase.READY)

    assert 200 << 20 <= r.memory_bytes <= 300 << 20
    assert r.memory_peak_bytes >= r.memory_bytes


async def test_one_broken_order_does_not_stop_the_others(agents, control):
    control.order(
        agents.order("m/a/0", engine="nonsense"),
        msgspec.structs.replace(agents.order("m/b/0"), spec=None),
        agents.order("m/c/0", model="no-such-file.gguf"),
        agents.order("../../etc/passwd\n/x/0"),
        agents.order("m/e/0", env={"LD_PRELOAD": "/x.so"}),
        agents.order("m/z/0"),
    )
    await agents.start()

    await control.sees(Phase.READY, "m/z/0")

    causes = {r.id: r.dossier.cause for r in control.report.replicas if r.dossier}
    assert causes == {"m/a/0": "engine_missing", "m/b/0": "refused", "m/c/0": "weights", "m/e/0": "refused"}
    assert {p.parent for p in agents.settings.state.glob("replicas/*")} == {agents.settings.state / "replicas"}
