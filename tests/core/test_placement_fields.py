"""What a profile may ask of its node and its cards, field by field."""

import pytest
from fleets import L40S, NOW, SETTLED, F, R, card, held, model, moves, node, profile, replica, wanting
from msgspec import structs

from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw.units import GIB, MIB
from llmgw_agent.protocol import ForeignProcess, HeldVersion, InstalledEngine, WeightFile

FETCHED = {"from": "https://hub.example/m.gguf", "version": "1"}
MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082"}


def on_cards(**gpu):
    return model(profiles=[profile("gpu", gpu={"class": L40S, **gpu})])


def where(*models, nodes, entries=None, memory=SETTLED, **server):
    """The node of each replica that is started, by id, and why the others are not."""
    names = entries or [n.name for n in nodes]
    plan = decide(wanting(*models, nodes=names, **server), Observed(tuple(nodes)), memory, NOW)
    return {a.id: a.node for a in plan.actions}, [h.detail for h in plan.held]


AMD = structs.replace(card(0), vendor="amd", name="AMD Instinct MI210", compute_capability="")
OLD = structs.replace(card(0), compute_capability="7.5")
UNKNOWN = structs.replace(card(0), compute_capability="")
SMALL = structs.replace(card(0), memory_bytes=40 * GIB)
CORRECTED = structs.replace(card(0), memory_bytes=46_068 * MIB)
"""An L40S whose memory is corrected."""
SLICE = structs.replace(card(0), uuid="MIG-1", parent="GPU-0", slice="1g.10gb")


@pytest.mark.parametrize(
    ("gpu", "there", "fits"),
    [
        pytest.param({"vendor": "nvidia"}, card(0), True, id="the vendor"),
        pytest.param({"vendor": "nvidia"}, AMD, False, id="another vendor"),
        pytest.param({"name": "l40s"}, card(0), True, id="a part of the name in any case"),
        pytest.param({"name": "RTX 4090"}, card(0), False, id="another name"),
        pytest.param({"memory": "45GiB.."}, card(0), True, id="enough memory"),
        pytest.param({"memory": "45GiB.."}, SMALL, False, id="too little memory"),
        pytest.param({"memory": "..40GiB"}, card(0), False, id="more memory than is asked for"),
        pytest.param({"compute_capability": "8.0.."}, card(0), True, id="compute capability"),
        pytest.param({"compute_capability": "8.0.."}, OLD, False, id="too old"),
        pytest.param({"compute_capability": "8.0.."}, UNKNOWN, True, id="a driver that does not say excludes nothing"),
        pytest.param({"class": None, "memory": "45GiB.."}, card(0), True, id="any class with enough memory"),
        pytest.param({"class": None, "memory": "45GiB.."}, SMALL, False, id="any class, and none with enough memory"),
        pytest.param({"class": None, "vendor": "amd"}, AMD, True, id="any class of a vendor"),
        pytest.param({"class": None, "memory": "48GB"}, CORRECTED, True, id="nearly the size, as its driver says it"),
        pytest.param({"class": None, "memory": "48GiB"}, CORRECTED, True, id="the same size in the other unit"),
        pytest.param({"class": None, "memory": "40GB"}, CORRECTED, False, id="another size"),
        pytest.param({"slice": "1g.10gb"}, SLICE, True, id="a slice"),
        pytest.param({"slice": "2g.20gb"}, SLICE, False, id="another slice"),
        pytest.param({}, SLICE, False, id="a slice is no whole card"),
        pytest.param({"slice": "1g.10gb"}, card(0), False, id="a whole card is no slice"),
    ],
)
def test_a_card_is_taken_only_where_every_field_that_is_written_fits(gpu, there, fits):
    started, _ = where(on_cards(**gpu), nodes=[node("n1", cards=[there], engines=None)])

    assert bool(started) is fits


