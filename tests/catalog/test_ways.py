"""What a profile, its bounds and its requests may not contradict, each said with what to write instead."""

from __future__ import annotations

import pytest
from catalog.written import GONE, KEY, MODEL, SERVER, as_yaml, changed

from llmgw.catalog.check import read_fleet, read_keys, read_models, read_server

GPU, CPU = ("profiles", 0), ("profiles", 1)
VLLM = ((*GPU, "engine"), "vllm"), ((*GPU, "args"), [])
COMMAND = ((*GPU, "engine"), "command"), ((*GPU, "args"), [])
COUNTS = tuple((("profiles", n, "replicas"), GONE) for n in (0, 1))
SOURCE = ("source",)
URL = {"from": "https://example.com/x.gguf", "version": "v1"}
HUB = {"from": "hf://Qwen/Qwen3-8B@main/x.gguf", "version": "v1"}
PATH = {"from": "/mnt/x.gguf"}
EXTERNAL = {"base_url": "https://api.example.com/v1"}


def judged(*changes) -> list[tuple[str, str]]:
    """What is wrong with the sample once it is changed, and what to do."""
    return [(p.what, p.do) for p in read_models("catalog/a.yaml", as_yaml(changed(MODEL, *changes))).problems]


def said(value: dict) -> list[tuple[str, str]]:
    return [(p.what, p.do) for p in read_models("catalog/a.yaml", as_yaml(value)).problems]


