"""`make mutants`: whether the tests of the core can fail.

A mutant is the core with one thing changed. Each of a sample is run against a part
of the tests that takes a few seconds; one that no test notices survives, and is
printed. Nothing is written: a mutant lives in a process of its own, which is made by
forking one that has imported everything but the core.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import settings

import llmgw.catalog.check
from bench.mutations import Mutation, mutated, mutations

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "llmgw" / "core"
TESTS = ("tests/core", "tests/sim")
SEEDS = 3
"""Of a test that is run for many seeds, the first few."""
EXAMPLES = 10
"""Of a property."""
DEADLINE_S = 60.0
"""A mutant that runs longer than this does not end: that is noticed, too."""
AT_ONCE = 2
KILLED_SHARE = 0.9


class Mutant(NamedTuple):
    """One change of one module."""

    path: Path
    mutation: Mutation

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)

    def __str__(self) -> str:
        line = self.path.read_text().splitlines()[self.mutation.line - 1].strip()
        return f"{self.path.relative_to(ROOT)}:{self.mutation.line}: {self.mutation.words}: {line}"


class _Instead(MetaPathFinder, Loader):
    """Gives the mutated module in place of the one on disk."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        return spec_from_loader(name, self, origin=str(self._mutant.path)) if name == self._mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        path = self._mutant.path
        module.__file__ = str(path)
        exec(compile(mutated(path.read_text(), self._mutant.mutation), str(path), "exec"), module.__dict__)


class _Few:
    """The part of the tests that a mutant is run against: quick ones first."""

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        def cost(item: pytest.Function) -> tuple[bool, int]:
            long = any(item.get_closest_marker(mark) for mark in ("hypothesis", "sim"))
            return long, item.callspec.params.get("seed", -1) if hasattr(item, "callspec") else -1

        items[:] = sorted((i for i in items if cost(i)[1] < SEEDS), key=cost)


def main() -> int:
    """Run a sample, and say what survived."""
    words = argparse.ArgumentParser(prog="python -m bench.mutants", description=__doc__)
    words.add_argument("--sample", type=int, default=300)
    words.add_argument("--seed", type=int, default=1)
    flags = words.parse_args()
    assert llmgw.catalog.check, "what no mutant changes is imported once for all of them"
    assert not [m for m in sys.modules if m.startswith("llmgw.core")], "the core is imported before it is changed"
    os.chdir(ROOT)
    began = time.monotonic()
    if os.waitstatus_to_exitcode(os.waitpid(_fork(None), 0)[1]) != 0:
        print("the tests fail without any change, so nothing can be said of mutants")
        return 1
    print(f"without a change the tests take {time.monotonic() - began:.1f} s", flush=True)
    every = [Mutant(path, m) for path in sorted(CORE.glob("*.py")) for m in mutations(path.read_text())]
    sample = Random(flags.seed).sample(every, min(flags.sample, len(every)))
    survivors = []
    for mutant, killed in _run(sample):
        if not killed:
            survivors.append(mutant)
            print(f"survived  {mutant}", flush=True)
    dead = len(sample) - len(survivors)
    print(f"{dead} of {len(sample)} killed, of {len(every)} there are, in {time.monotonic() - began:.0f} s")
    return 0 if dead >= KILLED_SHARE * len(sample) else 1


def _run(sample: Sequence[Mutant]) -> Iterator[tuple[Mutant, bool]]:
    """Each with whether a test noticed it, two at a time."""
    waiting = list(reversed(sample))
    running: dict[int, tuple[Mutant, float]] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            mutant = waiting.pop()
            running[_fork(mutant)] = (mutant, time.monotonic())
        for pid, (mutant, since) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = not ended and time.monotonic() - since > DEADLINE_S
            if late:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if ended or late:
                del running[pid]
                yield mutant, late or os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.02)


def _fork(mutant: Mutant | None) -> int:
    """Run the tests on a mutant in a process of its own, and say which."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        if mutant is not None:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            sys.meta_path.insert(0, _Instead(mutant))
        code = _tests()
    finally:
        sys.stdout.flush()  # what is printed here is not, where a process ends like this
        os._exit(code)


def _tests() -> int:
    settings.register_profile("few", max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    os.environ["HYPOTHESIS_PROFILE"] = "few"
    # Hypothesis is imported before pytest could rewrite its asserts, which is meant.
    quiet = ("-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider")
    return int(pytest.main(["-x", "-q", *quiet, *TESTS], plugins=[_Few()]))


if __name__ == "__main__":
    sys.exit(main())
