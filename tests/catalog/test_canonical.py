"""However a model is written, it is one model: one spec and one fingerprint."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
import yaml
from catalog.written import MODEL, SERVER, WIDE, WIDE_KEY, WIDE_SERVER, as_yaml, changed
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.catalog import canonical
from llmgw.catalog.check import read_fleet, read_models, read_server
from llmgw.catalog.fields import Strict
from llmgw.catalog.fingerprint import fingerprint
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.catalog.scalars import resolve
from llmgw.catalog.server import Server
from llmgw.catalog.source import Source


def defaults(kind: type[Strict]) -> dict[str, Any]:
    """What stands for each field that is not written, where it does not depend on others."""
    fields = {
        field.alias or name: field
        for name, field in kind.model_fields.items()
        if not field.is_required() and field.default_factory is None
    }
    return {key: written(field.default) for key, field in fields.items()}


def written(value: Any) -> Any:
    """A value of the types as a file has it."""
    if isinstance(value, Strict):
        return value.model_dump(mode="json", by_alias=True)
    return list(value) if isinstance(value, tuple) else value


DURATIONS = {"start_timeout", "drain_timeout", "down_delay", "interval", "max_wait"}
SIZES = {"memory_gib": "GiB"}
UNORDERED = {"aliases", "profiles", "tags", "capabilities"}


def one(data: bytes) -> Model:
    (entry,) = read_models("catalog/a.yaml", data).models
    return entry.model


def identity(model: Model) -> tuple[str, list[str]]:
    """What must not differ between two ways to write one model."""
    return json.dumps(canonical.spec(model)), sorted(fingerprint(model, p) for p in model.profiles)


def wordings(value: Any, dice: random.Random, key: str = "") -> str:
    """One of the many ways to write a value in YAML."""
    match value:
        case dict():
            keys = list(value)
            dice.shuffle(keys)
            return "{" + ", ".join(f"{wordings(k, dice)}: {wordings(value[k], dice, k)}" for k in keys) + " }"
        case list():
            items = list(value)
            if key in UNORDERED:
                dice.shuffle(items)
            return "[" + ", ".join(wordings(item, dice) for item in items) + " ]"
        case None:
            return dice.choice(["null", "~", "Null", "NULL"])
        case str():
            quoted = [json.dumps(value), "'" + value.replace("'", "''") + "'"]
            plain = re.fullmatch(r"[a-z][a-z0-9_./-]*", value) and isinstance(resolve(value), str)
            return dice.choice([*quoted, value] if plain else quoted)
        case int() | float() if key in DURATIONS and not isinstance(value, bool):
            spelled = [f"{value}s", f'"{value / 60!r}m"' if (value / 60).is_integer() else f"{value}s"]
            return dice.choice([*numbers(value), *spelled])
        case bool():
            return dice.choice(["true", "True", "TRUE"] if value else ["false", "False", "FALSE"])
        case int() | float() if key in SIZES:
            return dice.choice([*numbers(value), f"{value}{SIZES[key]}", f'"{value * 1024}MiB"'])
        case _:
            return dice.choice(numbers(value))


def numbers(value: float) -> list[str]:
    ways = [repr(value), f"+{value!r}" if value > 0 else repr(value), f"{value!r}e0", f"{float(value)!r}"]
    return [*ways, f"0x{value:x}", f"0o{value:o}"] if isinstance(value, int) and value >= 0 else ways


names = st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,12}\Z")
texts = st.text(st.characters(min_codepoint=32, max_codepoint=0x17F, exclude_categories=["Cc"]), max_size=20)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def profiles(draw: Any, name: str) -> dict[str, Any]:
    required = {"name": name, "engine": draw(st.sampled_from(["llamacpp", "vllm", "sglang"]))}
    required["replicas"] = draw(st.integers(1, 9))
    required["memory_gib"] = draw(st.integers(1, 64) | st.sampled_from([0.5, 1.25]))
    return required | draw(
        optional(
            gpu=st.fixed_dictionaries({"class": names}, optional={"count": st.integers(1, 8)}),
            priority=st.integers(-5, 500),
            weight=st.integers(1, 5),
            parallel=st.integers(1, 4),
            context=st.integers(50_000, 90_000),
            cpu_cores=st.integers(1, 64),
            threads=st.integers(1, 64),
            node_selector=st.dictionaries(names, texts, max_size=2),
            args=st.lists(st.sampled_from(["--mlock", "on", "--seed", "7"]), max_size=3),
            start_timeout=st.integers(1, 7200),
            drain_timeout=st.integers(1, 7200),
            spill=st.booleans(),
            placement=st.sampled_from(["spread", "binpack"]),
            env=st.dictionaries(st.sampled_from(["A", "B", "C"]), texts, max_size=2),
            restart=texts,
        )
    )


@st.composite
def models(draw: Any) -> dict[str, Any]:
    required = {
        "name": draw(names),
        "source": {"from": "https://example.com/x.gguf", "version": draw(names)},
        "context_length": draw(st.integers(1, 10_000)),
        "profiles": [draw(profiles(n)) for n in draw(st.lists(names, min_size=1, max_size=3, unique=True))],
    }
    more = optional(
        description=texts,
        owner=texts,
        kind=st.sampled_from(["chat", "completion"]),
        state=st.sampled_from(["running", "stopped"]),
        tags=st.lists(names, max_size=3, unique=True),
        license=texts,
        capabilities=st.lists(st.sampled_from(["json", "tools", "vision"]), max_size=3, unique=True),
        unlisted=st.booleans(),
        health=optional(interval=st.integers(1, 60), inference=st.booleans()),
        routing=optional(
            retries=st.integers(0, 9),
            queue=optional(size=st.integers(0, 99), max_wait=st.integers(1, 99)),
            fallbacks=st.just([{"on": ["full"], "to": "elsewhere"}]),
            parameters=optional(set=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-9, 9) | texts)),
        ),
        rollout=optional(max_surge=st.integers(1, 9), canary=st.fixed_dictionaries({"weight": st.integers(1, 99)})),
        aliases=st.lists(names, max_size=3, unique=True).filter(lambda a: required["name"] not in a),
    )
    model = required | draw(more) | {"class": draw(st.sampled_from(["guaranteed", "standard", "opportunistic"]))}
    return scaled(model, draw) if draw(st.booleans()) else model


def scaled(model: dict[str, Any], draw: Any) -> dict[str, Any]:
    """The same with bounds in place of its counts."""
    bounds = st.fixed_dictionaries({"max": st.integers(3, 9)}, optional={"min": st.integers(0, 3)})
    profiles = [{k: v for k, v in p.items() if k != "replicas"} for p in model["profiles"]]
    return {**model, "profiles": profiles, "scaling": draw(bounds)}


def with_defaults(model: dict[str, Any]) -> dict[str, Any]:
    """The same with every default written out."""
    return {
        **defaults(Model),
        **model,
        "source": {**defaults(Source), **model["source"]},
        "profiles": [{**defaults(Profile), **profile} for profile in model["profiles"]],
    }


@settings(max_examples=min(70, settings().max_examples // 4), deadline=None)
@given(models(), st.booleans(), st.randoms(use_true_random=False))
def test_however_a_model_is_written_it_is_one_model(model, written_out, dice):
    plain = one(as_yaml(model))

    again = one(wordings(with_defaults(model) if written_out else model, dice).encode())

    assert identity(again) == identity(plain)


@settings(max_examples=min(50, settings().max_examples // 5), deadline=None)
@given(models())
def test_a_spec_is_read_back_as_the_model_it_was_made_of(model):
    first = one(as_yaml(model))
    spec = canonical.spec(first)

    for carried in (spec, json.loads(json.dumps(spec)), yaml.safe_load(yaml.safe_dump(spec, sort_keys=False))):
        assert identity(canonical.from_spec(carried)) == identity(first)
    # It is a good file as well, so a person can put it back under catalog/.
    assert identity(one(as_yaml(spec))) == identity(first)


def test_a_spec_has_every_default_that_says_something_written_out():
    spec = canonical.spec(one(as_yaml(MODEL)))

    # What is absent or empty says nothing, and what does not act yet is not there before it is set.
    assert spec["profiles"][0] == {
        "name": "cpu",
        "engine": "llamacpp",
        "replicas": 1,
        "priority": 100,
        "weight": 1,
        "parallel": 1,
        "memory_gib": 8,
        "memory_claim": "written",
        "placement": "spread",
        "mmap": True,
        "start_timeout": 600,
        "drain_timeout": 60,
        "restart": "",
    }
    assert [p["name"] for p in spec["profiles"]] == ["cpu", "gpu"]


def test_the_server_has_a_canonical_form_too():
    server, _ = read_server(as_yaml(SERVER))
    turned, _ = read_server(as_yaml(changed(SERVER, (("nodes",), SERVER["nodes"][::-1]), (("node_grace",), "600s"))))

    assert json.dumps(canonical.spec(server)) == json.dumps(canonical.spec(turned))
    assert read_server(as_yaml(canonical.spec(server)))[1] == ()


@pytest.mark.parametrize(
    ("kind", "value"), [(Model, WIDE), (Server, WIDE_SERVER), (ClientKey, WIDE_KEY), (Model, MODEL), (Server, SERVER)]
)
def test_every_field_is_read_back_as_it_was_written(kind, value):
    first = kind.model_validate(value, by_name=False)

    again = kind.model_validate(json.loads(json.dumps(canonical.spec(first))), by_name=False)

    assert json.dumps(canonical.spec(again)) == json.dumps(canonical.spec(first))


@pytest.mark.parametrize("at", [("colour",), ("profiles", 0, "colour")])
def test_a_spec_of_a_later_version_is_not_half_understood(at):
    spec = changed(canonical.spec(one(as_yaml(MODEL))), (at, "red"))

    with pytest.raises(ValueError, match="colour"):
        canonical.from_spec(spec)


@settings(max_examples=min(25, settings().max_examples // 8), deadline=None)
@given(st.lists(models(), min_size=1, max_size=4, unique_by=lambda m: m["name"]), st.randoms(use_true_random=False))
def test_any_order_of_keys_and_files_asks_for_the_same(several, dice):
    """One model a file, files in any order, keys in any order; or all of them in one file, as a list."""
    several = [{**m, "aliases": [], "state": "stopped"} | {"routing": {}} for m in several]
    server = {**SERVER, "defaults": {"owner": "team", "profile": {"threads": 3}}, "blocks": {"b": {"license": "MIT"}}}
    plain = {"server.yaml": as_yaml(server), **{f"catalog/{n}.yaml": as_yaml(m) for n, m in enumerate(several)}}

    shuffled = {"server.yaml": wordings(server, dice).encode()}
    order = list(enumerate(several))
    dice.shuffle(order)
    shuffled |= {f"catalog/{9 - n}.yaml": wordings(m, dice).encode() for n, m in order}
    listed = {"catalog/all.yaml": wordings(several, dice).encode(), "server.yaml": as_yaml(server)}

    first, second, third = (asked(read_fleet(files)) for files in (plain, shuffled, listed))
    assert first == second == third
    assert len(first) == len(several)


def asked(catalog: Any) -> list[tuple[str, list[str]]]:
    assert catalog.problems == ()
    return sorted(identity(entry.model) for entry in catalog.models)
