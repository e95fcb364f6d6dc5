"""VO7: a broken file freezes its own models and no other, and what cannot be told is not taken for absent."""

from __future__ import annotations

import pytest
from catalog.written import GONE, KEY, MODEL, SERVER, as_yaml, changed

from llmgw.catalog.check import MISSING_SERVER, assemble, read_fleet, read_keys, read_models
from llmgw.catalog.clients import expired
from llmgw.catalog.problem import Problem


def named(name: str, *aliases: str, **more) -> dict:
    return changed(MODEL, (("name",), name), (("aliases",), list(aliases)), *(((k,), v) for k, v in more.items()))


def fleet(**files: bytes):
    """The catalog of a good server.yaml and files of models by name."""
    return read_fleet({"server.yaml": as_yaml(SERVER), **{f"catalog/{n}.yaml": data for n, data in files.items()}})


def good(catalog) -> list[str]:
    return [entry.model.name for entry in catalog.models]


BAD = as_yaml(named("bad", state="runing"))


def test_a_good_repository_is_all_there():
    catalog = read_fleet(
        {
            "server.yaml": as_yaml(SERVER),
            "catalog/b.yaml": as_yaml([named("b"), named("a", "x")]),
            "catalog/deep/er/c.yml": as_yaml(named("c")),
            "keys/k.yaml": as_yaml({**KEY, "models": ["a", "x"]}),
        }
    )

    assert (good(catalog), catalog.problems, catalog.frozen, catalog.unreadable_paths) == (["a", "b", "c"], (), (), ())
    assert [(e.path, e.line, e.column) for e in catalog.models] == [
        ("catalog/b.yaml", 51, 2),
        ("catalog/b.yaml", 2, 2),
        ("catalog/deep/er/c.yml", 1, 1),
    ]
    assert [e.key.name for e in catalog.keys] == ["helpdesk"]
    assert catalog.server is not None
    assert catalog.server.cluster == "lab"


@pytest.mark.parametrize(
    ("broken", "frozen", "unreadable"),
    [
        pytest.param(BAD, ("bad",), False, id="a value that does not fit"),
        pytest.param(as_yaml(named("bad", colour=1)), ("bad",), False, id="an unknown key"),
        pytest.param(as_yaml(named("bad", max_output=9999)), ("bad",), False, id="a rule"),
        pytest.param(b"name: bad\nname: bad\n", ("bad",), False, id="a key that is there twice"),
        pytest.param(b"name: bad\nsource: [}\n", ("bad",), True, id="an end in the middle"),
        pytest.param(b"source: [}\n", (), True, id="an end before the name"),
        pytest.param(b"name: Not A Name\n", (), True, id="a name that is none"),
        pytest.param(b"name: *x\n", (), True, id="a name that is an alias"),
        pytest.param(b"", (), True, id="nothing"),
        pytest.param(b"[]", (), True, id="an empty list"),
        pytest.param(b"only text", (), True, id="no model"),
        pytest.param(b"\xff", (), True, id="no text"),
        pytest.param(b"[{name: bad}, 3]", ("bad",), True, id="one model of two without a name"),
    ],
)
def test_vo7_a_broken_file_freezes_its_own_models_and_no_other(broken, frozen, unreadable):
    catalog = fleet(a=as_yaml(named("a")), broken=broken, z=as_yaml(named("z")))

    assert good(catalog) == ["a", "z"]
    assert catalog.frozen == frozen
    assert catalog.unreadable_paths == (("catalog/broken.yaml",) if unreadable else ())
    assert {p.path for p in catalog.problems} == {"catalog/broken.yaml"}
    assert all(p.line >= 1 and p.column >= 1 for p in catalog.problems)


def test_one_model_of_a_list_is_frozen_alone():
    found = read_models("catalog/a.yaml", as_yaml([named("a"), named("b", state="runing"), named("c")]))

    assert [e.model.name for e in found.models] == ["a", "c"]
    assert [(p.model, p.what) for p in found.problems] == [("b", "`state` cannot be `runing`")]
    assert (found.names, found.readable) == (("a", "b", "c"), True)


