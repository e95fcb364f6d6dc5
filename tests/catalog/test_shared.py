"""What server.yaml writes for many models: under each of them, and said where it is written."""

from __future__ import annotations

import pytest
from catalog.written import GONE, MODEL, SERVER, as_yaml, changed

from llmgw.catalog.check import read_fleet
from llmgw.catalog.fingerprint import fingerprint

CPU = ("profiles", 1)


def fleet(server: dict, *models: dict):
    """The catalog of a server.yaml with more in it, and of some models."""
    files = {f"catalog/{n}.yaml": as_yaml(model) for n, model in enumerate(models)}
    return read_fleet({"server.yaml": as_yaml({**SERVER, **server}), **files})


def the_model(server: dict, model: dict):
    """The one model, which is good."""
    catalog = fleet(server, model)
    assert catalog.problems == ()
    return catalog.models[0].model


BARE = changed(MODEL, (("owner",), GONE), (("class",), GONE))


def test_a_model_has_the_defaults_that_it_does_not_write():
    model = the_model({"defaults": {"owner": "team-assist", "class": "guaranteed", "max_output": 7}}, BARE)

    assert (model.owner, model.class_, model.max_output) == ("team-assist", "guaranteed", 1024)


def test_nothing_written_keeps_a_default_out():
    shared = {"defaults": {"max_output": 7}}

    assert the_model(shared, changed(BARE, (("max_output",), None))).max_output is None
    assert the_model(shared, changed(BARE, (("max_output",), GONE))).max_output == 7


def test_every_profile_has_the_defaults_of_profiles():
    model = the_model({"defaults": {"profile": {"cpu_cores": 7, "start_timeout": "1h"}}}, BARE)

    assert [(p.cpu_cores, p.start_timeout) for p in model.profiles] == [(2, 900.0), (7, 3600.0)]


def test_a_block_counts_before_the_defaults_and_the_model_before_both():
    shared = {
        "defaults": {"owner": "a", "license": "MIT", "description": "d"},
        "blocks": {"small": {"owner": "b", "license": "BSD-3-Clause", "description": "e"}},
    }
    model = the_model(
        shared, changed(BARE, (("extends",), "small"), (("license",), "Apache-2.0"), (("description",), GONE))
    )

    assert (model.owner, model.license, model.description) == ("b", "Apache-2.0", "e")


def test_a_mapping_goes_on_key_by_key_and_a_list_is_taken_whole():
    shared = {"defaults": {"routing": {"retries": 5, "queue": {"size": 3, "max_wait": 1}}, "tags": ["a", "b"]}}
    model = the_model(shared, changed(BARE, (("routing",), {"queue": {"size": 9}}), (("tags",), ["c"])))

    assert (model.routing.retries, model.routing.queue.size, model.routing.queue.max_wait) == (5, 9, 1.0)
    assert model.tags == ("c",)


def test_blocks_and_defaults_go_on_key_by_key_between_themselves():
    shared = {
        "defaults": {"routing": {"queue": {"size": 3, "max_wait": 1}}},
        "blocks": {"small": {"routing": {"queue": {"size": 9}}}},
    }
    model = the_model(shared, changed(BARE, (("extends",), "small")))

    assert (model.routing.queue.size, model.routing.queue.max_wait) == (9, 1.0)


def test_what_is_written_out_and_what_is_brought_in_is_one_model():
    shared = {"defaults": {"owner": "team-code", "profile": {"env": {"A": "1"}}}}
    out = changed(BARE, (("owner",), "team-code"), *(((*("profiles", n), "env"), {"A": "1"}) for n in (0, 1)))

    brought, written = the_model(shared, BARE), the_model({}, out)

    assert brought == written
    assert fingerprint(brought, brought.profiles[0]) == fingerprint(written, written.profiles[0])


def test_counts_and_scaling_are_never_both_brought_together():
    scaled = changed(BARE, (("scaling",), {"max": 3}), *((("profiles", n, "replicas"), GONE) for n in (0, 1)))

    assert the_model({"defaults": {"scaling": {"max": 5}}}, BARE).scaling is None
    assert [p.replicas for p in the_model({"defaults": {"profile": {"replicas": 2}}}, scaled).profiles] == [None, None]
    assert (
        the_model(
            {"blocks": {"b": {"scaling": {"max": 5}}}, "defaults": {"profile": {"replicas": 2}}},
            changed(scaled, (("scaling",), GONE), (("extends",), "b")),
        ).scaling.max
        == 5
    )


@pytest.mark.parametrize(
    ("blocks", "do"),
    [
        pytest.param({"small": {}, "large": {}}, "write `small`", id="nearly one that is there"),
        pytest.param({"zzz": {}}, "add it to `blocks` in server.yaml, or take `extends` out", id="like no other"),
        pytest.param({}, "add it to `blocks` in server.yaml, or take `extends` out", id="none are there"),
    ],
)
def test_a_block_that_is_not_there_is_a_problem(blocks, do):
    (problem,) = fleet({"blocks": blocks}, changed(BARE, (("extends",), "smal"))).problems

    assert (problem.where, problem.what, problem.do) == (
        f"catalog/0.yaml:{problem.line}:{problem.column}",
        "there is no block smal",
        do,
    )


