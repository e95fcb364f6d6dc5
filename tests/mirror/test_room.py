"""What control is told of the mirror's disk, by a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes.upstream import Upstream, gguf
from llmgw.actuators.mirror import Mirror
from llmgw.core.actions import Fetch, Remove
from llmgw.core.holdings import HoldingState
from llmgw.mirror.store import Store

DATA = gguf(1_000_000)


def test_what_was_removed_counts_until_it_is_deleted(tmp_path: Path):
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/m.gguf").write_bytes(DATA)
    store = Store(tmp_path, settle_s=0)
    store.make_folders()
    store.open()

    before, _ = store.removed_bytes(), store.remove("m/1")
    removed, _ = store.removed_bytes(), store.sweep()

    assert before == 0
    assert removed >= len(DATA)
    assert store.removed_bytes() == 0


async def test_control_sees_what_is_held_and_what_room_there_is(mirror: Any, upstream: Upstream):
    asked = Mirror(mirror.api)
    try:
        await asked.fetch(Fetch("m", "1", upstream.put("/m.gguf", DATA), None, False, "the catalog asks for it"))
        await mirror.until("present")
        seen = await asked.look()
        await asked.remove(Remove("m", "1", "it makes room for n/1"))
        after = await asked.look()
    finally:
        await asked.close()

    assert [(h.key, h.state) for h in seen.holdings] == [("m/1", HoldingState.PRESENT)]
    assert seen.disk_free_bytes > 0
    assert len(seen.boot) == 16
    # At most the journal of the fetch that has ended, which goes the same way.
    assert seen.removed_bytes < len(DATA)
    assert after.holdings == ()
