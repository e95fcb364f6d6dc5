"""Weights: the mirror before the node, the node before the start, and nothing removed too soon."""

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.catalog.lock import Lock
from llmgw.core.artifacts import refused
from llmgw.core.decide import decide
from llmgw.core.holdings import Failure, Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw_agent.protocol import HeldVersion, WeightFile

FILES = (WeightFile("m.gguf", 100, "a" * 64),)
MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082"}


def mirrored(**fields):
    return model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1", **fields})


def holding(state=HoldingState.PRESENT, **fields):
    return Holding("m", "1", state, files=FILES if state is HoldingState.PRESENT else (), **fields)


def run(of, *holdings, memory=SETTLED, now=NOW, mirror=True, boot="", **server):
    seen = Observed((node("n1"),), MirrorSeen(tuple(holdings), boot=boot) if mirror else None)
    return decide(wanting(*of, nodes=["n1"], mirror={**MIRROR, **server}), seen, memory, now)


def test_a_version_that_is_not_held_is_fetched_and_nothing_starts_before_it_is_there():
    plan = run([mirrored()])

    assert moves(plan) == ["fetch m/1"]
    assert held(plan) == ["m: the mirror is asked for its weights"]


def test_while_it_arrives_its_bytes_are_said_and_it_is_not_asked_for_again():
    plan = run([mirrored()], holding(HoldingState.FETCHING, done_bytes=43_000_000, total_bytes=98_400_000))

    assert moves(plan) == []
    assert [h.sentence for h in plan.held] == ["m: the mirror fetches its weights (43.0 MB of 98.4 MB)"]


def test_once_it_is_held_the_replica_starts_with_its_files_known():
    plan = run([mirrored()], holding())

    assert moves(plan) == ["+m/cpu/0"]
    assert plan.memory.files == {"m/1": FILES}
    assert plan.placements[0].version == "m/1"


def test_a_passing_failure_is_tried_again_later_each_time():
    failed = holding(HoldingState.FAILED, failure=Failure("unreachable", "the source did not answer", lasting=False))
    asked = run([mirrored()])
    first = run([mirrored()], failed, memory=asked.memory, now=NOW + 5)
    soon = run([mirrored()], failed, memory=first.memory, now=NOW + 9)
    later = run([mirrored()], failed, memory=first.memory, now=NOW + 10)

    assert moves(first) == ["fetch m/1"]
    assert first.actions[0].retry
    assert first.actions[0].why.startswith("try 2, after: the source did not answer")
    assert moves(soon) == []
    assert moves(later) == ["fetch m/1"]


def test_a_try_that_has_brought_nothing_yet_is_said_as_the_last_one_was():
    # It would else be one status commit for each try.
    gone = Failure("unreachable", "the source did not answer", lasting=False)
    asked = run([mirrored()])
    failed = run([mirrored()], holding(HoldingState.FAILED, failure=gone), memory=asked.memory)
    trying = run([mirrored()], holding(HoldingState.FETCHING), memory=failed.memory)
    coming = run([mirrored()], holding(HoldingState.FETCHING, done_bytes=1, total_bytes=2), memory=trying.memory)

    assert held(failed) == held(trying) == ["m: its weights are tried again: the source did not answer"]
    assert [h.sentence for h in coming.held] == ["m: the mirror fetches its weights (1 B of 2 B)"]


def test_an_ask_that_came_to_nothing_is_made_again_later_each_time():
    # A mirror whose disk is full cannot even say that it has a version to fetch.
    now, memory, asked = NOW, SETTLED, []
    while now < NOW + 100:
        plan = run([mirrored()], memory=memory, now=now)
        asked += [now - NOW] if plan.actions else []
        now, memory = now + 1, plan.memory

    assert asked == [0, 5, 15, 35, 75]


def test_a_clock_that_was_set_back_makes_no_wait_longer():
    asked = run([mirrored()], now=NOW + 86_400)

    assert moves(run([mirrored()], memory=asked.memory, now=NOW)) == ["fetch m/1"]