def test_a_problem_of_the_whole_file_freezes_all_its_models():
    found = read_models("catalog/a.yaml", b"%YAML 1.2\n---\n" + as_yaml([named("a"), named("b")]))

    assert (found.models, found.names) == ((), ("a", "b"))


def test_two_files_that_claim_one_name_are_both_problems_and_neither_is_used():
    catalog = fleet(a=as_yaml(named("same")), b=as_yaml(named("same")), c=as_yaml(named("c")))

    assert good(catalog) == ["c"]
    assert catalog.frozen == ("same",)
    assert [(p.where, p.why) for p in catalog.problems] == [
        ("catalog/a.yaml:2:10", "catalog/b.yaml:2 has it for a model, and a request by that name could mean either"),
        ("catalog/b.yaml:2:10", "catalog/a.yaml:2 has it for a model, and a request by that name could mean either"),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(named("a", "shared"), named("b", "shared"), id="an alias of both"),
        pytest.param(named("a", "b"), named("b"), id="an alias that is the other's name"),
        pytest.param(named("a"), named("b", "a", state="runing"), id="an alias of a broken model"),
    ],
)
def test_aliases_are_names_too(one, other):
    catalog = fleet(one=as_yaml(one), other=as_yaml(other))

    assert (good(catalog), catalog.frozen) == ([], ("a", "b"))
    assert [p.model for p in catalog.problems if "taken twice" in p.what] == ["a", "b"]


def test_two_models_of_one_name_in_one_file_are_found_too():
    assert [p.where for p in fleet(a=as_yaml([named("a"), named("a")])).problems] == [
        "catalog/a.yaml:3:11",
        "catalog/a.yaml:52:11",
    ]


def test_an_alias_that_is_there_twice_in_one_model_is_said_once():
    assert [p.what for p in fleet(a=as_yaml(named("a", "x", "x"))).problems] == ["the alias x is there twice"]


def test_without_server_yaml_that_is_the_problem_and_the_models_stay_as_they_were():
    # What they are read with is in it: without, those that run would start again as something else.
    catalog = read_fleet({"catalog/a.yaml": as_yaml(named("a"))})

    assert (catalog.server, catalog.problems, good(catalog)) == (None, (MISSING_SERVER,), [])
    assert catalog.frozen == ("a",)
    assert str(MISSING_SERVER).startswith("server.yaml: server.yaml is missing\n  because ")


def test_a_server_with_a_problem_is_not_acted_on_and_the_models_are_known():
    catalog = read_fleet(
        {"server.yaml": as_yaml(changed(SERVER, (("cluster",), GONE))), "catalog/a.yaml": as_yaml(MODEL)}
    )

    assert (catalog.server, good(catalog)) == (None, ["coder"])
    assert [p.what for p in catalog.problems] == ["`cluster` is missing"]


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"3", b"schema: 2\ncluster: lab\n", b"schema: [}", b"schema: 1\ncluster: lab\ncluster: lab\n"],
)
def test_a_file_that_is_no_server_is_a_problem(text):
    catalog = read_fleet({"server.yaml": text})

    assert catalog.server is None
    assert [p.path for p in catalog.problems] == ["server.yaml"]


def test_what_could_not_be_read_as_a_file_counts_as_unreadable():
    others = [
        Problem("catalog/link.yaml", 0, 0, "this cannot be read", "it is a link", "put the file here"),
        Problem("keys/link.yaml", 0, 0, "this cannot be read", "it is a link", "put the file here"),
        Problem("server.yaml", 0, 0, "this cannot be read", "it is a link", "put the file here"),
    ]

    catalog = read_fleet({}, others)

    assert catalog.problems == tuple(others)
    assert catalog.unreadable_paths == ("catalog/link.yaml",)


def test_the_order_of_files_does_not_matter():
    files = [
        read_models(f"catalog/{n}.yaml", as_yaml(model))
        for n, model in enumerate([named("a", "x"), named("b", "x"), *[named("c")] * 3, named("d", state="no")])
    ]
    keys = [read_keys(f"keys/{n}.yaml", as_yaml(KEY)) for n in range(3)]

    assert assemble(None, files, keys) == assemble(None, reversed(files), reversed(keys))


