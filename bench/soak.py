"""`make soak`: many simulated fleets of every kind, to the end, in two processes.

`make test` plays a few of them. Each is made by its kind and its seed alone, so that one
that failed is played again by `make soak SEED=…`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from scenarios import ALL, play

SEEDS = 500
PASSES = 200
AT_ONCE = 2
LINES = 20
"""Of failures that are printed whole."""

MISHAPS = {
    "out of date": "a fingerprint that changes",
    "on a drained node or card": "a node or a card that is drained",
    "makes room in place": "no room for a successor",
    "its successor starts in its place": "a rollout in place by the file",
    "gives way to": "a class that takes another's room",
    "its last good form comes back": "a form that does not come up",
    "is not asked for any more": "a model or a profile that is gone",
    "nothing is asked of": "a node that is silent",
    "it is lost": "a node past its grace",
    "is parked after failing": "what fails too often",
    "the quota of": "a quota that is full",
    "xid 79": "a card that broke",
    "held by others": "a card that another program uses",
    "of disk short": "a node's disk that is full",
    "the mirror's disk has no room": "a mirror's disk that is full",
    "it makes room for": "a version that goes before its time",
    "the mirror cannot be reached": "a mirror that cannot be reached",
    "the source did not answer": "a source that does not answer",
    "a file of the catalog that cannot be read": "a file that is broken",
    "goes first in": "a change that many models share",
    "since control started": "control that lost its memory",
}
"""What has to be met somewhere on the way, by the words that are said of it."""


class Played(NamedTuple):
    """One fleet that was played."""

    failure: str
    """Empty: it went well."""
    met: frozenset[str]
    """Mishaps, by the words that are said of them."""
    cpu_s: float


def one(job: tuple[str, int, int]) -> Played:
    """Play one fleet: its kind, its seed and its passes."""
    name, seed, passes = job
    began = time.process_time()
    failure, said = "", set()
    try:
        said = play(next(s for s in ALL if s.name == name), seed, passes=passes).said
    except AssertionError as e:
        failure = str(e)
    except Exception as e:  # noqa: BLE001  a fleet that cannot be decided is a failure of that fleet
        failure = f"{name}, seed {seed}: {e!r}"
    met = frozenset(words for words in MISHAPS if any(words in text for text in said))
    return Played(failure, met, time.process_time() - began)


def main() -> int:
    """Play them all, and say in one line how it went."""
    words = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    words.add_argument("--seeds", type=int, default=SEEDS, help="fleets of each kind")
    words.add_argument("--passes", type=int, default=PASSES)
    words.add_argument("--seed", type=int, help="this one only")
    words.add_argument("--kind", choices=[s.name for s in ALL])
    flags = words.parse_args()
    seeds: Iterable[int] = range(flags.seeds) if flags.seed is None else (flags.seed,)
    kinds = [s.name for s in ALL if flags.kind in (None, s.name)]
    jobs = [(kind, seed, flags.passes) for seed in seeds for kind in kinds]
    os.nice(10)  # hours of a machine that others work on
    played = list(_all(jobs))
    failures = [p.failure for p in played if p.failure]
    for failure in failures[:LINES]:
        print(failure)
    missed = [] if flags.seed is not None else [m for w, m in MISHAPS.items() if not any(w in p.met for p in played)]
    if missed and not flags.kind:
        print(f"never met: {', '.join(missed)}")
    spent = sum(p.cpu_s for p in played)
    print(
        f"{len(jobs):,} fleets, {len(jobs) * flags.passes:,} passes, {spent:.0f} s of CPU: {len(failures)} failed"
        + (f" (one of them again: make soak SEED={_seed(failures[0])})" if failures else "")
    )
    return 1 if failures or (missed and not flags.kind) else 0


def _all(jobs: list[tuple[str, int, int]]) -> Iterator[Played]:
    if len(jobs) <= len(ALL):
        yield from map(one, jobs)
        return
    with ProcessPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(one, jobs, chunksize=5)


def _seed(failure: str) -> str:
    return failure.partition("seed ")[2].partition(",")[0].partition(":")[0]


if __name__ == "__main__":
    sys.exit(main())