def test_a_card_that_is_cut_into_slices_is_no_card_itself():
    slices = [structs.replace(SLICE, uuid=f"MIG-{n}") for n in range(2)]
    of = model(profiles=[profile("gpu", gpu={"class": L40S, "slice": "1g.10gb"}, replicas=3)])

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", cards=[card(0), *slices]),)), SETTLED, NOW)

    assert [p.devices for p in plan.placements] == [("MIG-0",), ("MIG-1",)]
    assert where(on_cards(), nodes=[node("n1", cards=[card(0), *slices])])[0] == {}


def test_what_is_asked_of_a_card_is_said_in_the_reason():
    _, (why,) = where(on_cards(vendor="amd", memory="64GiB..", compute_capability="9.0.."), nodes=[node("n1")])

    assert why.startswith("n1: it has no l40s-48g (amd, 64.0 GiB.. of memory, compute capability 9..)")


def test_a_card_of_any_class_is_spoken_of_by_what_is_asked():
    _, (why,) = where(on_cards(**{"class": None, "memory": "64GiB.."}), nodes=[node("n1")])

    assert why.startswith("n1: it has no card (64.0 GiB.. of memory); it would fit on n1 with 1 card (64.0 GiB.. of")


def test_cards_of_any_class_are_all_of_one_for_each_replica():
    mixed = [card(0), structs.replace(card(1), card_class="rtx-4090-24g")]

    started, _ = where(on_cards(**{"class": None, "vendor": "nvidia", "count": 2}), nodes=[node("n1", cards=mixed)])

    assert started == {}


def test_all_cards_of_a_replica_are_of_one_kind():
    mixed = [card(0), structs.replace(card(1), memory_bytes=40 * GIB)]

    started, (why,) = where(on_cards(count=2), nodes=[node("n1", cards=mixed)])

    assert started == {}
    assert why == "n1: 1 l40s-48g short of 2; it would fit on n1 with 1 fewer card"


def test_of_several_kinds_that_do_the_smallest_is_taken():
    mixed = [card(0), structs.replace(card(1), memory_bytes=40 * GIB)]

    plan = decide(wanting(on_cards(), nodes=["n1"]), Observed((node("n1", cards=mixed),)), SETTLED, NOW)

    assert [p.devices for p in plan.placements] == [("GPU-1",)]


def test_an_engine_of_another_version_does_not_do_and_one_that_does_not_say_does():
    of = model(profiles=[profile(engine_version="b2")])
    silent = (InstalledEngine("llamacpp", accelerators=("cpu",)),)
    nodes = [node("n1", engines=(InstalledEngine("llamacpp", "b1"),))]

    started, (why,) = where(of, nodes=nodes)

    assert started == {}
    assert why == "n1: it reports no llamacpp b2; it would fit on n1 with llamacpp b2 installed"
    assert where(of, nodes=[node("n1", engines=silent)])[0] == {"m/cpu/0": "n1"}
    assert where(of, nodes=[node("n1", engines=(InstalledEngine("llamacpp", "b2"),))])[0] == {"m/cpu/0": "n1"}


@pytest.mark.parametrize("names", [("m",), ("other",)], ids=["the shunned one comes second", "it comes first"])
def test_models_that_are_kept_apart_are_on_no_node_together_whoever_says_so(names):
    of = model(profiles=[profile(anti_affinity=["other"])])
    other = model("other", cpu=1)
    runs = {"m": replica("m/cpu/0", of), "other": replica("other/cpu/0", other)}
    seen = [node("n1", *(runs[n] for n in names), memory_gib=4), node("n2")]

    started, _ = where(of, other, nodes=seen)

    assert list(started.values()) == ["n2"]


def test_a_model_that_is_kept_apart_from_itself_has_one_replica_a_node():
    of = model(profiles=[profile(anti_affinity=["m"], replicas=3)])

    started, (why,) = where(of, nodes=[node("n1"), node("n2")])

    assert sorted(started.values()) == ["n1", "n2"]
    assert why.startswith(
        "n1: m, m/cpu runs there, which it is kept apart from, and 1 more; it would fit on n1 without m"
    )


