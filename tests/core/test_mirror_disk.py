"""The mirror's disk, looked at before it is asked to fetch: what fits, what is short, what goes to make room."""

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, model, moves, node, wanting
from msgspec import structs

from llmgw.catalog.lock import Lock
from llmgw.core.decide import decide
from llmgw.core.holdings import Failure, Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw_agent.protocol import WeightFile

MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082", "reserve": 10 * 10**9}
GB = 10**9


def asking(*names, size_gb=5, locked=True, **classes):
    """Models whose locks say that each has one file of this size."""
    models = [
        model(
            n,
            cpu=1,
            source={"from": f"https://hub.example/{n}.gguf", "version": "1"},
            **{"class": classes[n]} if n in classes else {},
        )
        for n in names
    ]
    wanted = wanting(*models, nodes=["n1"], mirror=MIRROR)
    entries = {n: replace(w, lock=_lock(n, size_gb * GB) if locked else None) for n, w in wanted.models.items()}
    return replace(wanted, models=entries)


def _lock(name, size):
    source = {"from": f"https://hub.example/{name}.gguf", "version": "1"}
    return Lock.model_validate({"model": name, "source": source, "files": [{"path": f"{name}.gguf", "bytes": size}]})


def kept(name, size_gb, version="1", **fields):
    """What nothing in the catalog refers to."""
    files = (WeightFile("m.gguf", int(size_gb * GB), "a" * 64),)
    return Holding(name, version, HoldingState.PRESENT, files=files, **fields)


def run(wanted, *holdings, free_gb=100.0, removed_gb=0, memory=SETTLED, now=NOW, **mirror):
    free = None if free_gb is None else int(free_gb * GB)
    seen = MirrorSeen(tuple(holdings), free, removed_bytes=int(removed_gb * GB))
    server = wanted.server.model_copy(update={"mirror": wanted.server.mirror.model_copy(update=mirror)})
    return decide(replace(wanted, server=server), Observed((node("n1"),), seen), memory, now)


def said(plan):
    return [h.sentence for h in plan.held]


def since(**ages):
    """Memory of what nothing has referred to for so many seconds."""
    return structs.replace(SETTLED, unreferenced={f"{name}/1": NOW - age for name, age in ages.items()})


def test_what_would_leave_less_than_the_reserve_is_not_asked_for_and_the_amount_is_said():
    fits, short = run(asking("m"), free_gb=15), run(asking("m"), free_gb=14)

    assert [a.why for a in fits.actions] == ["the catalog asks for it"]
    assert moves(short) == []
    assert said(short) == [
        "m: the mirror's disk has no room for its weights (1.0 GB short, of 5.0 GB; 10.0 GB stay free); "
        "free room on the mirror's disk, or lower mirror.reserve"
    ]
    assert short.held[0].stalled, "waiting makes no room"


def test_what_only_its_retention_keeps_is_named_by_size_the_oldest_first():
    holdings = kept("fresh", 3), kept("old", 2), kept("byhand", 9, origin="hand")

    plan = run(asking("m"), *holdings, free_gb=12, memory=since(fresh=10, old=20, byhand=99))

    assert moves(plan) == []
    assert [h.next for h in plan.held] == [
        "set mirror.release_for_fetch, or remove what only its retention keeps: old/1 (2.0 GB), fresh/1 (3.0 GB)"
    ]
    assert not plan.held[0].stalled, "their retention ends"


def test_with_release_for_fetch_the_oldest_goes_and_no_more_than_is_needed():
    holdings = kept("fresh", 3), kept("old", 4), kept("byhand", 9, origin="hand")
    memory = since(fresh=10, old=20, byhand=99)

    plan = run(asking("m"), *holdings, free_gb=12, memory=memory, release_for_fetch=True)

    assert moves(plan) == ["remove old/1"]
    assert [a.why for a in plan.actions] == [
        "it makes room for m/1: nothing refers to it, and mirror.release_for_fetch lets it go"
    ]
    assert said(plan) == ["m: it waits until the mirror has removed old/1, which makes room for it"]


