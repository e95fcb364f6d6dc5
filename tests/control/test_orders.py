"""What is decided, as the orders of each node."""

import pytest
from fleets import NOW, SETTLED, model, node, profile, replica, wanting
from msgspec import structs

from llmgw.actuators.orders import compose
from llmgw.core.decide import decide
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw_agent.protocol import Action, InstalledEngine, Phase, WeightFile

MIRROR = {"base": "http://10.0.0.2:8081/", "api": "http://10.0.0.2:8082"}
FILES = (WeightFile("m.gguf", 100, "a" * 64),)


def ordered(of, *nodes, memory=SETTLED):
    wanted = wanting(*of, nodes=[n.name for n in nodes])
    seen = Observed(nodes)
    return compose(wanted, decide(wanted, seen, memory, NOW))


def test_a_start_tells_its_node_all_that_the_engine_needs():
    of = model(cpu=1, source={"from": "https://hub.example/m.gguf", "version": "1"}, context_length=1024)
    held = MirrorSeen((Holding("m", "1", HoldingState.PRESENT, files=FILES),))

    wanted = wanting(of, nodes=["n1"], mirror=MIRROR)
    seen = Observed((node("n1"),), held)

    orders, _ = compose(wanted, decide(wanted, seen, SETTLED, NOW))

    (order,) = orders["n1"].replicas
    assert (order.id, order.generation, order.action, order.version) == ("m/cpu/0", 1, Action.RUN, "m/1")
    spec = order.spec
    assert (spec.served_name, spec.context_tokens, spec.parallel, spec.threads) == ("m", 2048, 2, 1)
    (version,) = orders["n1"].versions
    assert (version.action, version.files, version.sources) == ("hold", FILES, ("http://10.0.0.2:8081/m/1/",))


def test_a_path_is_told_as_a_path_and_nothing_is_fetched():
    orders, _ = ordered([model(cpu=1)], node("n1"))

    assert orders["n1"].replicas[0].path == "/m.gguf"
    assert orders["n1"].versions == ()


def test_orders_that_did_not_change_keep_their_number_and_others_get_the_next():
    of = model(cpu=1)
    first, memory = ordered([of], node("n1"))
    again, memory = ordered([of], node("n1"), memory=memory)
    more, _ = ordered([model(cpu=2)], node("n1"), memory=memory)

    assert [o["n1"].seq for o in (first, again, more)] == [1, 1, 2]


def test_a_node_that_was_taken_out_and_put_back_is_told_more_than_it_has_obeyed():
    # An agent ignores orders whose number it has obeyed: numbered anew it would have been deaf for good.
    memory = SETTLED
    for of in (model(cpu=1), model(cpu=2), model(cpu=3)):
        _, memory = ordered([of], node("n1"), memory=memory)
    _, memory = ordered([of], node("n2"), memory=memory)

    orders, _ = ordered([of], node("n1", obeyed=(1, 3)), node("n2"), memory=memory)

    assert orders["n1"].seq == 4


@pytest.mark.parametrize("obeyed", [(3, 1), (1, 9)], ids=["a later epoch", "numbers of this one that were never given"])
def test_a_node_that_heard_another_control_meanwhile_is_spoken_to_after_it(obeyed):
    # It was lost while this control started, and its agent refuses, or takes for obeyed, what is not after that.
    _, memory = ordered([model(cpu=1)], node("n1"), node("n2"))

    orders, _ = ordered([model(cpu=1)], node("n1", obeyed=obeyed), node("n2"), memory=memory)

    assert {o.epoch for o in orders.values()} == {obeyed[0] + 1}


def test_a_start_that_was_sent_and_not_seen_is_sent_again_under_the_same_id():
    of = model(cpu=1)
    first, memory = ordered([of], node("n1"), node("n2"))
    again, _ = ordered([of], node("n1"), node("n2"), memory=memory)

    assert first == again


def test_a_start_that_a_node_obeyed_and_does_not_have_is_decided_again():
    # The agent lost its disk between obeying and reporting.
    of = model(cpu=1)
    _, memory = ordered([of], node("n1"))
    orders, _ = ordered([of], node("n1", obeyed=(1, 1)), memory=memory)

    assert [(r.id, r.generation) for r in orders["n1"].replicas] == [("m/cpu/0", 2)]


def test_what_runs_out_of_date_is_kept_what_stops_is_drained_and_what_has_stopped_is_not_named():
    of = model(cpu=1)
    old = replica("m/cpu/0", of, fingerprint="old")
    over = replica("m/cpu/1", of)
    gone = structs.replace(replica("m/cpu/5", of), phase=Phase.STOPPED)

    orders, _ = ordered([of], node("n1", old, over, gone))

    assert [(r.id, r.action) for r in orders["n1"].replicas] == [("m/cpu/0", "drain"), ("m/cpu/1", "run")]


def test_a_node_may_remove_what_nothing_has_referred_to_for_long_enough_and_what_it_needs_room_of():
    wanted = wanting(model(cpu=0, state="stopped"), nodes=["n1"], mirror={**MIRROR, "retain": "1h"})
    seen = Observed((node("n1", versions=["old/1", "a/1", "recent/1"]),), MirrorSeen(()))
    memory = structs.replace(SETTLED, unreferenced={"old/1": NOW - 3600, "a/1": NOW, "recent/1": NOW - 3599})

    orders, _ = compose(wanted, decide(wanted, seen, memory, NOW))

    assert [(v.key, v.action) for v in orders["n1"].versions] == [
        ("old/1", "may_remove"),
        ("recent/1", "spare"),
        ("a/1", "spare"),
    ]


def test_what_a_replica_turns_out_to_use_changes_none_of_its_orders():
    of = model(cpu=1)
    first, memory = ordered([of], node("n1"))
    running = replica("m/cpu/0", of, memory_bytes=7 << 30)
    again, _ = ordered([of], node("n1", running), memory=memory)

    assert again["n1"] == first["n1"]


@pytest.mark.parametrize(("cores", "threads", "given"), [(0, None, 1), (3, None, 3), (3, 2, 2)])
def test_threads_are_the_reserved_cores_unless_they_are_written_and_never_none(cores, threads, given):
    of = model(profiles=[profile(cpu_cores=cores, threads=threads)])

    orders, _ = ordered([of], node("n1"))

    assert orders["n1"].replicas[0].spec.threads == given


@pytest.mark.parametrize(("written", "told"), [("b9000", "b9000"), (None, "")])
def test_a_node_is_told_which_version_of_the_engine_a_profile_names(written, told):
    of = model(profiles=[profile(engine_version=written)])
    engines = tuple(InstalledEngine("llamacpp", version) for version in ("b11549", "b9000"))

    orders, _ = ordered([of], node("n1", engines=engines))

    assert orders["n1"].replicas[0].spec.engine_version == told
