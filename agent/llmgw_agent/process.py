"""Processes that outlive whoever started them, and how one is known again for certain.

A number says nothing: the kernel gives it to somebody else later. A process is
ours when the machine has not booted since, the process with its number started
at the same tick, and its environment carries the random marker it was started
with. It is then held by a pidfd, which never means another process.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from msgspec import Struct

MARK = "LLMGW_INSTANCE"
"""The variable that carries the marker. Children inherit it, other sessions included."""

SWEEP_EVERY_S = 0.05


class Identity(Struct, frozen=True):
    """What tells one process from every other, within one boot."""

    pid: int
    ticks: int
    """When it started, in clock ticks since the boot: field 22 of its stat."""
    marker: str


class Exit(Struct, frozen=True):
    """How a process ended. Both None: it was not our child, so nobody told us."""

    code: int | None = None
    signal: int | None = None


def boot_id() -> str:
    """The kernel's random name of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When the process with this number started, or None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field is a name in parentheses that may hold anything, parentheses included.
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else None


def carries(pid: int, marker: str) -> bool:
    """Whether this process was started with the marker. One that cannot be read is not ours."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={marker}".encode() in environment.split(b"\0")


def marked(prefix: str) -> dict[int, str]:
    """Every process whose marker begins with `prefix`, and that marker. Zombies are none."""
    start, found = f"{MARK}={prefix}".encode(), {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names, thousands of them, and no paths
        if not name.isdigit():
            continue
        with suppress(OSError):
            # Of the many processes of a machine nearly none is ours, so this is quick about the others.
            with open(f"/proc/{name}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - no path is made of it either
                environment = file.read()
            if start in environment:
                for word in environment.split(b"\0"):
                    if word.startswith(start):
                        found[int(name)] = word.partition(b"=")[2].decode(errors="replace")
    return found


def new_marker(owner: str, replica_id: str, generation: int) -> str:
    """A marker nobody else has.

    It begins with the agent's own id, so that its processes are found together, and
    ends with whose engine it is, so that one is known by it alone.
    """
    return f"{owner}.{secrets.token_hex(12)}.{quote(replica_id, safe='')}@{generation}"


def replica_of(marker: str) -> tuple[str, int] | None:
    """Id and generation of the replica a marker was made for. None: it does not say."""
    found = re.fullmatch(r"[^.]*\.[^.]*\.(.+)@(\d{1,18})", marker)
    return (unquote(found[1]), int(found[2])) if found else None


def command_line(pid: int) -> tuple[str, ...]:
    """The words a process was started with. Empty when there is none, or it may not be read."""
    return tuple(_words(Path(f"/proc/{pid}/cmdline")))


def environment(pid: int) -> dict[str, str]:
    """What a process was started with in its environment. Empty when there is none, or it may not be read."""
    return dict(word.split("=", 1) for word in _words(Path(f"/proc/{pid}/environ")) if "=" in word)


def output(pid: int) -> str:
    """The file a process prints to. Empty when it may not be read."""
    try:
        return str(Path(f"/proc/{pid}/fd/1").readlink())
    except OSError:
        return ""


def _words(file: Path) -> list[str]:
    try:
        return file.read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


class Process:
    """One process of ours, running or ended."""

    def __init__(self, identity: Identity, fd: int, *, child: bool) -> None:
        self.identity = identity
        self._fd = fd
        self._child = child
        self._ended: asyncio.Future[Exit] | None = None

    @classmethod
    def spawn(cls, argv: Sequence[str], env: Mapping[str, str], *, log: Path, marker: str) -> Process:
        """Start `argv` in a session of its own, with `log` as its output.

        It holds nothing of ours, so that it goes on when we end.

        Raises:
            OSError: there is no such program, or it cannot be run.
        """
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            pid = os.posix_spawn(
                argv[0],
                list(argv),
                {**env, MARK: marker},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, out, 1),
                    (os.POSIX_SPAWN_DUP2, out, 2),
                ],
                setsid=True,
                # Python ignores these, and what is ignored stays so across an exec.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        finally:
            os.close(out)
        # Not reaped yet, so the number is still this child's, even if it ended already.
        return cls(Identity(pid, start_ticks(pid) or 0, marker), os.pidfd_open(pid), child=True)

    @classmethod
    def adopt(cls, identity: Identity) -> Process | None:
        """The process `identity` speaks of, if it still runs; None when it is gone or is not provably that one."""
        try:
            # First the handle, then the proof: what is proved is then what is held.
            fd = os.pidfd_open(identity.pid)
        except OSError:
            return None
        if start_ticks(identity.pid) != identity.ticks or not carries(identity.pid, identity.marker):
            os.close(fd)
            return None
        return cls(identity, fd, child=False)

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def exit(self) -> Exit | None:
        """How it ended, once somebody waits for it and it has."""
        return self._ended.result() if self._ended and self._ended.done() else None

    async def wait(self) -> Exit:
        """How it ended, once it has."""
        if self._ended is None:
            loop = asyncio.get_running_loop()
            self._ended = loop.create_future()
            loop.add_reader(self._fd, self._reap)
        return await asyncio.shield(self._ended)

    def _reap(self) -> None:
        assert self._ended is not None
        asyncio.get_running_loop().remove_reader(self._fd)
        how = Exit()
        if self._child:
            # Until it is reaped its number is also its group's, so nobody else's group is hit.
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            how = Exit(code=code) if code >= 0 else Exit(signal=-code)
        self._ended.set_result(how)

    def signal(self, number: int) -> None:
        """Send a signal. Nothing happens when it has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Let go of it; it goes on."""
        if self._ended is not None and not self._ended.done():
            self._ended.get_loop().remove_reader(self._fd)
            self._ended.cancel()
        os.close(self._fd)


def strike(pid: int, marker: str) -> None:
    """End this process at once, if it carries the marker."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if carries(pid, marker):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


async def ask_to_end(process: Process, *, within_s: float) -> None:
    """SIGTERM, and the time to obey it. Back early when it ends."""
    process.signal(signal.SIGTERM)
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await process.wait()


async def sweep(marker: str, process: Process | None, *, within_s: float) -> tuple[int, ...]:
    """End everything that carries the marker, whatever session it moved to.

    Returns:
        What could not be ended in time: processes the kernel does not let go.
    """
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        left = {pid for pid, mark in (await asyncio.to_thread(marked, marker)).items() if mark == marker}
        if process is not None and process.exit is None:
            process.signal(signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_EVERY_S):
                    await process.wait()
            if process.exit is None:
                left.add(process.pid)
        if not left:
            return ()
        if asyncio.get_running_loop().time() >= deadline:
            return tuple(sorted(left))
        for pid in left:
            strike(pid, marker)
        await asyncio.sleep(SWEEP_EVERY_S)