@pytest.mark.parametrize(
    ("changes", "what", "do"),
    [
        pytest.param(
            [(("scaling",), {"max": 3})],
            "`scaling` is beside counts",
            "take `replicas` out of every profile, or take `scaling` out",
            id="scaling and counts",
        ),
        pytest.param(
            [((*CPU, "replicas"), GONE)],
            "`profiles[1].replicas` is missing",
            "add `replicas:` with a whole number from 0 to 100000, or `scaling:` to the model",
            id="neither scaling nor a count",
        ),
        pytest.param(
            [*COUNTS, (("scaling",), {"min": 0, "max": 0})],
            "the model would never run",
            "write `state: stopped`, or a `max` of at least 1",
            id="bounds of nothing",
        ),
        pytest.param(
            [*COUNTS, (("scaling",), {"min": 4, "max": 3})],
            "`scaling.min` cannot be 4",
            "write at most 3",
            id="bounds that cross",
        ),
        pytest.param(
            [*COUNTS, (("scaling",), {"max": 3, "warm": 4})],
            "`scaling.warm` cannot be 4",
            "write at most 3",
            id="more warm than there may be",
        ),
        pytest.param(
            [*COUNTS, (("scaling",), {"max": 3, "schedule": [{"cron": "0 7 * * *", "min": 4}]})],
            "`scaling.schedule[0].min` cannot be 4",
            "write at most 3, or a higher `max`",
            id="a schedule that crosses the bounds",
        ),
        pytest.param(
            [
                *COUNTS,
                (("scaling",), {"max": 3, "schedule": [{"cron": "0 7 * * *", "min": 1, "time_zone": "Europe/Berln"}]}),
            ],
            "`time_zone` cannot be `Europe/Berln`",
            "write `Europe/Berlin`",
            id="no time zone",
        ),
        pytest.param(
            [(("rollout",), {"max_surge": 0})],
            "the rollout cannot change anything",
            "give one of the two at least 1",
            id="a rollout without a step",
        ),
        pytest.param(
            [(("replaced_by",), "code")],
            "`replaced_by` cannot be `code`",
            "write another model, or take it out",
            id="replaced by itself",
        ),
        pytest.param(
            [(("routing",), {"fallbacks": [{"on": ["full"], "to": "coder"}]})],
            "`coder` falls back to itself",
            "write another model",
            id="a fallback to itself",
        ),
        pytest.param(
            [(("routing",), {"time_limits": {"first_token": "2h"}})],
            "`first_token` is longer than `whole`",
            "shorten it, or lengthen `whole`",
            id="a part longer than the whole",
        ),
        pytest.param(
            [(("routing",), {"parameters": {"strip": ["a"], "set": {"a": 1}}})],
            "`a` is both stripped and set",
            "take one out",
            id="a parameter taken out and put in",
        ),
        pytest.param(
            [(("routing",), {"parameters": {"set": {"a": [1]}}})],
            "`a` is set to what is no single value",
            "write one",
            id="a parameter set to a list",
        ),
        pytest.param(
            [(("access",), {"allow": ["ana"], "deny": ["ana"]})],
            "the key ana is both allowed and denied",
            "take one out",
            id="allowed and denied",
        ),
        pytest.param(
            [(("kind",), "rerank")], "`max_output` is on a rerank model", "take it out", id="an order with a length"
        ),
        pytest.param(
            [((*GPU, "tp"), 2)],
            "`tp` of profile gpu is not for llamacpp",
            "write `gpu.count`, over which llama.cpp divides the layers",
            id="another engine's knob",
        ),
        pytest.param(
            [*VLLM, ((*GPU, "gpu_layers"), 3)],
            "`gpu_layers` of profile gpu is not for vllm",
            "take it out: all layers are on the cards",
            id="llama.cpp's knob on another engine",
        ),
        pytest.param(
            [*VLLM, ((*GPU, "tp"), 2)],
            "`tp` 2 times `pp` 1 of profile gpu is no count of its cards",
            "write `gpu.count` as large as the two multiplied",
            id="parts that are not the cards",
        ),
        pytest.param(
            [((*GPU, "gpu", "count"), 2), ((*GPU, "gpu", "slice"), "1g.10gb")],
            "`count` of profile gpu cannot be 2 with `slice`",
            "write 1 and a larger slice, or take `slice` out",
            id="several slices",
        ),
        pytest.param(
            [((*CPU, "gpu_layers"), 3)],
            "`gpu_layers` is in profile cpu, which has no card",
            "take it out, or add `gpu:`",
            id="layers on no card",
        ),
        pytest.param(
            [((*GPU, "tensor_split"), [1, 2])],
            "`tensor_split` of profile gpu has 2 shares",
            "write 1 shares",
            id="shares of cards that are not there",
        ),
        pytest.param(
            [((*GPU, "kv_type_k"), "fp8")],
            "`kv_type_k` of profile gpu cannot be `fp8`",
            "write one of these",
            id="a cache the engine has not",
        ),
        pytest.param(
            [((*GPU, "kv_type_v"), "q8_0"), ((*GPU, "flash_attention"), "off"), ((*GPU, "args"), [])],
            "`kv_type_v` of profile gpu cannot be `q8_0` with `flash_attention: off`",
            "write `flash_attention: on`, or `kv_type_v: f16`",
            id="quantised values without flash attention",
        ),
        pytest.param(
            [((*GPU, "flash_attention"), "on")],
            "`--flash-attn` is in the args of profile gpu",
            "take it out, or `flash_attention`",
            id="a knob and its flag",
        ),
        pytest.param(
            [((*GPU, "command"), ["serve"])],
            "`command` of profile gpu is not for llamacpp",
            "write `args`, or `engine: command`",
            id="a command beside an engine",
        ),
        pytest.param(
            [*COMMAND],
            "profile gpu has no `command`",
            "add `command:` with the program and its words, `{model}` and `{port}` among them",
            id="a command that is missing",
        ),
        pytest.param(
            [*COMMAND, ((*GPU, "command"), ["serve", "{model}"])],
            "the `command` of profile gpu has no `{port}`",
            "put `{port}` where it takes its port",
            id="a command that listens anywhere",
        ),
        pytest.param(
            [*COMMAND, ((*GPU, "command"), ["serve", "{port}", "--gpus={cards}"])],
            "`{cards}` stands for nothing",
            "write one of these",
            id="a hole that is not filled",
        ),
        pytest.param([((*CPU, "env"), {"1A": "x"})], "`1A` is no name of a variable", "rename it", id="no variable"),
        pytest.param(
            [((*CPU, "env"), {"CUDA_VISIBLE_DEVICES": "0"})],
            "`CUDA_VISIBLE_DEVICES` is in the `env` of profile cpu",
            "take it out, and write `gpu`",
            id="KA2 cards by a variable",
        ),
        pytest.param(
            [((*CPU, "env"), {"A": "x"}), ((*CPU, "env_from"), {"A": "x"})],
            "`A` is in `env` and in `env_from`",
            "take one out",
            id="a variable of two values",
        ),
        pytest.param(
            [(SOURCE, {**URL, "revision": "main"})],
            "`revision` is beside one file",
            "take it out, or name a repository in `from`",
            id="a revision of one file",
        ),
        pytest.param(
            [(SOURCE, {**URL, "sha256": "ab" * 32, "checksums": {"x": "ab" * 32}})],
            "`sha256` and `checksums` are both there",
            "take one of them out",
            id="two kinds of sums",
        ),
        pytest.param(
            [(SOURCE, {**HUB, "files": ["../x"]})],
            "`files` has a path that leads away",
            "write it from the source on",
            id="a pattern that leads away",
        ),
        pytest.param(
            [(SOURCE, {**PATH, "prefetch": True})],
            "`prefetch` is beside a path",
            "take it out, or write `from: file://…`",
            id="a path that is fetched ahead",
        ),
        pytest.param(
            [(SOURCE, {"from": "mirror:coder/v1/", "version": "v1"})],
            "`version` is beside a version the mirror holds",
            "take it out",
            id="a held version under another",
        ),
        pytest.param(
            [(SOURCE, {**URL, "adapters": [{"name": "a", "source": "x.gguf"}]})],
            "`source` of the adapter cannot be `x.gguf`",
            "write https://…, file:///… or a path that begins with /",
            id="an adapter from nowhere",
        ),
        pytest.param(
            [(SOURCE, {**URL, "adapters": [{"name": "code", "source": "/x.gguf"}]})],
            "the adapter code has a name that is taken",
            "rename it",
            id="an adapter that is called like an alias",
        ),
    ],
)
def test_a_model_that_contradicts_itself(changes, what, do):
    assert judged(*changes) == [(what, do)]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([*COUNTS, (("scaling",), {"min": 0, "max": 3})], id="on demand"),
        pytest.param([*VLLM, ((*GPU, "tp"), 2), ((*GPU, "gpu", "count"), 2)], id="one part for each card"),
        pytest.param([*COMMAND, ((*GPU, "command"), ["serve", "--port={port}", "{model}"])], id="a whole command"),
        pytest.param([((*CPU, "tp"), 1)], id="another engine's knob as it is anyway"),
        pytest.param([((*GPU, "kv_type_k"), "q8_0"), ((*GPU, "tensor_split"), [1])], id="knobs of the engine"),
        pytest.param([(SOURCE, {**HUB, "files": ["*.gguf"], "ignore": ["*.md"]})], id="patterns of a repository"),
        pytest.param([(("context_length",), 4096), ((*GPU, "memory_gib"), "4GiB")], id="memory with a unit"),
    ],
)
def test_a_model_that_does_not(changes):
    assert judged(*changes) == []


