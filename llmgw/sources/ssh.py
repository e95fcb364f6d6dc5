"""git over the ssh program: with a deadline, and with a stderr that never fills up.

The library's own way has no timeout, and waits for ever once a server has
written 64 KiB of errors that nobody reads.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from dulwich.client import SSHVendor, SubprocessWrapper
from dulwich.errors import GitProtocolError

from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources.access import Access
from llmgw.sources.wire import said

SAID_BYTES = 64 * 1024
"""Of what a server writes for people, the end is read."""
ENDING_S = 5.0
"""Until a process that was told to end is ended."""

BROKEN = (OperatorError, GitProtocolError, AssertionError, IndexError, KeyError, OSError, ValueError)
"""What a pipe that ends in the middle of an answer is to the library."""


class Address(NamedTuple):
    """Where a repository is, as ssh wants it."""

    user: str | None
    host: str
    port: int | None
    path: str


def address(url: str) -> Address | None:
    """What an ssh address says: `ssh://git@host:22/path`, or `git@host:path`. None: it is another kind.

    Raises:
        Refused: it carries a password, or names no host or path.
    """
    if "://" not in url:
        short = re.fullmatch(r"(?:(?P<user>[^@/:]+)@)?(?P<host>[^@/:]+|\[[^\]/]+\]):(?P<path>[^/].*|/.*)", url)
        if short is None:
            return None
        return _checked(Address(short["user"], short["host"].strip("[]"), None, short["path"]), url)
    parts = urlsplit(url)
    if parts.scheme not in ("ssh", "git+ssh"):
        return None
    if parts.password is not None:
        raise Refused(
            "the repository's address carries a password",
            why="addresses end in logs, in errors and in the status",
            do="use a key: --git-ssh-key-file",
        )
    user = unquote(parts.username) if parts.username else None
    return _checked(Address(user, parts.hostname or "", parts.port, unquote(parts.path)), url)


def _checked(at: Address, url: str) -> Address:
    # A name that begins with a dash would be an option to ssh, and run what it says.
    odd = any(part.startswith("-") or not part.isprintable() for part in (at.user or "", at.host, at.path))
    if not at.host or at.path in ("", "/") or odd:
        raise Refused(
            f"{url!r} is no address of a repository",
            why="ssh needs a host and a path there, and neither may begin with a dash",
            do="write it as ssh://git@HOST/PATH",
        )
    return at


class Ssh(SSHVendor):
    """Runs ssh for the library, and says what went wrong."""

    def __init__(self, at: Address, access: Access) -> None:
        self.at = at
        host = f"[{at.host}]" if ":" in at.host else at.host
        self.shown = f"ssh://{host}{f':{at.port}' if at.port else ''}/{at.path.removeprefix('/')}"
        self._access = access
        self._children: list[subprocess.Popen[bytes]] = []
        self._errors: IO[bytes] | None = None
        self._cut = threading.Event()

    def run_command(
        self, host: str, command: bytes, *_: Any, protocol_version: int | None = None, **__: Any
    ) -> SubprocessWrapper:
        """Start it, in a session of its own."""
        assert self._errors is not None
        options = [word for option in self._options(protocol_version) for word in ("-o", option)]
        port = ["-p", str(self.at.port)] if self.at.port else []
        key = ["-i", str(self._access.ssh_key_file)] if self._access.ssh_key_file else []
        user = f"{self.at.user}@" if self.at.user else ""
        words: list[str | bytes] = ["ssh", "-x", *options, *port, *key, "--", f"{user}{host}", command]
        try:
            child = subprocess.Popen(
                words,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Refused(
                f"{self.shown} cannot be reached",
                why="there is no ssh on this machine",
                do="install openssh-client, or use the repository's https address",
            ) from None
        self._children.append(child)
        return _Pipes(child)

    @contextmanager
    def within(self) -> Iterator[None]:
        """One exchange: whatever runs is ended after its time, and what ssh wrote becomes a sentence."""
        self._cut.clear()
        timer = threading.Timer(self._access.limits.total_s, self._hang_up)
        timer.daemon = True
        with TemporaryFile() as errors:
            self._errors = errors
            timer.start()
            try:
                yield
            except BROKEN as e:
                self._end()
                raise self._sentence(e, errors) from None
            finally:
                timer.cancel()
                timer.join()
                self._end()

    def close(self) -> None:
        """End what runs."""
        self._end()

    def _options(self, protocol_version: int | None) -> Iterator[str]:
        yield "BatchMode=yes"
        yield f"ConnectTimeout={max(1, round(self._access.limits.connect_s))}"
        yield "ServerAliveInterval=10"
        yield "ServerAliveCountMax=3"
        yield "StrictHostKeyChecking=yes"
        if self._access.known_hosts_file:
            yield f'UserKnownHostsFile="{self._access.known_hosts_file}"'
            yield "GlobalKnownHostsFile=/dev/null"
        if self._access.ssh_key_file:
            yield "IdentitiesOnly=yes"
        if protocol_version:
            yield f"SetEnv=GIT_PROTOCOL=version={protocol_version}"

    def _hang_up(self) -> None:
        self._cut.set()
        for child in self._children:
            _kill(child)

    def _end(self) -> None:
        while self._children:
            child = self._children.pop()
            for pipe in (child.stdin, child.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
            try:
                child.wait(timeout=ENDING_S if not self._cut.is_set() else 0.5)
            except subprocess.TimeoutExpired:
                _kill(child)
                child.wait()

    def _sentence(self, error: BaseException, errors: IO[bytes]) -> BaseException:
        if self._cut.is_set():
            return Unreachable(
                f"{self.shown} cannot be reached",
                why=f"it did not finish within {self._access.limits.total_s:.0f} s",
                do="check the network between here and there",
            )
        if isinstance(error, OperatorError):
            return error
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - SAID_BYTES))
        text = errors.read().decode("utf-8", "replace")
        for sign, kind, why, do in _SIGNS:
            if re.search(sign, text, re.IGNORECASE):
                return kind(f"{self.shown} cannot be reached", why=why, do=do)
        if not text.strip() and not isinstance(error, OSError):
            return error
        return Unreachable(
            f"{self.shown} cannot be reached",
            why=said([text.strip().encode()]) or "the connection broke",
            do="nothing: it is tried again",
        )


_SIGNS: tuple[tuple[str, type[Refused | Unreachable], str, str], ...] = (
    (
        "host key verification failed|host identification has changed|no .* host key is known",
        Refused,
        "the key of its host is not the one that is known here, or none is",
        "ask its owner for the host's key, and write it into the file of --git-known-hosts (ssh-keyscan shows one)",
    ),
    (
        "permission denied|too many authentication failures",
        Refused,
        "its host does not know our key, or the key may not do this",
        "give --git-ssh-key-file the private key whose public half is registered there",
    ),
    (
        "does not appear to be a git repository|repository not found|could not be found|not exported",
        Refused,
        "there is no such repository, or our key may not see it",
        "check the address, and what the key may see",
    ),
    ("could not resolve hostname", Unreachable, "its name cannot be resolved", "check the host's name and DNS"),
    ("connection refused", Unreachable, "nothing answers at its address", "check that its ssh server runs"),
    ("timed out|no route to host|unreachable", Unreachable, "no connection in time", "check the network to there"),
)
"""What ssh and git servers write, and what it means."""


class _Pipes(SubprocessWrapper):
    """A process as the library reads and writes it. What it says on stderr is in a file."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        super().__init__(child)
        assert child.stdin is not None
        assert child.stdout is not None
        self._out, self._in = child.stdout, child.stdin
        self.write = self._write  # type: ignore[assignment]

    def close(self, timeout: int | None = None) -> None:
        """Say that nothing more comes. Whoever began the exchange ends the process."""
        del timeout
        for pipe in (self._in, self._out):
            with suppress(OSError):
                pipe.close()

    def _write(self, data: bytes) -> int:
        # An unbuffered pipe may take a part of it.
        left = memoryview(data)
        while left:
            left = left[self._in.write(left) :]
        return len(data)


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
