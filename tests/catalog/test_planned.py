"""No field is ignored in silence: it acts, or it is planned and that is said."""

from __future__ import annotations

import pytest
from catalog.written import KEY, MODEL, SERVER, WIDE, WIDE_KEY, WIDE_SERVER, as_yaml, changed

from llmgw.catalog import reference, schema
from llmgw.catalog.check import read_fleet
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.model import Model
from llmgw.catalog.planned import mark_of, set_in
from llmgw.catalog.problem import label
from llmgw.catalog.server import Server

ACTS = {
    "model": "name extends description aliases owner tags license kind capabilities unlisted replaced_by protect state "
    "source context_length max_output profiles scaling rollout class",
    "scaling": "min max target window up_delay down_delay idle_timeout schedule warm",
    "target": "concurrency slots queue rps",
    "schedule entry": "cron time_zone min max",
    "source": "from version sha256 checksums revision files ignore prefetch retain",
    "profile": "name engine engine_version gpu replicas priority weight parallel context cpu_cores threads memory_gib "
    "node_selector "
    "kv_type_k kv_type_v gpu_layers tensor_split cpu_moe flash_attention mmap batch args env start_timeout "
    "drain_timeout restart disk anti_affinity placement min_tps "
    "keep_within memory_claim",
    "gpu": "class count vendor name memory compute_capability slice",
    "server.yaml": "schema cluster state nodes gateways operators mirror cards defaults blocks node_grace policy "
    "freeze notifications",
    "notification": "name url_ref command on owners for",
    "freeze window": "name cron time_zone duration",
    "node": "name address key_sha256 labels drained cards_out",
    "caller": "name key_sha256",
    "mirror": "base api retain reserve parallel_nodes release_for_fetch",
    "card": "name class count",
    "policy": "max_removals required licenses unpinned_sources min_tps quotas soak models_at_once",
    "quota": "owner class cards memory_gib replicas",
    "rollout": "strategy max_surge max_unavailable auto_return freeze",
    "client key": "name sha256 owner models",
}
"""The fields something is done with, by the title of their type. Every other one is planned. Whoever makes a field
act takes its marker out and writes it down here."""

IN_PART = {("model", "kind"), ("profile", "engine"), ("profile", "start_timeout"), ("source", "from")}
"""Of these only some values are planned."""


@pytest.mark.parametrize("section", reference.sections(), ids=lambda section: section.title)
def test_a_field_acts_or_is_planned(section):
    keys = set(schema.of(section.kind)["properties"])

    assert {key for key in keys if not section.marked(key)} == set(ACTS.get(section.title, "").split())


def test_every_type_of_the_files_is_looked_at():
    titles = {str(part["title"]) for kind in (Model, Server, ClientKey) for part in schema.of(kind)["$defs"].values()}

    # What may be in defaults is what may be in a model, copied with its markers.
    assert titles - {"defaults", "profile defaults"} <= {section.title for section in reference.sections()}


def test_some_fields_are_planned_in_part():
    partly = {
        (section.title, field.alias or name)
        for section in reference.sections()
        for name, field in section.kind.model_fields.items()
        if (mark := mark_of(section.kind, name)) and mark.values
    }

    assert partly == IN_PART


@pytest.mark.parametrize(("kind", "value"), [(Model, WIDE), (Server, WIDE_SERVER), (ClientKey, WIDE_KEY)])
def test_every_planned_field_that_is_set_is_found(kind, value):
    """The wide samples set every field there is, so what is found is what the types mark."""
    found = {label(at).replace("[0]", "") for at in set_in(kind.model_validate(value, by_name=False))}

    def marked(section, at=""):
        for name, field in section.model_fields.items():
            key = f"{at}{field.alias or name}"
            mark = mark_of(section, name)
            if mark and not mark.values:
                yield key

    assert set(marked(kind)) <= found


def test_a_field_written_as_it_would_be_anyway_needs_no_note():
    value = changed(MODEL, (("health",), {"interval": 5}), (("profiles", 0, "tp"), 1), (("kind",), "chat"))

    assert list(set_in(Model.model_validate(value, by_name=False))) == []


def test_notes_say_where_a_planned_field_is_and_what_it_is_called():
    server = changed(SERVER, (("defaults",), {"health": {"interval": 9}}), (("mirror", "parallel_nodes"), 9))
    model = changed(MODEL, (("routing",), {"retries": 1}), (("profiles", 1, "start_timeout"), "auto"))
    key = changed(KEY, (("expires",), "2027-01-31"))

    catalog = read_fleet(
        {"server.yaml": as_yaml(server), "catalog/a.yaml": as_yaml(model), "keys/a.yaml": as_yaml(key)}
    )

    assert catalog.problems == ()
    # What the defaults bring into a model is noted once, in server.yaml.
    assert [(note.path, note.field) for note in catalog.notes] == [
        ("catalog/a.yaml", "profiles[1].start_timeout"),
        ("catalog/a.yaml", "routing"),
        ("keys/a.yaml", "expires"),
        ("server.yaml", "defaults.health"),
    ]
    assert all(note.line > 1 and note.column for note in catalog.notes)
    assert str(catalog.notes[1]).endswith("note: `routing` is planned: it is checked, and does not act yet")


def test_the_schema_says_what_is_planned():
    whole = schema.of(Model)["properties"]

    assert whole["routing"]["description"].endswith("*Planned*: it does not act yet.")
    assert whole["kind"]["description"].endswith("*Planned*: `rerank`, `audio` and `image` do not act yet.")
    assert "Planned" not in whole["owner"]["description"]