def test_a_model_that_somebody_else_runs_needs_no_more_than_where():
    external = {"name": "large", "context_length": 1000, "external": EXTERNAL}

    assert said(external) == []
    assert said({**external, "source": URL, "profiles": MODEL["profiles"]}) == [
        ("`source` is beside `external`", "take `source` out, or `external`"),
        ("`profiles` is beside `external`", "take `profiles` out, or `external`"),
    ]


def test_what_a_model_lacks_is_said_in_the_same_run_as_all_else():
    assert said({"name": "a", "owner": 7}) == [
        ("`context_length` is missing", "add `context_length:` with a whole number from 1 to 100000000"),
        ("`profiles` is missing", "add `profiles:` with a list of profiles"),
        ("`source` is missing", "add `source:` with a mapping with the keys of a source"),
        ("`owner` cannot be `7`", 'write it in quotes: "7"'),
    ]


def test_an_adapter_is_asked_for_by_its_name_like_a_model():
    adapters = {**URL, "adapters": [{"name": "support", "source": "/x.gguf"}]}
    other = changed(MODEL, (("name",), "support"), (("aliases",), []))

    catalog = read_fleet(
        {
            "server.yaml": as_yaml(SERVER),
            "catalog/a.yaml": as_yaml(changed(MODEL, (SOURCE, adapters))),
            "catalog/b.yaml": as_yaml(other),
        }
    )

    assert [p.what for p in catalog.problems] == ["the name support is taken twice"] * 2
    assert catalog.frozen == ("coder", "support")