def test_what_the_mirror_refuses_is_said_with_what_to_do_and_not_asked_twice_a_second():
    asked = run([mirrored()], boot="b1")
    memory = refused(asked.memory, asked.actions[0], "it is not below a folder it may read", "start it with more", "b1")

    again = run([mirrored()], memory=memory, boot="b1")

    assert moves(again) == []
    assert [h.sentence for h in again.held] == [
        "m: the mirror does not fetch its weights: it is not below a folder it may read; start it with more"
    ]
    assert again.held[0].stalled
    assert again.memory.fetches == memory.fetches


@pytest.mark.parametrize(
    ("boot", "sha256"), [("b2", None), ("b1", "a" * 64)], ids=["another start of the mirror", "another source"]
)
def test_what_was_refused_is_asked_again_of(boot, sha256):
    asked = run([mirrored()], boot="b1")
    memory = refused(asked.memory, asked.actions[0], "no", "do", "b1")

    again = run([mirrored(**({"sha256": sha256} if sha256 else {}))], memory=memory, boot=boot)

    assert moves(again) == ["fetch m/1"]


def test_a_lasting_failure_waits_for_a_commit():
    wrong = Failure("digest", "its sha256 is b…, and a… was asked for", do="correct sha256", lasting=True)
    asked = run([mirrored(sha256="a" * 64)])
    failed = run([mirrored(sha256="a" * 64)], holding(HoldingState.FAILED, failure=wrong), memory=asked.memory)
    mended = run([mirrored(sha256="b" * 64)], holding(HoldingState.FAILED, failure=wrong), memory=failed.memory)

    assert moves(failed) == []
    assert [h.sentence for h in failed.held] == [
        "m: the mirror could not get its weights: its sha256 is b…, and a… was asked for; correct sha256"
    ]
    assert failed.held[0].stalled
    assert moves(mended) == ["fetch m/1"]


def test_an_unreachable_mirror_is_not_an_empty_one():
    unknown = run([mirrored()], mirror=False)
    known = run([mirrored()], mirror=False, memory=structs.replace(SETTLED, files={"m/1": FILES}))

    assert moves(unknown) == []
    assert held(unknown) == ["m: the mirror cannot be reached, and what it holds is not known"]
    assert moves(known) == ["+m/cpu/0"], "a node may hold the version already"
    assert known.memory.files == {"m/1": FILES}


def test_a_stopped_models_weights_are_not_fetched():
    plan = run([mirrored().__class__.model_validate({**mirrored().model_dump(by_alias=True), "state": "stopped"})])

    assert moves(plan) == []


def test_without_a_mirror_in_server_yaml_it_says_so():
    plan = decide(wanting(mirrored(), nodes=["n1"]), Observed((node("n1"),)), SETTLED, NOW)

    assert [h.sentence for h in plan.held] == [
        "m: server.yaml names no mirror to fetch its weights; add mirror: {base, api}"
    ]


def test_what_nothing_refers_to_is_kept_for_its_retention_and_then_removed():
    first = run([], holding(), retain="1h")
    before = run([], holding(), retain="1h", memory=first.memory, now=NOW + 3599)
    after = run([], holding(), retain="1h", memory=before.memory, now=NOW + 3600)

    assert moves(first) == moves(before) == []
    assert moves(after) == ["remove m/1"]


def test_a_version_somebody_refers_to_again_starts_its_retention_anew():
    gone = run([], holding(), retain="1h")
    back = run([mirrored()], holding(), retain="1h", memory=gone.memory, now=NOW + 3000)
    gone_again = run([], holding(), retain="1h", memory=back.memory, now=NOW + 4000)

    assert moves(gone_again) == ["-m/cpu/0"], "what was started meanwhile stops, and the version stays"
    assert gone_again.memory.unreferenced == {}, "it is still referred to by what stops"


def test_a_running_replica_keeps_its_version():
    # 9.6: no weights are removed that a running replica refers to.
    of = mirrored()
    seen = Observed((node("n1", replica("m/cpu/0", of, version="m/1")),), MirrorSeen((holding(),)))
    long_gone = structs.replace(SETTLED, unreferenced={"m/1": 0.0})

    plan = decide(wanting(nodes=["n1"], mirror=MIRROR), seen, long_gone, NOW)

    assert moves(plan) == ["-m/cpu/0"]