def test_a_key_is_used_once_and_the_first_file_counts():
    other = changed(KEY, (("models",), ["z"]))
    renamed = changed(KEY, (("sha256",), "ee" * 32))

    catalog = read_fleet(
        {
            "server.yaml": as_yaml(SERVER),
            "catalog/a.yaml": as_yaml(named("coder", "z")),
            "keys/b.yaml": as_yaml([other, renamed]),
            "keys/a.yaml": as_yaml(KEY),
        }
    )

    assert [(e.key.name, e.key.sha256[:2], e.key.models) for e in catalog.keys] == [
        ("helpdesk", "cd", ("coder",)),
        ("helpdesk", "ee", ("coder",)),
    ]
    assert [(p.where, p.what) for p in catalog.problems] == [
        ("keys/b.yaml:2:2", "the hash of key helpdesk is there twice"),
        ("keys/b.yaml:2:2", "the key helpdesk is there twice"),
        ("keys/b.yaml:9:2", "the key helpdesk is there twice"),
    ]


def test_a_broken_key_does_not_take_the_others_of_its_file():
    found = read_keys("keys/a.yaml", as_yaml([KEY, changed(KEY, (("sha256",), "short"))]))

    assert [(e.key.name, e.place) for e in found.keys] == [("helpdesk", (2, 2))]
    assert [p.what for p in found.problems] == ["`sha256` cannot be `short`"]


@pytest.mark.parametrize("callers", ["gateways", "operators", "nodes"])
def test_a_client_has_no_key_of_somebody_else_and_both_places_say_so(callers):
    who = {"name": "front", "key_sha256": KEY["sha256"]} | ({"address": "10.0.0.9"} if callers == "nodes" else {})
    key = {**KEY, "models": []}
    files = {"server.yaml": as_yaml({**SERVER, callers: [who]}), "keys/k.yaml": as_yaml(key)}

    catalog = read_fleet(files)

    kind = callers.removesuffix("s")
    assert [(p.path, p.what) for p in catalog.problems] == [
        ("keys/k.yaml", f"the client helpdesk has the key of the {kind} front"),
        ("server.yaml", f"the {kind} front has the key of the client helpdesk"),
    ]
    assert catalog.keys == ()
    assert catalog.server is not None


@pytest.mark.parametrize(
    ("wanted", "do"),
    [
        ("a", None),
        ("x", None),
        ("aa", "write `a`"),
        ("nope", "write the name of a model of this fleet, or take it out"),
    ],
    ids=["a model", "an alias", "nearly a model", "no model"],
)
def test_a_key_is_for_models_there_are(wanted, do):
    files = {
        "server.yaml": as_yaml(SERVER),
        "catalog/a.yaml": as_yaml(named("a", "x")),
        "keys/k.yaml": as_yaml({**KEY, "models": [wanted]}),
    }

    catalog = read_fleet(files)

    what = f"the key helpdesk may use {wanted}, which is no model"
    assert [(p.path, p.what, p.do) for p in catalog.problems] == ([("keys/k.yaml", what, do)] if do else [])
    # It may use the others still, and one that comes back.
    assert [entry.key.models for entry in catalog.keys] == [(wanted,)]


def test_what_a_key_is_for_is_not_judged_while_a_file_of_models_cannot_be_read():
    files = {
        "server.yaml": as_yaml(SERVER),
        "catalog/a.yaml": b"[}",
        "keys/k.yaml": as_yaml({**KEY, "models": ["nope"]}),
    }

    assert {p.path for p in read_fleet(files).problems} == {"catalog/a.yaml"}


def test_a_key_is_over_on_the_day_after_its_last():
    entries = read_keys("keys/k.yaml", as_yaml({**KEY, "expires": "2027-01-31"})).keys

    assert list(expired(entries, "2027-01-31")) == []
    assert list(expired(entries, "2027-02-01")) == [
        "keys/k.yaml:1:1: note: the last day of key helpdesk was 2027-01-31"
    ]
