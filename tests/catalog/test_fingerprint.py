"""What starts replicas again, and what does not: every field, one by one."""

from __future__ import annotations

from typing import Any

from cases import for_each
from catalog.written import GONE, MODEL, WIDE, as_yaml, changed

from llmgw.catalog import forms, reference, schema
from llmgw.catalog.check import read_models
from llmgw.catalog.fingerprint import EFFECTS, Effect, fingerprint
from llmgw.catalog.model import Model

AT = {
    "model": (),
    "source": ("source",),
    "profile": ("profiles", 0),
    "gpu": ("profiles", 0, "gpu"),
    "speculative": ("profiles", 0, "speculative"),
    "adapter": ("source", "adapters", 0),
    "scaling": ("scaling",),
    "target": ("scaling", "target"),
    "schedule entry": ("scaling", "schedule", 0),
    "health": ("health",),
    "rollout": ("rollout",),
    "canary": ("rollout", "canary"),
    "routing": ("routing",),
    "queue": ("routing", "queue"),
    "time limits": ("routing", "time_limits"),
    "fallback": ("routing", "fallbacks", 0),
    "parameters": ("routing", "parameters"),
    "access": ("access",),
    "cost": ("access", "cost"),
    "external": ("external",),
}
"""The way to each type of a model, by its title."""

LIKE = changed(MODEL, *(((key,), value) for key, value in WIDE.items() if key not in {*MODEL, "extends", "source"}))
LIKE["source"] = {**WIDE["source"], **MODEL["source"]}
LIKE["profiles"][0] = {**WIDE["profiles"][0], **LIKE["profiles"][0], "command": []}
LIKE["profiles"][0]["gpu"] = {**WIDE["profiles"][0]["gpu"], **MODEL["profiles"][0]["gpu"]}
"""A model that has every field there is."""

OTHER: dict[tuple[str, str], Any] = {
    ("model", "name"): "coder2",
    ("model", "class"): "guaranteed",
    ("model", "source"): {"from": "/mnt/coder.gguf"},
    ("model", "profiles"): LIKE["profiles"][:1],
    ("profile", "name"): "cards",
    ("profile", "engine"): "vllm",
    ("external", "base_url"): "https://elsewhere.example.com",
    ("health", "path"): "/elsewhere",
    ("fallback", "on"): ["error"],
}
"""Another value for the fields whose type is not enough to find one."""


def other(kind: str, key: str) -> Any:
    """Another value for a field."""
    if (kind, key) in OTHER:
        return OTHER[kind, key]
    here: Any = LIKE
    for step in AT[kind]:
        here = here[step]
    part = schema.node(TYPES[kind], (key,))
    return another(here.get(key), part)


def another(value: Any, part: Any) -> Any:
    """A value of the same form that is not this one."""
    form = {choice.get("pattern") for choice in (part, *part.get("anyOf", ()))} - {None}
    if "enum" in part:
        return next(choice for choice in part["enum"] if choice != value)
    for pattern, like in CHOICES.items():
        if pattern in form:
            return like
    match value:
        case bool():
            return not value
        case int() | float():
            return value / 2 if value < 1 else value + 1
        case str() | None:
            return "elsewhere"
        case list() | dict():
            return GONE
    raise AssertionError(value)


CHOICES = {
    forms.DURATION: "77s",
    forms.AUTO: "77s",
    forms.SIZE: "77MiB",
    forms.GIB_SIZE: "77GiB",
    forms.SIZE_SPAN: "..77GB",
    forms.SPAN: "..77",
    forms.SHA256: "cd" * 32,
    forms.CRON: "7 7 * * *",
    forms.ZONE: "Europe/Paris",
}
TYPES = {section.title: section.kind for section in reference.sections()}
ACTS = {s.title: {key for key in EFFECTS[s.title] if not s.marked(key)} for s in reference.sections()}

IN_THE_ID = {("profile", "name")}
"""Starts replicas again because it makes others of them, not because of the fingerprint."""

NO_POOL = (("profiles", 0, "context"), GONE)


def wide(*changes) -> str:
    """The fingerprint of a model with every field, after changes. Rules are not asked: it breaks some."""
    model = Model.model_validate(changed(LIKE, NO_POOL, *changes), by_name=False)
    return fingerprint(model, model.profiles[0])


def of(*changes, index: int = 0) -> str:
    """The fingerprint of one of the sample's profiles, after changes."""
    found = read_models("catalog/a.yaml", as_yaml(changed(MODEL, NO_POOL, *changes)))
    assert found.problems == ()
    return fingerprint(found.models[0].model, found.models[0].model.profiles[index])


def test_every_type_of_a_model_is_tried():
    mine = {"model", *(s.title for s in reference.sections() if s.title in AT)}

    assert set(AT) == mine
    assert {title for title in EFFECTS if title not in AT} == {
        *("server.yaml", "node", "node engine", "ssh", "caller", "card", "mirror", "policy", "quota", "engine build"),
        *("notification", "freeze window", "client key", "limits", "budget"),
    }


@for_each({f"{kind}.{key}": (kind, key) for kind in AT for key in EFFECTS[kind]})
def test_a_field_starts_replicas_again_when_the_table_says_so_and_else_never(field):
    kind, key = field
    before, after = wide(), wide(((*AT[kind], key), other(kind, key)))

    # What does not act yet changes nothing yet, whatever it will do.
    restarts = EFFECTS[kind][key] is Effect.RESTARTS and key in ACTS[kind]
    assert (before != after) == (restarts and (kind, key) not in IN_THE_ID)


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