def test_nothing_is_removed_while_a_file_cannot_be_read():
    seen = Observed((node("n1"),), MirrorSeen((holding(),)))
    long_gone = structs.replace(SETTLED, unreferenced={"m/1": 0.0})

    plan = decide(wanting(nodes=["n1"], mirror=MIRROR, complete=False), seen, long_gone, NOW)

    assert moves(plan) == []


@pytest.mark.parametrize("origin", ["hand"])
def test_what_came_by_hand_is_never_removed(origin):
    long_gone = structs.replace(SETTLED, unreferenced={"m/1": 0.0})

    assert moves(run([], holding(origin=origin), memory=long_gone)) == []


def test_what_is_purged_goes_as_soon_as_nothing_refers_to_it():
    purging = replace(wanting(mirror=MIRROR, nodes=["n1"]), purged=frozenset({"m"}))
    seen = Observed((node("n1"),), MirrorSeen((holding(),)))

    plan = decide(purging, seen, SETTLED, NOW)

    assert [(a.name, a.why) for a in plan.actions] == [("m", "nothing refers to it, and it is to be purged")]
    # It is remembered as a version nothing ever referred to, so that a restart does not forget it.
    assert plan.memory.unreferenced == {"m/1": 0.0}


def test_what_is_purged_stays_while_a_replica_or_another_model_uses_it():
    of = mirrored()
    stops = replica("m/cpu/0", of, version="m/1")
    gone = replace(wanting(mirror=MIRROR, nodes=["n1"]), purged=frozenset({"m"}))

    plan = decide(gone, Observed((node("n1", stops),), MirrorSeen((holding(),))), SETTLED, NOW)

    assert moves(plan) == ["-m/cpu/0"]


def test_while_a_file_cannot_be_read_no_retention_begins():
    seen = Observed((node("n1"),), MirrorSeen((holding(),)))
    blind = decide(wanting(nodes=["n1"], mirror=MIRROR, complete=False), seen, SETTLED, NOW)
    after = decide(wanting(nodes=["n1"], mirror=MIRROR), seen, blind.memory, NOW + 10_000_000)

    assert moves(after) == []
    assert after.memory.unreferenced == {"m/1": NOW + 10_000_000}


LOCKED = {
    "model": "m",
    "source": {"from": "hf://org/m-GGUF@main/*.gguf", "version": "1"},
    "commit": "0f" * 20,
    "files": [
        {"path": "m-00001-of-00002.gguf", "bytes": 60, "sha256": "a" * 64},
        {"path": "m-00002-of-00002.gguf", "bytes": 40, "sha256": "b" * 64},
    ],
}


def locked(source, lock):
    """What is asked of the mirror for a model with this source and lock."""
    wanted = wanting(model(cpu=1, source=source), nodes=["n1"], mirror=MIRROR)
    entry = replace(wanted.models["m"], lock=Lock.model_validate(lock) if lock else None)
    plan = decide(replace(wanted, models={"m": entry}), Observed((node("n1"),), MirrorSeen(())), SETTLED, NOW)
    return plan.actions[0], plan.memory.fetches["m/1"].source


def test_a_lock_says_which_files_are_fetched_at_which_commit_and_what_they_should_be():
    fetch, _ = locked(LOCKED["source"], LOCKED)

    assert [(f.path, f.url, f.bytes, f.sha256) for f in fetch.files] == [
        ("m-00001-of-00002.gguf", f"hf://org/m-GGUF@{'0f' * 20}/m-00001-of-00002.gguf", 60, "a" * 64),
        ("m-00002-of-00002.gguf", f"hf://org/m-GGUF@{'0f' * 20}/m-00002-of-00002.gguf", 40, "b" * 64),
    ]


def test_a_lock_gives_a_url_the_size_and_sum_that_its_source_does_not_write():
    source = {"from": "https://hub.example/m.gguf", "version": "1"}
    lock = LOCKED | {"source": source, "files": [{"path": "m.gguf", "bytes": 60, "sha256": "a" * 64}]}

    (file,) = locked(source, lock)[0].files

    assert (file.path, file.url, file.bytes, file.sha256) == ("m.gguf", source["from"], 60, "a" * 64)
    assert locked(source, None)[0].files == ()


