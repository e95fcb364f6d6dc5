"""What starts replicas again, and what does not: every field, one by one."""

from __future__ import annotations

import pytest
from catalog.written import GONE, MODEL, as_yaml, changed

from llmgw.catalog.check import read_models
from llmgw.catalog.fingerprint import EFFECTS, Effect, fingerprint

AT = {"model": (), "source": ("source",), "profile": ("profiles", 0), "gpu": ("profiles", 0, "gpu")}

OTHER = {
    ("model", "name"): "coder2",
    ("model", "description"): "Something else.",
    ("model", "aliases"): ["other"],
    ("model", "owner"): "team-other",
    ("model", "kind"): "completion",
    ("model", "class"): "guaranteed",
    ("model", "state"): "stopped",
    ("model", "source"): {"from": "/mnt/coder.gguf"},
    ("model", "context_length"): 2048,
    ("model", "max_output"): 512,
    ("model", "profiles"): MODEL["profiles"][:1],
    ("source", "from"): "https://example.com/other.gguf",
    ("source", "version"): "2027-01",
    ("source", "sha256"): "cd" * 32,
    ("profile", "name"): "cards",
    ("profile", "engine"): "vllm",
    ("profile", "gpu"): GONE,
    ("profile", "replicas"): 5,
    ("profile", "priority"): 7,
    ("profile", "weight"): 7,
    ("profile", "parallel"): 2,
    ("profile", "context"): 32768,
    ("profile", "cpu_cores"): 7,
    ("profile", "threads"): 7,
    ("profile", "memory_gib"): 7,
    ("profile", "node_selector"): {"room": "attic"},
    ("profile", "args"): ["--mlock"],
    ("profile", "start_timeout"): "1h",
    ("profile", "drain_timeout"): "1h",
    ("gpu", "class"): "h100-80g",
    ("gpu", "count"): 2,
}
"""Another value for every field of a model."""

IN_THE_ID = {("profile", "name")}
"""Starts replicas again because it makes others of them, not because of the fingerprint."""

NO_POOL = (("profiles", 0, "context"), GONE)


def of(*changes, index: int = 0) -> str:
    """The fingerprint of one of the sample's profiles, after changes."""
    found = read_models("catalog/a.yaml", as_yaml(changed(MODEL, NO_POOL, *changes)))
    assert found.problems == ()
    return fingerprint(found.models[0].model, found.models[0].model.profiles[index])


def test_every_field_of_a_model_is_tried():
    assert set(OTHER) == {(kind, key) for kind in AT for key in EFFECTS[kind]}


@pytest.mark.parametrize(("kind", "key"), sorted(OTHER))
def test_a_field_starts_replicas_again_when_the_table_says_so_and_else_never(kind, key):
    before, after = of(), of(((*AT[kind], key), OTHER[kind, key]))

    assert (before != after) == (EFFECTS[kind][key] is Effect.RESTARTS and (kind, key) not in IN_THE_ID)


def test_one_profile_does_not_restart_another():
    change = (("profiles", 0, "args"), ["--mlock"])

    assert of(change) != of()
    assert of(change, index=1) == of(index=1)


def test_a_context_length_that_does_not_reach_the_engine_restarts_nothing():
    pool, shorter = (("profiles", 0, "context"), 16384), (("context_length",), 2048)

    assert of(pool, shorter) == of(pool)


def test_a_context_length_reaches_the_engines_that_page_their_pool():
    paged = (("profiles", 0, "engine"), "vllm"), (("profiles", 0, "args"), [])
    pool, shorter = (("profiles", 0, "context"), 16384), (("context_length",), 2048)

    assert of(*paged, pool, shorter) != of(*paged, pool)


def test_a_pool_that_is_written_as_large_as_it_would_be_restarts_nothing():
    assert of((("profiles", 0, "context"), 4 * 4096)) == of()


def test_a_version_had_from_another_place_restarts_nothing_and_another_path_does():
    elsewhere = (("source", "from"), "https://elsewhere.example.com/x.gguf")
    here, there = ((("source",), {"from": path}) for path in ("/mnt/a.gguf", "/mnt/b.gguf"))

    assert of(elsewhere) == of()
    assert of(here) != of(there)


def test_an_upgrade_of_llmgw_restarts_nothing():
    # These were computed by the first version. Other values here are a restart of every replica that runs.
    assert (of(), of(index=1)) == ("a7c5f20114396d6f", "f85c81cf02b7488c")