def test_binpack_fills_a_node_first_and_spread_does_not():
    packed = model(profiles=[profile(replicas=2, placement="binpack")])
    nodes = [node("n1"), node("n2")]

    assert set(where(packed, nodes=nodes)[0].values()) == {"n1"}
    assert set(where(model(cpu=2), nodes=nodes)[0].values()) == {"n1", "n2"}


def test_replicas_spread_over_racks_before_they_share_one():
    entries = [{"name": f"n{n}", "address": "10.0.0.1", "labels": {"rack": rack}} for n, rack in enumerate("aab")]

    started, _ = where(model(cpu=2), nodes=[node(f"n{n}") for n in range(3)], entries=entries)

    assert started == {"m/cpu/0": "n0", "m/cpu/1": "n2"}


def test_spreading_is_a_wish_and_keeps_nothing_off():
    entries = [{"name": f"n{n}", "address": "10.0.0.1", "labels": {"rack": "a"}} for n in range(2)]

    started, _ = where(model(cpu=5), nodes=[node(f"n{n}") for n in range(2)], entries=entries)

    assert len(started) == 5


def test_a_card_that_is_taken_out_gets_nothing_new_and_what_runs_there_moves_off():
    of = on_cards()
    entries = [{"name": "n1", "address": "10.0.0.1", "cards_out": ["GPU-0"]}]
    old = replica("m/gpu/0", of, devices=("GPU-0",))
    new = replica("m/gpu/1", of, devices=("GPU-1",))
    wanted = wanting(of, nodes=entries)

    first = decide(wanted, Observed((node("n1", old, cards=2),)), SETTLED, NOW)
    second = decide(wanted, Observed((node("n1", old, new, cards=2),)), SETTLED, NOW)

    assert moves(first) == ["+m/gpu/1"]
    assert next(p.devices for p in first.placements if p.id == "m/gpu/1") == ("GPU-1",)
    assert moves(second) == ["-m/gpu/0"]


def test_with_a_card_that_is_taken_out_go_its_slices():
    of = model(profiles=[profile("gpu", gpu={"class": L40S, "slice": "1g.10gb"})])
    there = [card(0), SLICE, card(1), structs.replace(SLICE, uuid="MIG-2", parent="GPU-1")]
    entries = [{"name": "n1", "address": "10.0.0.1", "cards_out": ["GPU-0"]}]
    seen = Observed((node("n1", replica("m/gpu/0", of, devices=("MIG-1",)), cards=there),))

    plan = decide(wanting(of, nodes=entries), seen, SETTLED, NOW)

    assert moves(plan) == ["+m/gpu/1"]
    assert next(p.devices for p in plan.placements if p.id == "m/gpu/1") == ("MIG-2",)


def test_where_every_card_is_taken_out_the_reason_says_so():
    entries = [{"name": "n1", "address": "10.0.0.1", "cards_out": ["GPU-0"]}]

    _, (why,) = where(on_cards(), nodes=[node("n1", cards=1)], entries=entries)

    assert why.startswith("n1: 1 l40s-48g short of 1, GPU-0 is taken out")


def test_gs1_the_program_that_holds_a_card_is_named_where_the_node_knows_it():
    held_by = (ForeignProcess(4711, 27 * GIB, "python"),)
    busy = structs.replace(card(0, used_gib=27), processes=held_by)

    _, (why,) = where(on_cards(), nodes=[node("n1", cards=[busy])])

    assert "27.0 GiB of GPU-0 held by python (pid 4711)" in why


def test_gs1_what_waits_for_a_card_is_placed_in_the_pass_after_it_is_freed():
    held_by = (ForeignProcess(4711, 27 * GIB, "python"),)
    busy = node("n1", cards=[structs.replace(card(0, used_gib=27), processes=held_by)])
    wanted = wanting(on_cards(), nodes=["n1"])

    before = decide(wanted, Observed((busy,)), SETTLED, NOW)
    after = decide(wanted, Observed((node("n1", cards=[card(0)]),)), before.memory, NOW + 5)

    assert moves(before) == []
    assert moves(after) == ["+m/gpu/0"]