def test_checksums_are_compared_also_without_a_lock_and_another_one_is_another_thing_to_try():
    one, other = ({"m.gguf": letter * 64} for letter in "ab")
    first, second = (
        locked({"from": "https://hub.example/m.gguf?d=1", "version": "1", "checksums": c}, None) for c in (one, other)
    )

    assert (first[0].sha256, second[0].sha256) == ("a" * 64, "b" * 64)
    assert first[1] != second[1]


def test_checksums_of_another_file_are_said_and_nothing_unchecked_is_fetched():
    plan = run([mirrored(checksums={"n.gguf": "a" * 64})])

    assert moves(plan) == []
    assert [h.sentence for h in plan.held] == [
        "m: its checksums are not of m.gguf, the file that its source names; "
        "name that file in checksums, or lock it: llmgw lock"
    ]


def test_another_lock_is_another_thing_to_try():
    other = LOCKED | {"commit": "1e" * 20}

    assert locked(LOCKED["source"], LOCKED)[1] != locked(LOCKED["source"], other)[1]


class TestNodesThatFetch:
    """At most so many at a time, in the order of who is served first."""

    def pass_over(self, nodes, *models, most=2):
        held_ones = tuple(Holding(m.name, "1", HoldingState.PRESENT, files=FILES) for m in models)
        names = [n.name for n in nodes]
        wanted = wanting(*models, nodes=names, mirror={**MIRROR, "parallel_nodes": most})
        return decide(wanted, Observed(tuple(nodes), MirrorSeen(held_ones)), SETTLED, NOW)

    def named(self, name, class_="standard", replicas=1):
        source = {"from": "https://hub.example/m.gguf", "version": "1"}
        return model(name, profiles=[profile(replicas=replicas)], source=source, **{"class": class_})

    def test_the_others_wait_and_it_is_said(self):
        plan = self.pass_over([node(f"n{n}") for n in range(4)], self.named("m", replicas=4))

        assert moves(plan) == ["+m/cpu/0", "+m/cpu/1"]
        why = "2 nodes fetch weights, and it waits until one has them (mirror.parallel_nodes)"
        assert held(plan) == [f"m/cpu/2: {why}", f"m/cpu/3: {why}"]

    def test_the_highest_class_fetches_first(self):
        low, high = self.named("a", "opportunistic", 2), self.named("b", "guaranteed", 2)

        plan = self.pass_over([node(f"n{n}") for n in range(4)], low, high)

        assert [m for m in moves(plan) if m.startswith("+b")] == ["+b/cpu/0", "+b/cpu/1"]

    def test_a_node_that_has_the_weights_waits_for_nobody(self):
        nodes = [node("n0", versions=["m/1"]), node("n1"), node("n2"), node("n3")]

        plan = self.pass_over(nodes, self.named("m", replicas=4))

        assert len([m for m in moves(plan) if m.startswith("+")]) == 3

    def test_what_arrives_already_counts(self):
        arriving = structs.replace(node("n0"), versions=(HeldVersion("x", "1", state="arriving"),))

        plan = self.pass_over([arriving, node("n1"), node("n2"), node("n3")], self.named("m", replicas=4))

        assert len([m for m in moves(plan) if m.startswith("+")]) == 2

    def test_what_was_ordered_and_has_not_begun_counts_too(self):
        nodes = [node(f"n{n}") for n in range(4)]
        of = self.named("m", replicas=4)
        first = self.pass_over(nodes, of)
        wanted = wanting(of, nodes=[n.name for n in nodes], mirror={**MIRROR, "parallel_nodes": 2})
        holding_it = MirrorSeen((Holding("m", "1", HoldingState.PRESENT, files=FILES),))

        again = decide(wanted, Observed(tuple(nodes), holding_it), first.memory, NOW + 1)

        assert len(moves(first)) == 2
        assert moves(again) == []
