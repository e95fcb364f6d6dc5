"""Editing a file keeps every byte that was not asked to change, however it is written."""

from __future__ import annotations

import difflib
import re
from copy import deepcopy
from functools import cache

import pytest
import yaml
from cases import for_each
from catalog.styles import STYLES, WRITTEN

from llmgw.catalog.edit import File, append, drop, put, same
from llmgw.catalog.parse import parse
from llmgw.errors import Refused

PATH = "catalog/m.yaml"
ORDER = ("name", "description", "aliases", "owner", "state", "source", "context_length", "max_output", "profiles")

every_style = for_each(STYLES)


def value(data):
    document = parse(data)
    assert document.findings == ()
    return document.value


def model(data):
    """The way to the model `m`."""
    whole = value(data)
    return () if isinstance(whole, dict) else (next(i for i, one in enumerate(whole) if one["name"] == "m"),)


def at(whole, way):
    for step in way:
        whole = whole[step]
    return whole


def asked(data, way, new):
    """The file's value with another at `way`, made without the editor."""
    whole = deepcopy(value(data))
    at(whole, way[:-1])[way[-1]] = new
    return whole


@cache
def composed(data):
    """A file as the slow parser in Python reads it: another one than the editor uses."""
    text = data.decode().removeprefix("\ufeff").replace("\t", " ")  # that parser knows no tabs
    return yaml.compose(text, Loader=yaml.SafeLoader)


def span(data, way):
    """Where a scalar is."""
    node = composed(data)
    for step in way:
        node = node.value[step] if isinstance(step, int) else next(v for k, v in node.value if k.value == step)
    before = data.decode().startswith("\ufeff")
    return node.start_mark.index + before, node.end_mark.index + before


def comments(data):
    """Every comment of a file, sorted. Only for files without a `#` inside a value."""
    return sorted(re.findall(r"(?:^|(?<=\s))#.*", data.decode()))


def test_there_are_at_least_sixty_styles_and_forty_were_written_by_hand():
    assert len(STYLES) >= 60
    assert len(WRITTEN) >= 40
    assert len(set(STYLES.values())) > 150


@every_style
def test_another_count_changes_the_digits_and_nothing_else(data):
    way = (*model(data), "profiles", 0, "replicas")

    after = put(File(PATH, data), way, 12).data

    text, (start, end) = data.decode(), span(data, way)
    assert after.decode() == f"{text[:start]}12{text[end:]}"


@every_style
def test_the_value_that_is_there_already_changes_nothing(data):
    file = File(PATH, data)

    for way in ((*model(data), "profiles"), (*model(data), "source"), (*model(data), "context_length")):
        assert put(file, way, at(value(data), way)).data == data


@every_style
def test_a_new_key_is_one_more_and_without_it_the_bytes_are_as_before(data):
    way = (*model(data), "state")

    after = put(File(PATH, data), way, "stopped", order=ORDER)

    assert same(value(after.data), asked(data, way, "stopped"))
    assert comments(after.data) == comments(data)
    assert drop(after, way).data == data


@every_style
def test_a_new_key_in_a_profile_is_one_more_and_without_it_the_bytes_are_as_before(data):
    way = (*model(data), "profiles", 0, "threads")

    after = put(File(PATH, data), way, 8)

    assert same(value(after.data), asked(data, way, 8))
    assert comments(after.data) == comments(data)
    assert drop(after, way).data == data


@every_style
def test_a_new_profile_is_one_more_and_without_it_the_bytes_are_as_before(data):
    way = (*model(data), "profiles")
    new = {"name": "slow", "engine": "llamacpp", "args": ["--temp", "0"], "node_selector": {"room": "b"}, "replicas": 4}

    after = append(File(PATH, data), way, new)

    assert same(at(value(after.data), way), [*at(value(data), way), new])
    assert comments(after.data) == comments(data)
    assert drop(after, (*way, len(at(value(data), way)))).data == data


@every_style
def test_a_mapping_that_was_not_there_is_written_in_the_files_style(data):
    way = (*model(data), "rollout")

    after = put(File(PATH, data), way, {"strategy": "surge", "max_surge": 1})

    assert same(value(after.data), asked(data, way, {"strategy": "surge", "max_surge": 1}))
    assert comments(after.data) == comments(data)


