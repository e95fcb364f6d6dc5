"""The whole process on the CPU: the real engine with the small model, and the most memory it had."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from bench.fidelity.points import OnDisk
from bench.fidelity.rows import Line, relative
from llmgw.cli.demo import model_file
from llmgw.planning.gguf import read_header
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.memory import estimate
from llmgw.units import MIB

CONTEXTS = (512, 2048, 4096, 8192)
SLOTS = (1, 2, 4)
CACHES = ("f16", "q8_0")
STARTS_WITHIN_S = 60
ANSWERS_WITHIN_S = 120


@dataclass(frozen=True, slots=True)
class Run:
    """One run, and what was said of it before."""

    context: int
    slots: int
    cache: str
    predicted_mib: float
    peak_mib: float

    @property
    def over(self) -> float:
        return self.predicted_mib - self.peak_mib

    @property
    def ok(self) -> bool:
        return 0 <= self.over <= max(40.0, 0.08 * self.peak_mib)


def measure(context: int, slots: int, cache: str, *, tokens: int = 512) -> Run:
    """The peak of an engine that worked on a batch in one slot, and on a few words in each other.

    Args:
        context: tokens of all slots.
        slots: requests at a time.
        cache: the type of keys and values.
        tokens: of the batch; fewer leave some of the work space untouched.
    """
    model = model_file()
    shape = shape_of(read_header(OnDisk(model), tensors=True))
    options = LlamaOptions(context=context, parallel=slots, kv_type_k=cache, kv_type_v=cache)
    predicted = estimate(shape, model.stat().st_size, options).host_bytes
    with engine(model, context, slots, cache) as (pid, port):
        for slot in range(slots):
            words = min(context // slots, tokens) - 40 if slot == 0 else 8
            ask(port, "/completion", {"prompt": "word " * words, "n_predict": 4, "id_slot": slot})
        peak = peak_bytes(pid)
    return Run(context, slots, cache, predicted / MIB, peak / MIB)


@contextmanager
def engine(model: Path, context: int, slots: int, cache: str) -> Iterator[tuple[int, int]]:
    """The engine that comes as a wheel, loaded: its process and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-I", "-m", "llmgw_agent.engines.llama_server", "-m", str(model), "--port", str(port)]
    words += ["-c", str(context), "--parallel", str(slots), "-ctk", cache, "-ctv", cache]
    words += ["--cache-ram", "0", "--fit", "off", "--no-ui", "-t", "1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while ask(port, "/health") != 200:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the engine did not start with {' '.join(words)}")
            time.sleep(0.05)
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


def ask(port: int, path: str, body: object = None) -> int:
    """The status of an answer; 0 while nobody listens."""
    connection = HTTPConnection("127.0.0.1", port, timeout=ANSWERS_WITHIN_S)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
    except (OSError, HTTPException):
        return 0
    else:
        return answer.status
    finally:
        connection.close()


def peak_bytes(pid: int) -> int:
    """The most memory a process had at a time."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def process_lines() -> Iterator[Line]:
    """All of the runs."""
    runs = [measure(c, s, k) for k in CACHES for c in CONTEXTS for s in SLOTS]
    over = [run.over for run in runs]
    least = min(over)
    worst = max(runs, key=lambda run: run.over)
    yield Line(
        "whole process on the CPU, by 4 contexts, 3 slot counts and 2 cache types",
        "0 to +8 % or +40 MiB, all",
        len(runs),
        f"{least:+.1f} to {worst.over:+.1f} MiB ({relative(worst.predicted_mib, worst.peak_mib):+.1f} %)",
        all(run.ok for run in runs),
    )
