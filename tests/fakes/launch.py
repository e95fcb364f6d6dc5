"""Starts the fake engine, or puts it where an agent looks for llama-server."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from fakes import engine

PROGRAM = Path(engine.__file__).resolve()


def install(folder: Path, *, name: str = "llama-server", **faults: Any) -> Path:
    """Put it into `folder` as an executable `llama-server` with these faults.

    Written again, it changes the faults of the next start. The faults are in
    the script itself, since an agent gives its engines a bare environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = " ".join(map(shlex.quote, [sys.executable, "-I", "-S", str(PROGRAM)]))
    given = shlex.quote(json.dumps(dataclasses.asdict(engine.Faults(**faults))))
    script = folder / name
    fresh = folder / f".{name}.new"
    fresh.write_text(f'#!/bin/sh\nLLMGW_FAKE={given}\nexport LLMGW_FAKE\nexec {words} "$@"\n')
    fresh.chmod(0o755)
    fresh.replace(script)
    return script


@dataclasses.dataclass
class Running:
    """A fake that was started, and where it listens."""

    process: subprocess.Popen[str]
    url: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """End it, whatever its faults say about being asked."""
        self.process.kill()
        self.process.wait(10)
        if self.process.stderr:
            self.process.stderr.close()


def start(*flags: str, host: str = "127.0.0.1", ready: bool = True, **faults: Any) -> Running:
    """Start one on a free port; back once it has loaded, or with `ready=False` once it listens.

    Raises:
        RuntimeError: it ended before that; the text is what it printed.
    """
    words = [sys.executable, "-I", "-S", str(PROGRAM), "--host", host, "--port", "0", *flags]
    env = {"PATH": os.environ.get("PATH", ""), "LLMGW_FAKE": json.dumps(faults)}
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
    url, printed = "", []
    assert process.stderr is not None
    for line in process.stderr:
        printed.append(line)
        if "listening on " in line:
            url = line.split()[-1]
        if url and ("model loaded" in line or not ready):
            return Running(process, url)
    process.wait(10)
    process.stderr.close()
    raise RuntimeError("".join(printed))