@every_style
def test_what_is_missing_on_the_way_is_written_with_the_value(data):
    way = (*model(data), "health", "probe", "path")

    after = put(File(PATH, data), way, "/health")

    assert at(value(after.data), way) == "/health"
    assert same(value(drop(after, way[:-2]).data), value(data))


@every_style
def test_an_alias_more_and_one_less(data):
    way = (*model(data), "aliases")
    names = at(value(data), model(data)).get("aliases") or []

    after = put(File(PATH, data), way, [*names, "org/m:7b"], order=ORDER)
    again = put(after, way, names)

    assert at(value(after.data), way) == [*names, "org/m:7b"]
    assert comments(after.data) == comments(data)
    assert at(value(again.data), way) == names
    if names:
        assert again.data == data


TEXTS = ["short", "with: colon # and hash", "'", 'say "it"', "1.10", "no", "-", "日本 🦀", "a, [b] {c}", "two\nlines"]


@every_style
def test_any_text_takes_the_place_of_a_text(data):
    way = (*model(data), "source", "from")
    start, end = span(data, way)

    for text in TEXTS:
        after = put(File(PATH, data), way, text).data

        assert at(value(after), way) == text
        assert after.decode()[:start] == data.decode()[:start]
        assert after.decode().endswith(data.decode()[end:])


@every_style
def test_each_key_can_be_taken_out_and_the_others_stay(data):
    base = model(data)
    for way in [(*base, key) for key in at(value(data), base)] + [
        (*base, "profiles", 0, key) for key in at(value(data), base)["profiles"][0]
    ]:
        wanted = deepcopy(value(data))
        del at(wanted, way[:-1])[way[-1]]

        after = drop(File(PATH, data), way).data

        assert same(value(after), wanted), way
        _, _, *changes = difflib.unified_diff(data.decode().splitlines(), after.decode().splitlines(), n=0)
        gone = [line for line in changes if line[0] == "-"]
        # The lines that are changed are those of the value, and beside it those of a bracket or a comma.
        assert len(gone) <= len(str(data.decode())[slice(*whole_span(data, way))].splitlines()) + 2, way


def whole_span(data, way):
    """Where a value is, with its key."""
    node, start = composed(data), 0
    for step in way:
        if isinstance(step, int):
            node = node.value[step]
        else:
            key, node = next((k, v) for k, v in node.value if k.value == step)
            start = key.start_mark.index
    return start, node.end_mark.index


@pytest.mark.parametrize(
    "data", [data for name, data in STYLES.items() if name.startswith("several")], ids=lambda _: ""
)
def test_a_model_among_several_can_be_taken_out(data):
    whole, way = value(data), model(data)

    after = drop(File(PATH, data), way).data

    assert same(value(after), [one for one in whole if one["name"] != "m"])


@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        pytest.param(b"name: m\nprofiles: &all []\nlast: *all\n", 2, "an anchor", id="an anchor"),
        pytest.param(b"name: m\nname: n\n", 2, "the key `name` is written twice", id="a key twice"),
        pytest.param(b"name: [m\n", 2, "", id="no YAML"),
        pytest.param(b"%YAML 1.1\n---\nname: m\n", 1, "a directive", id="a directive"),
    ],
)
def test_a_file_that_does_not_say_what_it_means_is_refused_with_its_line(data, line, why):
    with pytest.raises(Refused) as refused:
        put(File(PATH, data), ("name",), "other")

    assert f"{PATH}:{line} " in refused.value.do
    assert why in refused.value.why


def test_what_cannot_be_done_without_touching_more_says_what_to_edit_by_hand():
    file = File(PATH, b"name: m\n? source\n: from: /m.gguf\n  version: v1\ncontext_length: 4\n")

    with pytest.raises(Refused) as refused:
        drop(file, ("source",))

    assert str(refused.value) == (
        "`source` was not changed\n"
        "  because what stands around it is written in an unusual way\n"
        "  next: take `source` out by hand at catalog/m.yaml:3"
    )