def test_gs1_a_card_that_another_program_holds_is_passed_over_for_one_that_is_free():
    there = [structs.replace(card(0, used_gib=27), processes=(ForeignProcess(4711, 27 * GIB, "python"),)), card(1)]

    plan = decide(wanting(on_cards(), nodes=["n1"]), Observed((node("n1", cards=there),)), SETTLED, NOW)

    assert [p.devices for p in plan.placements] == [("GPU-1",)]


def test_gs1_the_program_that_holds_a_machines_memory_is_named_where_it_is_short():
    full = node("n1", memory_gib=41, used_gib=40.5)
    full = structs.replace(
        full, inventory=structs.replace(full.inventory, processes=(ForeignProcess(10, 40 * GIB, "postgres"),))
    )

    _, (why,) = where(model(cpu=1), nodes=[full])

    assert why.startswith("n1: 0.5 GiB of memory short, 40.0 GiB held by postgres (pid 10);")


def test_who_holds_a_card_makes_no_status_commit():
    wanted = wanting(model(cpu=1), nodes=["n1"])

    def digest(pid):
        busy = structs.replace(card(0, used_gib=1), processes=(ForeignProcess(pid, GIB),))
        seen = Observed((node("n1", cards=[busy]),))
        return status(wanted, seen, decide(wanted, seen, SETTLED, NOW), NOW).digest

    assert digest(1) == digest(2)


def fetched(seen, of, size_gib=10):
    """Where a model whose weights are of this size is placed."""
    files = {"m/1": (structs.replace(FILE, bytes=size_gib * GIB),)}
    memory = structs.replace(SETTLED, files=files)
    return where(of, nodes=seen, memory=memory, mirror=MIRROR)


FILE = WeightFile("m.gguf", 0, "0" * 64)


@pytest.mark.parametrize(
    ("seen", "fits"),
    [
        pytest.param(node("n1", disk_gib=12), True, id="room for the weights"),
        pytest.param(node("n1", disk_gib=10.5), False, id="room that would leave the disk full"),
        pytest.param(node("n1", disk_gib=2, versions=["m/1"]), True, id="weights that are there take none"),
        pytest.param(
            structs.replace(node("n1", disk_gib=2), versions=(HeldVersion("m", "1", "arriving", 10 * GIB, 10 * GIB),)),
            True,
            id="nor do those that have arrived",
        ),
        pytest.param(
            structs.replace(node("n1", disk_gib=12), versions=(HeldVersion("o", "1", "arriving", 0, 10 * GIB),)),
            False,
            id="what arrives of another version is taken",
        ),
    ],
)
def test_a_node_needs_disk_for_the_weights_and_something_left(seen, fits):
    started, _ = fetched([seen], model(cpu=1, source=FETCHED))

    assert bool(started) is fits


def test_weights_of_two_replicas_are_on_a_nodes_disk_once():
    started, _ = fetched([node("n1", disk_gib=12)], model(cpu=2, source=FETCHED))

    assert len(started) == 2


def test_what_a_profile_writes_to_the_disk_is_taken_for_each_replica():
    of = model(profiles=[profile(disk="4GiB", replicas=3)])

    started, (why,) = where(of, nodes=[node("n1", disk_gib=10)])

    assert len(started) == 2
    assert why == "n1: 3.2 GB of disk short; it would fit on n1 with 3.2 GB more of its disk free"


def test_a_replica_of_an_agent_that_does_not_say_its_cards_is_charged_all_the_same():
    of = model(profiles=[profile("gpu", gpu={"class": L40S}, replicas=2)])

    plan = decide(wanting(of, nodes=["n1"]), Observed((node("n1", replica("m/gpu/0", of, R), cards=1),)), SETTLED, NOW)

    assert plan.actions == ()
    assert held(plan) == ["m/gpu/1: no node has room for it"]