def test_nothing_goes_for_what_would_still_not_fit():
    plan = run(asking("m"), kept("old", 2), free_gb=12, memory=since(old=20), release_for_fetch=True)

    assert moves(plan) == []
    assert [h.next for h in plan.held] == [
        "free room on the mirror's disk; what only its retention keeps is not enough: old/1 (2.0 GB)"
    ]


def test_what_is_removed_and_not_deleted_yet_is_waited_for_and_nothing_more_goes():
    holdings, memory = (kept("fresh", 3),), since(fresh=10)

    plan = run(asking("m"), *holdings, free_gb=12, removed_gb=4, memory=memory, release_for_fetch=True)

    assert moves(plan) == []
    assert said(plan) == ["m: it waits until the mirror has deleted what it removed"]


def test_what_is_referred_to_or_may_be_is_never_released():
    used = kept("used", 9)
    wanted = asking("m", "used")
    blind = replace(asking("m"), complete=False)
    gone = since(used=10**9)

    assert moves(run(wanted, used, free_gb=12, memory=gone, release_for_fetch=True)) == ["+used/cpu/0"]
    assert moves(run(blind, used, free_gb=12, memory=gone, release_for_fetch=True)) == []


def test_fetches_under_way_have_their_room():
    coming = Holding("x", "1", HoldingState.FETCHING, total_bytes=4 * GB, done_bytes=1 * GB)

    assert moves(run(asking("m"), coming, free_gb=18)) == ["fetch m/1"]
    assert moves(run(asking("m"), coming, free_gb=17.9)) == []


def test_room_goes_to_the_highest_class_and_what_is_smaller_may_still_fit():
    wanted = asking("a", "b", a="opportunistic", b="guaranteed")

    plan = run(wanted, free_gb=16)

    assert moves(plan) == ["fetch b/1"]
    assert [h.subject for h in plan.held if "no room" in h.why] == ["a"]


def test_an_unknown_size_is_said_and_left_to_the_mirror():
    plan = run(asking("m", locked=False), free_gb=11)
    full = run(asking("m", locked=False), free_gb=9)

    assert [a.why for a in plan.actions] == [
        "the catalog asks for it; its size is not known, so whether it fits is for the mirror to see"
    ]
    assert moves(full) == []
    assert said(full)[0].startswith(
        "m: the mirror's disk has no room for its weights (1.0 GB short, and its size is not known; 10.0 GB stay free)"
    )


def test_what_the_mirror_found_to_be_too_large_is_tried_again_once_there_is_room():
    failure = Failure("disk_full", "disk full, 1.0 GB short", do="free space", lasting=False)
    failed = Holding("m", "1", HoldingState.FAILED, total_bytes=6 * GB, done_bytes=2 * GB, failure=failure)
    wanted = asking("m", locked=False)
    asked = run(wanted, free_gb=13)

    short = run(wanted, failed, free_gb=13, memory=asked.memory, now=NOW + 60)
    fits = run(wanted, failed, free_gb=14, memory=short.memory, now=NOW + 60)

    assert moves(short) == []
    assert "1.0 GB short, of 6.0 GB" in said(short)[0]
    assert moves(fits) == ["fetch m/1"]


@pytest.mark.parametrize("free_gb", [None, 10**6])
def test_a_disk_that_is_not_known_keeps_nothing_off(free_gb):
    assert moves(run(asking("m"), free_gb=free_gb)) == ["fetch m/1"]


def test_what_is_released_for_one_is_not_released_for_the_next_as_well():
    two = run(asking("a", "b", size_gb=5), kept("old", 5), kept("older", 5), free_gb=10, release_for_fetch=True)

    assert moves(two) == ["remove old/1", "remove older/1"]
    assert [h.why for h in two.held] == [
        "it waits until the mirror has removed old/1, which makes room for it",
        "it waits until the mirror has removed older/1, which makes room for it",
    ]
