"""Every example is planned against three recorded fleets, and its plan is kept word by word.

A change of any sentence or figure of a plan is seen here in review. `make golden` writes the files anew.
"""

from __future__ import annotations

import os
import re
from hashlib import sha1
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from llmgw.cli import plan
from llmgw.cli.plan_text import plan_text
from llmgw.cli.seen import Seen
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.sources.snapshot import Blob, Snapshot, identity_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/catalog"
RECORDED = sorted((ROOT / "tests/fleets").glob("*.json"))
BESIDE = {"canary.yaml": (EXAMPLES / "catalog/cards-and-cpus.yaml",)}
"""What an example refers to."""
WRITE = "LLMGW_WRITE_GOLDEN"
"""Set, the files are written and nothing is compared."""
MONDAY_NOON = 1_798_459_200.0
"""UTC: what follows a schedule is planned as of a time that does not move."""


def snapshot(*examples: Path, whole: bool) -> Snapshot:
    """A commit with these examples and their locks; a whole one has everything of the example repository."""
    names = set(re.findall(r"^(?:- )?name: (\S+)", "\n".join(e.read_text() for e in examples), re.MULTILINE))
    locks = (p for p in (EXAMPLES / "locks").iterdir() if p.stem in names)
    paths = [EXAMPLES / "server.yaml", *examples, *locks, *((EXAMPLES / "keys").iterdir() if whole else ())]
    files = {str(p.relative_to(EXAMPLES)): p.read_bytes() for p in paths}
    blobs = {path: Blob(sha1(data).hexdigest(), data) for path, data in sorted(files.items())}
    return Snapshot("c" * 40, int(MONDAY_NOON), "Ana <ana@lab.example>", "examples", identity_of(blobs, ()), blobs, ())


def planned(fleet: Path, *examples: Path, whole: bool = False) -> str:
    """What `llmgw plan` prints, without the digest: every new version has another."""
    seen = msgspec.json.decode(fleet.read_bytes(), type=Observed)
    settled = Memory(started_at=0.0, settled=True, epoch=1)
    found = plan.foresee(snapshot(*examples, whole=whole), Seen(f"recorded fleet {fleet.stem}", None, seen, settled))
    return re.sub(r"plan [0-9a-f]{12}", "plan", plan_text(found))


@pytest.mark.parametrize("fleet", RECORDED, ids=lambda p: p.stem)
def test_every_example_is_planned_as_it_was_on_a_recorded_fleet(fleet, monkeypatch):
    monkeypatch.setattr(plan, "time", SimpleNamespace(time=lambda: MONDAY_NOON))
    examples = sorted((EXAMPLES / "catalog").glob("*.yaml"))

    each = [f"==== {e.name}\n\n{planned(fleet, e, *BESIDE.get(e.name, ()))}" for e in examples]
    text = "\n\n".join([*each, f"==== all of them\n\n{planned(fleet, *examples, whole=True)}"]) + "\n"

    golden = fleet.with_suffix(".plans.txt")
    if os.environ.get(WRITE):
        golden.write_text(text)
    assert text == golden.read_text(), "where the new words are right: make golden"


def test_the_recorded_fleets_are_a_home_lab_a_lab_of_mixed_cards_and_cpus_only():
    assert [p.stem for p in RECORDED] == ["cpus-only", "home-lab-one-card", "lab-mixed-cards"]