def test_a_problem_of_what_was_brought_in_is_said_where_it_is_written():
    server = (
        b"schema: 1\ncluster: lab\nmirror: {base: 'http://a:1', api: 'http://a:2'}\ndefaults:\n  max_output: 9999\n"
    )
    files = {
        f"catalog/{n}.yaml": as_yaml(changed(BARE, (("name",), n), (("aliases",), []), (("max_output",), GONE)))
        for n in ("a", "b")
    }

    catalog = read_fleet({"server.yaml": server, **files})
    moved = read_fleet({"server.yaml": b"# one line more\n" + server, **files})

    what = "`max_output` 9999 is over `context_length` 4096"
    assert [(p.where, p.what, p.model) for p in catalog.problems] == [
        ("server.yaml:5:15", what, ""),
    ]
    assert catalog.problems[0].why == "an answer is part of what one request may use; it is brought into a, b"
    assert catalog.frozen == ("a", "b")
    # The models were not read again, and the place is the new one.
    assert [p.where for p in moved.problems] == ["server.yaml:6:15"]


def test_what_is_wrong_in_many_models_at_once_names_some_of_them():
    models = [changed(BARE, (("name",), f"m{n}"), (("aliases",), []), (("max_output",), GONE)) for n in range(7)]

    (problem,) = fleet({"defaults": {"max_output": 9999}}, *models).problems

    assert problem.why.endswith("; it is brought into m0, m1, m2, m3, m4 and 2 more")


@pytest.mark.parametrize(
    "shared",
    [
        pytest.param({"blocks": {"b": {"max_output": "many"}}}, id="a wrong type in a block"),
        pytest.param({"defaults": {"max_output": "many"}}, id="a wrong type in the defaults"),
        pytest.param({"blocks": {"b": {"profile": {"parallel": -1}}}}, id="a wrong value of every profile"),
        pytest.param({"blocks": {"b": {"colour": 1}}}, id="an unknown key"),
    ],
)
def test_what_fits_no_model_is_said_once_of_server_yaml(shared):
    models = [
        changed(
            BARE,
            (("name",), n),
            (("aliases",), []),
            (("max_output",), GONE),
            (("profiles", 0, "parallel"), GONE),
            *([(("extends",), "b")] if "blocks" in shared else []),
        )
        for n in ("a", "b")
    ]

    (problem,) = fleet(shared, *models).problems

    assert (problem.path, problem.model) == ("server.yaml", "")
    assert "brought into" not in problem.why


@pytest.mark.parametrize("text", ["[}", "defaults: {owner: 7}", "blocks: {a: {colour: red}}", "defaults: 3"])
def test_models_stay_as_they_were_while_it_is_not_known_what_they_are_read_with(text):
    server = f"schema: 1\ncluster: lab\nmirror: {{base: 'http://a:1', api: 'http://a:2'}}\n{text}\n".encode()

    catalog = read_fleet({"server.yaml": server, "catalog/a.yaml": as_yaml(MODEL)})

    assert (catalog.server, catalog.models, catalog.frozen) == (None, (), ("coder",))
    assert {p.path for p in catalog.problems} == {"server.yaml"}


def test_a_slip_elsewhere_in_server_yaml_leaves_the_defaults_known():
    catalog = fleet({"node_grace": "soon", "defaults": {"owner": "team-assist"}}, BARE)

    assert (catalog.server, [e.model.owner for e in catalog.models]) == (None, ["team-assist"])


@pytest.mark.parametrize("key", ["name", "aliases", "source", "external", "profiles", "extends", "replaced_by"])
def test_what_each_model_has_for_itself_is_no_default(key):
    (problem,) = fleet({"defaults": {key: MODEL.get(key, "x")}}).problems

    assert problem.what == f"`defaults.{key}` is not a key of the defaults"


CARDS = [{"name": "big", "class": "l40s-48g", "count": 8}, {"name": "rtx-4090-24g", "class": "rtx-4090-24g"}]


@pytest.mark.parametrize("wanted", ["big", "l40s-48g"])
def test_a_card_is_known_by_its_name_and_by_its_class(wanted):
    model = the_model({"cards": CARDS}, changed(MODEL, (("profiles", 0, "gpu", "class"), wanted)))

    assert model.profiles[0].gpu.class_ == "l40s-48g"


@pytest.mark.parametrize(("wanted", "do"), [("l40-48g", "write `l40s-48g`"), ("zzz", None)])
def test_a_card_the_fleet_does_not_have_is_refused_with_those_it_has(wanted, do):
    (problem,) = fleet({"cards": CARDS}, changed(MODEL, (("profiles", 0, "gpu", "class"), wanted))).problems

    assert problem.what == f"the fleet has no card {wanted}"
    assert problem.why == "the cards of server.yaml are big (l40s-48g): 8, rtx-4090-24g"
    assert problem.do == (do or "write one of these, or add it to `cards` in server.yaml")


@pytest.mark.parametrize(
    ("wanted", "count", "there"),
    [("big", 8, None), ("big", 9, 8), ("l40s-48g", 9, 8), ("rtx-4090-24g", 64, None)],
    ids=["as many", "one more", "one more by its class", "it is not said how many there are"],
)
def test_a_replica_takes_no_more_cards_than_there_are(wanted, count, there):
    asked = changed(MODEL, (("profiles", 0, "gpu", "class"), wanted), (("profiles", 0, "gpu", "count"), count))

    found = [(p.what, p.why) for p in fleet({"cards": CARDS}, asked).problems]

    what = f"a replica of profile gpu takes {count} cards of {wanted}"
    why = f"the fleet has {there} of them, as `cards` of server.yaml says"
    assert found == ([(what, why)] if there else [])


def test_without_cards_in_server_yaml_any_class_may_be_asked_for():
    assert the_model({}, changed(MODEL, (("profiles", 0, "gpu", "class"), "zzz"))).profiles[0].gpu.class_ == "zzz"
