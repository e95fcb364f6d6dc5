"""Processes that outlive the agent, and how one is known again for certain."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fakes.waiting import until
from llmgw_agent import process
from llmgw_agent.process import Exit, Identity, Process

PYTHON = [sys.executable, "-I", "-S", "-c"]
SLEEP = "import time; time.sleep(120)"


@pytest.fixture
def spawn(tmp_path):
    """Starts Python programs as engines are started, and leaves none behind."""
    started: list[Process] = []

    def start(program: str, marker: str | None = None) -> Process:
        marker = marker or process.new_marker("test", "m/cpu/0", 1)
        one = Process.spawn([*PYTHON, program], {}, log=tmp_path / "log", marker=marker)
        started.append(one)
        return one

    yield start
    for one in started:
        for pid in process.marked(one.identity.marker):
            process.strike(pid, one.identity.marker)
        with suppress(OSError, ChildProcessError):
            os.waitpid(one.pid, 0)
        with suppress(OSError):
            one.close()


async def printed(file: Path) -> str:
    """The first line a program printed."""
    return await until(lambda: file.read_text().endswith("\n") and file.read_text(), said="a printed line")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_an_exit_code_and_a_signal_are_told_apart(spawn):
    assert await spawn("raise SystemExit(3)").wait() == Exit(code=3)

    killed = spawn(SLEEP)
    killed.signal(signal.SIGKILL)
    assert await killed.wait() == Exit(signal=9)


async def test_what_it_prints_is_in_its_log_and_its_session_is_its_own(spawn, tmp_path):
    one = spawn("import os; print(os.getsid(0) == os.getpid(), flush=True)")

    await one.wait()

    assert (tmp_path / "log").read_text() == "True\n"


def test_a_program_that_is_not_there_is_an_error_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        Process.spawn([str(tmp_path / "nothing")], {}, log=tmp_path / "log", marker="m")


async def test_a_process_is_adopted_by_all_its_marks_and_its_end_is_noticed(spawn):
    one = spawn(SLEEP)
    await until(lambda: process.carries(one.pid, one.identity.marker))

    again = Process.adopt(one.identity)

    assert again is not None
    assert again.pid == one.pid
    one.signal(signal.SIGKILL)
    # It is not told how: only a parent is.
    assert await asyncio.wait_for(again.wait(), 5) == Exit()
    again.close()


async def test_a_stranger_with_the_same_number_is_not_adopted(spawn):
    # A number that was used again: another start, or another marker. Killing
    # by number is how nomad#23969 ended processes that were not its own.
    ours = spawn(SLEEP).identity
    await until(lambda: process.carries(ours.pid, ours.marker))

    assert Process.adopt(Identity(ours.pid, ours.ticks + 1, ours.marker)) is None
    assert Process.adopt(Identity(ours.pid, ours.ticks, process.new_marker("test", "m/cpu/0", 1))) is None
    assert Process.adopt(Identity(ours.pid, ours.ticks, ours.marker[:-1])) is None
    assert running(ours.pid)


async def test_a_process_that_is_gone_is_not_adopted(spawn):
    one = spawn("pass")
    await one.wait()

    assert Process.adopt(one.identity) is None


async def test_a_stranger_is_never_struck(spawn):
    one = spawn(SLEEP)

    process.strike(one.pid, process.new_marker("test", "m/cpu/0", 1))

    assert running(one.pid)


LEAKS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(120)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(120)
"""


async def test_vo2_a_child_in_another_session_ends_with_its_killed_parent(spawn, tmp_path):
    parent = spawn(LEAKS)
    child = int(await printed(tmp_path / "log"))
    parent.signal(signal.SIGKILL)
    await parent.wait()
    assert running(child)

    left = await process.sweep(parent.identity.marker, parent, within_s=5)

    assert left == ()
    assert not running(child)


FORKS = """
import os, time
os.environ.clear()
if os.fork() == 0:
    os.execve("/bin/sleep", ["sleep", "120"], {})
print("up", flush=True)
time.sleep(120)
"""


async def test_a_child_without_the_marker_ends_with_its_group(spawn, tmp_path):
    parent = spawn(FORKS)
    await printed(tmp_path / "log")
    (child,) = children(parent.pid)

    parent.signal(signal.SIGKILL)
    await parent.wait()

    await until(lambda: not running(child), within_s=5)


async def test_a_process_deaf_to_sigterm_is_ended_in_bounded_time(spawn, tmp_path):
    one = spawn("import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(120)")
    await printed(tmp_path / "log")

    await process.ask_to_end(one, within_s=0.2)
    assert one.exit is None
    left = await process.sweep(one.identity.marker, one, within_s=5)

    assert left == ()
    assert one.exit == Exit(signal=9)


async def test_two_may_wait_for_one_process(spawn):
    one = spawn(SLEEP)
    waiting = [asyncio.create_task(one.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()

    one.signal(signal.SIGTERM)

    assert await waiting[1] == Exit(signal=15)