KEPT = {"n1": "a", "n2": "b", "n3": "b", "n4": ""}


def kept(level="rack", racks=KEPT, room=2, running=(), count=3, **fields):
    """Where replicas of a GiB go that are kept within one place, on nodes with room for so many each."""
    of = model(profiles=[profile(memory_gib=1, replicas=count, keep_within=level, **fields)])
    entries = [{"name": n, "address": "10.0.0.1", "labels": {level: r} if r else {}} for n, r in racks.items()]
    nodes = [node(n, *(replica(rid, of) for rid, at in running if at == n), memory_gib=room) for n in racks]
    return where(of, nodes=nodes, entries=entries)


@pytest.mark.parametrize("level", ["rack", "row", "room", "site"])
def test_replicas_that_are_kept_within_one_place_go_where_all_of_them_fit(level):
    # n1 is the first by name and in a place by itself: put there, the third would have nowhere to go.
    started, _ = kept(level)

    assert started == {"m/cpu/0": "n2", "m/cpu/1": "n3", "m/cpu/2": "n2"}


def test_replicas_that_are_kept_on_one_node_are_all_on_it():
    of = model(profiles=[profile(memory_gib=1, replicas=3, keep_within="node")])

    # n2 is the first that holds all of them, and n3 the smallest.
    started, _ = where(of, nodes=[node("n1", memory_gib=2), node("n2", memory_gib=9), node("n3", memory_gib=3)])

    assert set(started.values()) == {"n3"}


def test_they_go_where_the_others_run_and_nothing_that_runs_is_moved():
    started, _ = kept(running=[("m/cpu/0", "n1")], count=2)
    apart, _ = kept(running=[("m/cpu/0", "n1"), ("m/cpu/1", "n2"), ("m/cpu/2", "n3")], count=4)

    assert started == {"m/cpu/1": "n1"}
    assert apart == {"m/cpu/3": "n2"}


def test_where_the_place_is_full_the_rest_waits_and_the_reason_says_where_it_must_be():
    started, (why,) = kept(room=1, count=3)

    assert started == {"m/cpu/0": "n2", "m/cpu/1": "n3"}
    assert why == (
        "n1: it is outside rack b, where all are kept, and 1 more; n2: 1.0 GiB of memory short, and 1 more; "
        "it would fit on n2 with 1.0 GiB less memory"
    )


def test_a_node_without_the_label_is_in_no_place():
    started, (why,) = kept(racks={"n1": ""}, count=1)

    assert started == {}
    assert why == ("n1: it has no label rack, within one of which all are kept; it would fit on n1 with the label rack")


def test_racks_of_one_name_in_two_rooms_are_two():
    of = model(profiles=[profile(memory_gib=1, replicas=2, keep_within="rack")])
    entries = [{"name": n, "address": "10.0.0.1", "labels": {"room": n, "rack": "a"}} for n in ("n1", "n2")]

    started, _ = where(of, nodes=[node(n, memory_gib=1) for n in ("n1", "n2")], entries=entries)

    assert started == {"m/cpu/0": "n1"}


def test_of_places_that_do_the_one_with_the_weights_is_taken_and_one_it_failed_in_is_not():
    racks = {"n1": "a", "n2": "b"}
    of = model(profiles=[profile(keep_within="rack")], source=FETCHED)
    entries = [{"name": n, "address": "10.0.0.1", "labels": {"rack": r}} for n, r in racks.items()]
    memory = structs.replace(SETTLED, files={"m/1": (FILE,)})

    def on(*nodes):
        return where(of, nodes=nodes, entries=entries, memory=memory, mirror=MIRROR)[0]

    assert on(node("n1"), node("n2", versions=["m/1"])) == {"m/cpu/0": "n2"}
    failed = replica("m/cpu/0", of, F, version="m/1")
    assert on(node("n1", failed, versions=["m/1"]), node("n2")) == {"m/cpu/0": "n2"}
