"""Counts and totals: what `llmgw model replicas` and `scale` may do to a model as it is written."""

from __future__ import annotations

import pytest

from llmgw.catalog.counts import CpuNeed, replicas, scale, without_card_flags
from llmgw.catalog.edit import File
from llmgw.catalog.parse import parse
from llmgw.catalog.written import Written
from llmgw.errors import Misused, Refused

NOTHING = CpuNeed()


def written(text):
    return Written(File("catalog/m.yaml", text.encode()), ())


def value(counted):
    return parse(counted.model.file.data).value


COUNTED = """\
name: m
profiles:
  - {name: gpu, engine: llamacpp, gpu: {class: l40s-48g}, replicas: 7}   # cards
  - {name: cpu, engine: llamacpp, replicas: 4}
"""
SCALED = """\
name: m
scaling: {min: 1, max: 4, idle_timeout: 15m}   # by day
profiles:
  - {name: gpu, engine: llamacpp, gpu: {class: l40s-48g}}
  - {name: cpu, engine: llamacpp}
"""


def test_another_total_takes_every_count_out_and_says_so():
    counted = scale(written(COUNTED), 3, 3)

    assert counted.said == (
        "The counts of its profiles are taken out (gpu 7, cpu 4): their share is chosen from now on.",
    )
    assert counted.model.file.data.decode() == (
        "name: m\n"
        "profiles:\n"
        "  - {name: gpu, engine: llamacpp, gpu: {class: l40s-48g}}   # cards\n"
        "  - {name: cpu, engine: llamacpp}\n"
        "scaling: {min: 3, max: 3}\n"
    )


def test_the_total_that_the_counts_make_keeps_them():
    counted = scale(written(COUNTED), 11, 11)

    assert counted.said == ("Its counts make 11 already, and stay: gpu 7, cpu 4.",)
    assert counted.model.file.data.decode() == COUNTED


def test_a_range_takes_the_counts_out_though_their_sum_is_in_it():
    assert value(scale(written(COUNTED), 2, 20))["scaling"] == {"min": 2, "max": 20}


def test_of_a_scaled_model_the_bounds_change_and_the_rest_of_scaling_stays():
    counted = scale(written(SCALED), 0, 6)

    assert counted.said == ()
    assert counted.model.file.data.decode() == SCALED.replace("min: 1, max: 4", "min: 0, max: 6")


@pytest.mark.parametrize("total", [11, 3], ids=["to the total of its counts", "to another"])
def test_scaling_a_stopped_model_starts_it(total):
    counted = scale(written(COUNTED + "state: stopped\n"), total, total)

    assert counted.said[0] == "m was stopped, and starts."
    assert "state" not in value(counted)
    assert ("replicas" in value(counted)["profiles"][0]) == (total == 11)


def test_a_total_of_none_is_refused_and_a_minimum_of_none_is_not():
    with pytest.raises(Refused, match="would never run") as refused:
        scale(written(COUNTED), 0, 0)

    assert refused.value.do == "llmgw model stop m keeps it without"
    assert value(scale(written(COUNTED), 0, 3))["scaling"] == {"min": 0, "max": 3}


def test_a_range_the_wrong_way_round_is_wrong_usage():
    with pytest.raises(Misused):
        scale(written(COUNTED), 4, 2)


def test_counts_for_some_profiles_of_a_scaled_model_are_refused():
    with pytest.raises(Refused) as refused:
        replicas(written(SCALED), {"gpu": 3}, NOTHING)

    assert str(refused.value) == (
        "m is scaled, not counted\n"
        "  because its replicas are chosen by `scaling`, and cpu would have no count\n"
        "  next: count every profile, or change the total: llmgw model scale m TOTAL"
    )


def test_counts_for_all_of_them_take_scaling_out_and_say_so():
    counted = replicas(written(SCALED), {"gpu": 3, "cpu": 0}, NOTHING)

    assert counted.said == ("`scaling` is taken out: m is counted from now on.",)
    assert "scaling" not in value(counted)
    assert [p["replicas"] for p in value(counted)["profiles"]] == [3, 0]


def test_an_added_cpu_profile_keeps_what_does_not_concern_cards():
    model = written("""\
name: m
profiles:
  - name: big
    engine: vllm
    gpu: {class: h100-80g}
    replicas: 1
    priority: 200
  - name: gpu
    engine: llamacpp
    engine_version: b9000
    gpu: {class: l40s-48g, count: 2}
    gpu_layers: 99
    kv_type_v: q8_0
    flash_attention: "on"
    tensor_split: [1, 1]
    args: [--jinja, -ngl, "99", --temp, "-1", -sm=row]
    env: {A: b}
    node_selector: {room: a}
    start_timeout: 20m
    parallel: 4
    cpu_cores: 2
    threads: 2
    memory_gib: 2
    replicas: 1
    priority: -5
""")

    counted = replicas(model, {"cpu": 4}, CpuNeed(memory_gib=24.0))

    assert counted.said == ("The profile cpu is added: m had none for CPUs.",)
    assert value(counted)["profiles"][2] == {
        "name": "cpu",
        "engine": "llamacpp",
        "engine_version": "b9000",
        "parallel": 4,
        "kv_type_v": "q8_0",
        "flash_attention": "on",
        "args": ["--jinja", "--temp", "-1"],
        "replicas": 4,
        "priority": -15,
        "memory_gib": 24,
        "env": {"A": "b"},
        "node_selector": {"room": "a"},
        "start_timeout": "20m",
    }


def test_no_cpu_profile_is_added_to_count_none():
    cards = written("name: m\nprofiles: [{name: gpu, engine: llamacpp, gpu: {class: l40s}, replicas: 1}]\n")

    with pytest.raises(Refused, match="no profile cpu"):
        replicas(cards, {"cpu": 0}, CpuNeed(memory_gib=1))


@pytest.mark.parametrize(
    ("args", "left"),
    [
        (["-ngl", "99"], []),
        (["-ngl=99"], []),
        (["--n-gpu-layers", "99", "-v"], ["-v"]),
        (["--n-gpu-layers=99", "-v"], ["-v"]),
        (["--gpu-layers", "-1", "-v"], ["-v"]),
        (["-sm", "row", "--split-mode=layer"], []),
        (["-ts", "3,1", "--tensor-split=1,1"], []),
        (["-mg", "1", "--main-gpu=0", "-mg=1"], []),
        (["--temp", "0", "-fa", "--jinja"], ["--temp", "0", "-fa", "--jinja"]),
        (["-ngl", "-v"], ["-v"]),
        ([], []),
    ],
    ids=" ".join,
)
def test_flags_that_concern_cards_go_in_both_spellings_with_their_values(args, left):
    assert without_card_flags(args) == left
