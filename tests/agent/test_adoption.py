"""An agent that ends, however, and another that takes its place: engines go on, and nothing is started twice."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from fakes.waiting import until
from llmgw_agent import process
from llmgw_agent.protocol import Phase
from llmgw_agent.records import Record
from llmgw_agent.supervisor import State


def record_of(agents) -> tuple[Path, Record]:
    (file,) = agents.settings.state.glob("replicas/*/record.json")
    return file, msgspec.json.decode(file.read_bytes(), type=Record)


def rewrite(agents, **changes) -> None:
    """The record as another past would have left it."""
    file, record = record_of(agents)
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, **changes)))


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def again(agents, control, **changes) -> None:
    """The agent ends and starts anew."""
    await agents.stop()
    control.report = None
    await agents.start(**changes)


@pytest.fixture
async def program(agents):
    """The agent as a process of its own, as it is in life: started, killed, started."""
    started: list[asyncio.subprocess.Process] = []

    async def start(*more: str) -> asyncio.subprocess.Process:
        s = agents.settings
        (s.state.parent / "allow.toml").write_text(f'allow = ["path:{s.state.parent}"]')
        words = ["--control", s.control, "--node", s.node, "--key-file", s.key_file, "--state", s.state]
        words += ["--engine-path", agents.engines, "--allow-file", s.state.parent / "allow.toml"]
        one = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llmgw_agent", *map(str, words), "--reserve-gib", "0", *more),
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(one)
        return one

    yield start
    for one in started:
        with suppress(ProcessLookupError):
            one.kill()
        await one.communicate()


async def test_an_agent_killed_at_once_is_followed_by_one_that_adopts_the_same_process(agents, control, program):
    control.order(agents.order())
    first = await program()
    before = await control.sees(Phase.READY)
    first.kill()
    await first.wait()
    assert runs(before.pid)
    control.report = None

    await program()

    after = await control.sees(Phase.READY)
    assert (after.pid, after.port, after.key, after.fingerprint) == (before.pid, before.port, before.key, "f1")
    assert after.started_age_s >= before.started_age_s


async def test_sigterm_leaves_the_engines_running(agents, control, program):
    control.order(agents.order())
    agent = await program()
    r = await control.sees(Phase.READY)

    agent.terminate()

    assert await asyncio.wait_for(agent.wait(), 10) == 0
    assert runs(r.pid)


async def test_the_end_of_an_adopted_engine_is_noticed_and_told(agents, control):
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    await again(agents, control)
    await control.sees(Phase.READY)

    os.kill(r.pid, signal.SIGKILL)

    failed = await control.sees(Phase.FAILED)
    assert failed.dossier.cause == "exited"
    assert failed.dossier.exit_code is None  # only a parent is told how


async def test_an_engine_that_ended_while_no_agent_ran_has_failed(agents, control, tmp_path):
    agents.engine(leak_child=str(tmp_path / "child"))
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    await agents.stop()
    os.kill(r.pid, signal.SIGKILL)
    await until(lambda: not runs(r.pid))
    control.report = None

    await agents.start()

    failed = await control.sees(Phase.FAILED)
    assert failed.attempts == 1
    # Case 31: its worker, in a session of its own, is ended before anything else starts.
    assert agents.processes() == {}


@pytest.mark.parametrize("what", ["another start", "another marker"])
async def test_a_process_that_is_not_provably_ours_is_neither_adopted_nor_ended(agents, control, what):
    # Case 32: the number of an engine that ended belongs to somebody else now.
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    await agents.stop()
    os.kill(r.pid, signal.SIGKILL)
    await until(lambda: not runs(r.pid))
    stranger = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    _, record = record_of(agents)
    ticks = process.start_ticks(stranger.pid) + (1 if what == "another start" else 0)
    identity = process.Identity(stranger.pid, ticks, record.started.marker)
    rewrite(agents, started=msgspec.structs.replace(record.started, process=identity))
    control.report = None

    await agents.start()

    failed = await control.sees(Phase.FAILED)
    assert failed.pid is None
    assert runs(stranger.pid)
    stranger.kill()
    await stranger.wait()


async def test_after_a_boot_nothing_is_adopted_and_fresh_orders_start_it(agents, control):
    control.order(agents.order())
    await agents.start()
    before = await control.sees(Phase.READY)
    await agents.stop()
    os.kill(before.pid, signal.SIGKILL)
    rewrite(agents, boot="another-boot", attempts=2)
    control.report = None

    await agents.start()

    after = await control.sees(Phase.READY)
    assert after.pid != before.pid
    assert after.attempts == 2


async def test_an_engine_without_a_record_is_ended_at_the_start(agents, control):
    # The agent was killed between making a process and writing its number down.
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    await agents.stop()
    _, record = record_of(agents)
    rewrite(agents, state=State.STARTING, started=msgspec.structs.replace(record.started, process=None))
    control.report = None

    await agents.start()

    await until(lambda: not runs(r.pid))
    assert (await control.sees(Phase.READY)).pid != r.pid
    assert len(agents.processes()) == 1


DAMAGE = {
    "noise": lambda record: bytes(range(256)),
    "cut off": lambda record: record[:50],
    "empty": lambda record: b"",
    "nested": lambda record: b'{"order":' + b"[" * 100_000,
    "a state it is not in": lambda record: record.replace(b'"state":"ready"', b'"state":"failed"'),
    "gone": None,
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_an_engine_whose_record_is_damaged_is_kept(agents, control, damage):
    control.order(agents.order("m/a/0"), agents.order("m/b/0"))
    await agents.start()
    before = await control.sees(Phase.READY, "m/a/0")
    other = await control.sees(Phase.READY, "m/b/0")
    await agents.stop()
    file = next(agents.settings.state.glob("replicas/m%2Fa*/record.json"))
    if change := DAMAGE[damage]:
        file.write_bytes(change(file.read_bytes()))
    else:
        file.unlink()
    control.report = None

    await agents.start()

    after = await control.sees(Phase.READY, "m/a/0")
    known = msgspec.structs.replace(before, **{n: getattr(after, n) for n in ("age_s", "started_age_s", "tps", "busy")})
    known = msgspec.structs.replace(known, memory_bytes=after.memory_bytes, memory_peak_bytes=after.memory_peak_bytes)
    # All of it is as it was, but that nobody can say any more what it was started as.
    assert after == msgspec.structs.replace(known, fingerprint="f1" if damage.startswith("a state") else "")
    assert (await control.sees(Phase.READY, "m/b/0")).pid == other.pid
    assert set(agents.processes()) == {before.pid, other.pid}
    # What it is now is on disk again, and another agent finds it so.
    await again(agents, control)
    assert (await control.sees(Phase.READY, "m/a/0")).pid == before.pid


async def test_an_engine_without_record_and_orders_is_told_by_its_command_line(agents, control):
    control.order(agents.order(parallel=3, devices=("GPU-1",)))
    await agents.start()
    before = await control.sees(Phase.READY)
    await agents.stop()
    await control.down()
    shutil.rmtree(agents.settings.state)
    agents.settings.state.mkdir()

    node = await agents.start()

    (after,) = node.report().replicas
    assert (after.id, after.generation, after.pid, after.port) == (
        before.id,
        before.generation,
        before.pid,
        before.port,
    )
    assert (after.phase, after.engine, after.parallel, after.devices) == (Phase.READY, "llamacpp", 3, ("GPU-1",))
    assert after.claim.memory_bytes > 1 << 20  # what it takes: what it was to take is not known
    assert (after.fingerprint, after.key) == ("", "")


async def test_an_engine_whose_key_is_lost_for_good_is_started_again_once_that_is_ordered(agents, control):
    # It refuses every request, and would do so as long as it is kept.
    control.order(agents.order(drain_timeout_s=0.5))
    await agents.start()
    before = await control.sees(Phase.READY)
    await agents.stop()
    shutil.rmtree(agents.settings.state / "replicas")
    control.report = None

    await agents.start()

    await until(lambda: (r := control.replica("m/cpu/0")) and r.phase is Phase.READY and r.key)
    after = await control.sees(Phase.READY)
    assert (after.attempts, after.key != before.key) == (0, True)
    assert list(agents.processes()) == [after.pid]


async def test_an_engine_without_a_record_that_is_not_ordered_any_more_is_drained(agents, control):
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    await agents.stop()
    record_of(agents)[0].unlink()
    control.order()

    await agents.start()

    await until(lambda: not runs(r.pid))


async def test_what_an_ended_engine_left_behind_is_ended_also_without_a_record(agents, control, tmp_path):
    agents.engine(leak_child=str(tmp_path / "child"))
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    child = int((tmp_path / "child").read_text())
    await agents.stop()
    record_of(agents)[0].unlink()
    os.kill(r.pid, signal.SIGKILL)
    await until(lambda: not runs(r.pid))
    await control.down()

    await agents.start()

    await until(lambda: not runs(child))


async def test_what_a_record_says_to_be_ended_is_ended(agents, control):
    # The kernel did not let go of it, and has since.
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    await agents.stop()
    rewrite(agents, state=State.FAILED, started=None)
    await control.down()

    await agents.start()

    await until(lambda: not runs(r.pid))


async def test_what_is_removed_while_the_agent_runs_is_written_anew(agents, control, monkeypatch):
    monkeypatch.setattr("llmgw_agent.node.DISK_EVERY_S", 0.1)
    control.order(agents.order())
    await agents.start()
    before = await control.sees(Phase.READY)
    file, record = record_of(agents)
    state = agents.settings.state
    parts = [file, file.with_name("key"), state / "orders.json"]

    for remove in (lambda: shutil.rmtree(state), *(part.unlink for part in parts)):
        remove()
        await until(lambda: all(part.exists() for part in (*parts, state / "agent.pid")))

    assert record_of(agents)[1] == record
    await again(agents, control)
    after = await control.sees(Phase.READY)
    assert (after.pid, after.key, after.fingerprint) == (before.pid, before.key, "f1")
    assert (state / "agent.pid").stat().st_mode & 0o777 == 0o600


async def test_what_a_full_disk_did_not_take_is_written_once_it_does(agents, control, monkeypatch):
    monkeypatch.setattr("llmgw_agent.node.DISK_EVERY_S", 0.1)
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    (replica,) = agents.node.replicas.values()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("llmgw_agent.durable.write", full)
        replica.attempts = 7
        replica.save()
    assert record_of(agents)[1].attempts == 0

    await until(lambda: record_of(agents)[1].attempts == 7)
    assert runs(r.pid)


async def test_of_two_agents_after_the_folder_was_removed_the_first_ends_and_no_engine(agents, control, program):
    control.order(agents.order())
    first = await program("--stop-engines")
    r = await control.sees(Phase.READY)
    first.send_signal(signal.SIGSTOP)  # so that it is not the quicker of the two
    shutil.rmtree(agents.settings.state)
    second = await program()
    pid = agents.settings.state / "agent.pid"
    await until(lambda: pid.exists() and pid.read_text() == f"{second.pid}\n")
    first.send_signal(signal.SIGCONT)

    _, said = await asyncio.wait_for(first.communicate(), 30)

    assert first.returncode == 4
    assert b"another agent runs on it" in said
    assert b"Traceback" not in said
    assert second.returncode is None
    assert runs(r.pid)
    assert list(agents.processes()) == [r.pid]


async def test_a_disk_that_takes_nothing_ends_no_agent_and_no_engine(agents, control, monkeypatch):
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    await agents.stop()
    record_of(agents)[0].write_text('{"half": ')

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for what in ("pathlib.Path.replace", "llmgw_agent.durable.write", "os.ftruncate", "os.pwrite"):
        monkeypatch.setattr(what, read_only)

    node = await agents.start()

    assert [replica.pid for replica in node.report().replicas] == [r.pid]
    monkeypatch.undo()


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00garbage", b"", None, b"a\r\nkey"])
async def test_a_damaged_key_is_told_from_the_record(agents, control, damage):
    control.order(agents.order())
    await agents.start()
    before = await control.sees(Phase.READY)
    await agents.stop()
    key = record_of(agents)[0].with_name("key")
    key.unlink() if damage is None else key.write_bytes(damage)
    control.report = None

    await agents.start()

    after = await control.sees(Phase.READY)
    assert (after.pid, after.key) == (before.pid, before.key)


async def test_a_record_of_an_engine_this_agent_does_not_know_ends_no_agent(agents, control):
    control.order(agents.order())
    await agents.start()
    r = await control.sees(Phase.READY)
    await agents.stop()
    _, record = record_of(agents)
    order = msgspec.structs.replace(record.order, spec=msgspec.structs.replace(record.order.spec, engine="later"))
    rewrite(agents, order=order, started=msgspec.structs.replace(record.started, order=order))
    os.kill(r.pid, signal.SIGKILL)
    await until(lambda: not runs(r.pid))
    control.report = None

    await agents.start()

    assert (await control.sees(Phase.FAILED)).dossier.cause == "exited"


async def test_without_control_what_runs_is_kept_and_nothing_is_started(agents, control, tmp_path):
    # The cached orders name four: one runs, one has failed, one never came to be
    # here, and one ran before the machine booted.
    control.order(*(agents.order(f"m/{which}/0") for which in "acd"), agents.order("m/b/0", model="missing.gguf"))
    await agents.start()
    kept = await control.sees(Phase.READY, "m/a/0")
    await control.sees(Phase.FAILED, "m/b/0")
    await control.sees(Phase.READY, "m/c/0")
    await control.sees(Phase.READY, "m/d/0")
    await agents.stop()
    await control.down()
    for which in "cd":
        (file,) = agents.settings.state.glob(f"replicas/m%2F{which}*/record.json")
        record = msgspec.json.decode(file.read_bytes(), type=Record)
        os.kill(record.started.process.pid, signal.SIGKILL)
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, boot="another-boot")))
    file.with_name("record.json").replace(tmp_path / "d")

    node = await agents.start()

    phases = {r.id: r.phase for r in node.report().replicas}
    assert phases == {"m/a/0": Phase.READY, "m/b/0": Phase.FAILED, "m/c/0": Phase.STOPPED}
    assert node.replicas["m/a/0", 1].process.pid == kept.pid
    assert (agents.settings.state / "orders.json").stat().st_mode & 0o777 == 0o600


async def test_ds6_a_lost_link_changes_nothing_and_its_return_finds_the_same_process(agents, control):
    control.order(agents.order())
    node = await agents.start()
    before = await control.sees(Phase.READY)

    await control.down()
    await until(lambda: node.report().replicas[0].phase is Phase.READY)
    control.report = None
    await control.up()

    after = await control.sees(Phase.READY)
    assert after.pid == before.pid


async def test_gs6_what_a_commit_removed_while_the_link_was_cut_is_gone_on_return(agents, control):
    control.order(agents.order(generation=1))
    await agents.start()
    old = await control.sees(Phase.READY)
    await control.down()

    control.order(agents.order(generation=2))
    await control.up()

    new = await control.sees(Phase.READY, generation=2)
    await control.misses(generation=1)
    assert list(agents.processes()) == [new.pid]
    assert not runs(old.pid)


async def test_orders_of_an_earlier_epoch_are_refused_also_after_a_restart(agents, control):
    control.order(agents.order(), epoch=7)
    await agents.start()
    before = await control.sees(Phase.READY)
    await agents.stop()
    calls = len(control.posts)
    control.order(epoch=6)  # an older control that comes back and knows of nothing

    await agents.start()

    await until(lambda: len(control.posts) > calls)
    assert control.posts[-1].obeyed_epoch == 7
    assert agents.node.report().replicas[0].pid == before.pid
    assert runs(before.pid)


async def test_a_drain_begun_by_one_agent_is_finished_by_the_next(agents, control, tmp_path):
    agents.engine(token_ms=20, tokens=200)
    control.order(agents.order(drain_timeout_s=60))
    await agents.start()
    r = await control.sees(Phase.READY)
    reader, writer = await asyncio.open_connection("127.0.0.1", r.port)
    body = b'{"prompt": "a", "stream": true}'
    head = f"POST /v1/completions HTTP/1.1\r\nAuthorization: Bearer {r.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await reader.readuntil(b"data:")
    control.order()
    await control.sees(Phase.DRAINING)

    await again(agents, control)

    await control.sees(Phase.DRAINING)
    assert runs(r.pid)
    rest = await reader.read()
    assert b"[DONE]" in rest
    writer.close()
    await control.misses()
    assert not runs(r.pid)


async def test_two_agents_on_one_state_folder_are_one_too_many(agents, program):
    await program()
    await until((agents.settings.state / "agent.pid").exists)

    second = await program()

    _, said = await asyncio.wait_for(second.communicate(), 10)
    assert second.returncode == 4
    assert b"is in use" in said
    assert b"Traceback" not in said