@pytest.mark.parametrize(
    ("policy", "change", "problem"),
    [
        pytest.param(
            {"required": ["license"]}, (("license",), GONE), ("coder has no `license`", "add `license:`"), id="required"
        ),
        pytest.param({"required": ["owner", "description"]}, (("license",), GONE), None, id="required and there"),
        pytest.param(
            {"licenses": ["MIT"]},
            (("license",), "GPL-3.0"),
            ("coder has the licence GPL-3.0", "write one of these, or have the policy changed"),
            id="another licence",
        ),
        pytest.param(
            {"licenses": ["MIT"]},
            (("license",), GONE),
            ("coder has no licence", "write one of these, or have the policy changed"),
            id="no licence",
        ),
        pytest.param({"licenses": ["MIT"]}, (("license",), "MIT"), None, id="the licence"),
        pytest.param(
            {"unpinned_sources": "refuse"},
            (SOURCE, URL),
            ("coder has a source that may change", "write its `sha256`, or a URL with a commit in it"),
            id="a source that may change",
        ),
        pytest.param({"unpinned_sources": "refuse"}, (SOURCE, PATH), None, id="a path"),
        pytest.param(
            {"unpinned_sources": "refuse"},
            (SOURCE, {**URL, "from": f"https://example.com/{'a' * 40}/x.gguf"}),
            None,
            id="a commit",
        ),
        pytest.param({"unpinned_sources": "refuse"}, (SOURCE, {**URL, "sha256": "ab" * 32}), None, id="a sum"),
    ],
)
def test_the_policy_of_the_fleet_is_asked_of_every_model(policy, change, problem):
    base = {**MODEL, "license": "Apache-2.0"}
    catalog = read_fleet(
        {"server.yaml": as_yaml({**SERVER, "policy": policy}), "catalog/a.yaml": as_yaml(changed(base, change))}
    )

    assert [(p.what, p.do) for p in catalog.problems] == ([problem] if problem else [])
    assert len(catalog.models) == (0 if problem else 1)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ((("replaced_by",), "codr"), "coder refers to codr, which is no model"),
        ((("routing",), {"fallbacks": [{"on": ["full"], "to": "nil"}]}), "coder refers to nil, which is no model"),
    ],
)
def test_a_name_that_is_referred_to_is_one_of_the_fleet(change, what):
    other = changed(MODEL, (("name",), "other"), (("aliases",), ["cod"]))
    files = {"server.yaml": as_yaml(SERVER), "catalog/a.yaml": as_yaml(changed(MODEL, change))}

    (problem,) = read_fleet({**files, "catalog/b.yaml": as_yaml(other)}).problems

    assert problem.what == what
    assert problem.line > 2, "it points at the name and not at the model"
    assert problem.do in {"write `cod`", "write the name of a model of this fleet, or take it out"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            (("cards",), [{"name": "a", "class": "x"}, {"name": "a", "class": "y"}]),
            ("two cards are called a", "rename one of them"),
            id="two cards of one name",
        ),
        pytest.param(
            (("cards",), [{"name": "a", "class": "b"}, {"name": "b", "class": "c"}]),
            ("the card a is of the class b, which is another card's name", "write the class that nodes report"),
            id="a name of a name",
        ),
        pytest.param(
            (("notifications",), [{"name": "a", "url_ref": "x"}] * 2),
            ("two notifications are called a", "rename one of them"),
            id="two notifications",
        ),
        pytest.param(
            (("notifications",), [{"name": "a"}]),
            ("the notification a is told in no way", "write the one that is meant"),
            id="a notification that goes nowhere",
        ),
        pytest.param(
            (("notifications",), [{"name": "a", "url_ref": "x", "command": "y"}]),
            ("the notification a is told in two ways", "write the one that is meant"),
            id="a notification that goes two ways",
        ),
        pytest.param(
            (("freeze",), [{"name": "a", "cron": "0 1 * * *", "duration": "1h", "time_zone": "Mars/Phobos"}]),
            ("`time_zone` cannot be `Mars/Phobos`", "write one like `Europe/Berlin`, or UTC"),
            id="no time zone",
        ),
        pytest.param(
            (("policy",), {"quotas": [{"owner": "a"}]}),
            ("a quota limits nothing", "add one of them, or take it out"),
            id="a quota of nothing",
        ),
        pytest.param(
            (
                ("engines",),
                [{"name": "vllm", "version": "1", "from": "https://a/x", "sha256": "ab" * 32}] * 2,
            ),
            ("the build vllm 1 linux-x86_64 cpu is there twice", "take one out"),
            id="two builds alike",
        ),
    ],
)
def test_a_fleet_that_contradicts_itself(change, problem):
    assert [(p.what, p.do) for p in read_server(as_yaml(changed(SERVER, change)))[1]] == [problem]


@pytest.mark.parametrize(("day", "good"), [("2028-02-29", True), ("2027-02-29", False)])
def test_a_key_ends_on_a_day_that_there_is(day, good):
    found = read_keys("keys/a.yaml", as_yaml({**KEY, "expires": day})).problems

    assert [p.what for p in found] == ([] if good else [f"`expires` cannot be `{day}`"])


@pytest.mark.parametrize("gpu", [{}, {"count": 2}])
def test_a_card_of_which_nothing_is_said_is_refused(gpu):
    assert judged(((*GPU, "gpu"), gpu)) == [
        (
            "`gpu` of profile gpu says of no card",
            "write its `class`, or `memory` like `24GB..`, or `vendor`, `name` or `compute_capability`",
        )
    ]


@pytest.mark.parametrize(
    "gpu",
    [{"memory": "80GB.."}, {"memory": "24GiB"}, {"vendor": "amd"}, {"name": "4090"}, {"compute_capability": "8.0.."}],
)
def test_a_card_of_any_class_may_be_asked_for_by_what_it_is(gpu):
    assert judged(((*GPU, "gpu"), gpu)) == []
