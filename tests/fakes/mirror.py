"""A mirror as a process of its own, to be killed: `python mirror.py CONFIG`, which prints where it listens."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

PROGRAM = Path(__file__).resolve()


@dataclasses.dataclass
class MirrorProcess:
    """One that runs, and its two addresses."""

    process: subprocess.Popen[str]
    base: str
    api: str

    def kill(self) -> None:
        """End it as a power cut would, but for the disk."""
        self.process.kill()
        self.process.wait(10)
        self._close()

    def stop(self, *, within_s: float) -> int:
        """Ask it to end; its exit code."""
        self.process.terminate()
        code = self.process.wait(within_s)
        self._close()
        return code

    def _close(self) -> None:
        if self.process.stdout:
            self.process.stdout.close()


def start(root: Path, *, env: dict[str, str] | None = None, **config: Any) -> MirrorProcess:
    """Start one on free ports; back once it serves.

    Raises:
        RuntimeError: it ended before that; the text is what it printed.
    """
    words = [sys.executable, str(PROGRAM), json.dumps({"root": str(root), **config})]
    process = subprocess.Popen(
        words, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if line.startswith("{"):
            at = _urls(line)
            return MirrorProcess(process, at["listen"], at["api"])
    process.wait(10)
    process.stdout.close()
    raise RuntimeError("".join(printed))


class Nursery:
    """Starts many, each within milliseconds: a process that has imported everything forks for each."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, str(PROGRAM), "--nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, root: Path, **config: Any) -> Child:
        """One more; back once it serves."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps({"root": str(root), **config}) + "\n")
        self._parent.stdin.flush()
        pid = int(self._parent.stdout.readline())
        at = {
            name: f"http://{host}:{port}" for name, (host, port) in json.loads(self._parent.stdout.readline()).items()
        }
        return Child(pid, at["listen"], at["api"], self._parent.stdout)

    def close(self) -> None:
        """End the parent; its children have ended before."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(10)
        self._parent.stdout.close()


@dataclasses.dataclass
class Child:
    """One of a nursery."""

    pid: int
    base: str
    api: str
    _said: IO[str]

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: int) -> int:
        """Its exit status, once it has ended of this signal."""
        os.kill(self.pid, number)
        return int(self._said.readline())


def _urls(line: str) -> dict[str, str]:
    return {name: f"http://{host}:{port}" for name, (host, port) in json.loads(line).items()}


def main() -> None:
    """What the process runs."""
    from llmgw.errors import OperatorError
    from llmgw.mirror.app import MirrorConfig, serve

    def run(text: str) -> int:
        _end_with_parent()
        given = json.loads(text)
        given["root"] = Path(given["root"])
        given["allow_files"] = tuple(Path(p) for p in given.get("allow_files", ()))
        if "allow_hosts" in given:
            given["allow_hosts"] = tuple(given["allow_hosts"])
        for port in ("listen", "api"):
            given[port] = tuple(given.get(port, ("127.0.0.1", 0)))
        try:
            asyncio.run(serve(MirrorConfig(**given), ready=lambda at: _say(json.dumps(at))))
        except OperatorError as e:
            _say(f"error: {e}")
            return e.code
        return 0

    _end_with_parent()
    if sys.argv[1] != "--nursery":
        sys.exit(run(sys.argv[1]))
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(run(line))
        _say(str(pid))
        _say(str(os.waitpid(pid, 0)[1]))


def _end_with_parent() -> None:
    """A test run that is killed leaves nobody behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
