"""Whatever a file says and however it is laid out: an edit changes what was asked, and an edit taken back is none."""

from __future__ import annotations

from copy import deepcopy

import yaml
from catalog.styles import STYLES
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.catalog.edit import File, append, drop, put, same
from llmgw.catalog.parse import parse
from llmgw.errors import Refused

COSTLY = settings(max_examples=settings().max_examples * 4 // 15)
"""Each example edits a file several times over: 400 of them in CI find what 1,500 do."""

PATH = "catalog/m.yaml"

keys = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda k: k not in {"y", "n", "no", "on", "null"})
words = st.text(st.characters(blacklist_categories=["C", "Z"]) | st.just(" "), max_size=30)
scalars = st.one_of(st.integers(-(10**6), 10**6), st.booleans(), st.none(), words)
values = st.recursive(scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(keys, v, max_size=4), max_leaves=12)


def read(data):
    document = parse(data)
    assert document.findings == ()
    return document.value


def ways(value, at=()):
    """The way to every value in one."""
    yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in parts:
        yield from ways(part, (*at, step))


def with_(whole, way, new):
    whole = deepcopy(whole)
    if not way:
        return new
    holder = whole
    for step in way[:-1]:
        holder = holder[step]
    holder[way[-1]] = new
    return whole


@st.composite
def files(draw):
    """A file of any content, as a writer of YAML lays it out, with comments put in."""
    value = draw(st.dictionaries(keys, values, min_size=1, max_size=6))
    text = yaml.safe_dump(
        value,
        default_flow_style=draw(st.sampled_from([True, False, None])),
        indent=draw(st.sampled_from([2, 4, 7])),
        width=draw(st.sampled_from([20, 80, 10_000])),
        allow_unicode=draw(st.booleans()),
        sort_keys=False,
    )
    lines = text.splitlines()
    if draw(st.booleans()):
        lines = ["# before", *lines, "# after"]
    text = draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n"]))
    data = text.encode()
    document = parse(data)
    # Where the writer is of YAML 1.1 it may leave text unquoted that is none in 1.2: the file says what it says.
    return None if document.findings else data


@COSTLY
@given(files().filter(bool), st.data())
def test_an_edit_changes_the_value_that_was_asked_or_is_refused(data, draw):
    before = read(data)
    way = draw.draw(st.sampled_from([way for way in ways(before) if way]))
    new = draw.draw(values)

    try:
        after = put(File(PATH, data), way, new)
    except Refused:
        return

    assert same(read(after.data), with_(before, way, new))


@COSTLY
@given(files().filter(bool), keys, values)
def test_a_key_added_and_taken_out_leaves_the_bytes(data, key, new):
    before = read(data)
    if key in before:
        return

    try:
        added = put(File(PATH, data), (key,), new)
    except Refused:
        return

    assert same(read(added.data), {**before, key: new})
    assert drop(added, (key,)).data == data


@COSTLY
@given(files().filter(bool), st.data())
def test_taking_out_leaves_all_else_as_it_was(data, draw):
    before = read(data)
    way = draw.draw(st.sampled_from([way for way in ways(before) if way]))
    wanted = deepcopy(before)
    holder = wanted
    for step in way[:-1]:
        holder = holder[step]
    del holder[way[-1]]

    try:
        after = drop(File(PATH, data), way)
    except Refused:
        return

    assert same(read(after.data), wanted)


@COSTLY
@given(st.sampled_from(sorted(STYLES)), values)
def test_in_every_style_any_value_can_be_written_and_taken_back(name, new):
    data = STYLES[name]
    whole = read(data)
    base = () if isinstance(whole, dict) else (next(i for i, one in enumerate(whole) if one["name"] == "m"),)

    added = put(File(PATH, data), (*base, "new"), new)

    assert drop(added, (*base, "new")).data == data


BLOCKS = ["plain", "deep", "lists at the key's column", "indented by four", "lists indented by four, mappings by two"]


@COSTLY
@given(st.sampled_from(BLOCKS), st.dictionaries(keys, values, min_size=1, max_size=5))
def test_items_are_added_and_taken_out_in_block_style(name, new):
    file = File(PATH, STYLES[name])
    count = len(read(file.data)["profiles"])

    added = append(file, ("profiles",), new)

    assert same(read(added.data)["profiles"][count], new)
    assert drop(added, ("profiles", count)).data == file.data


PIECES = [
    *("a: 1", "b:", "- x", "- - y", "-", "? k", ": v", "{a: 1}", "[1, 2]", "[", "]", "{", "}", ",", ", ", ": "),
    *("\n", "\r\n", "\n  ", "\n    ", "\n- ", "\n  - ", "  ", "\t", " # c", "#d", "---\n", "...", "~", "'q'", '"d"'),
    *("|\n   lit", "|+\n  l\n\n", ">-\n  f", "c: |2\n    x\n", "e: [a,\n  b]", "m: {x: 1,\n  y: 2, # c\n}\n", "é🦀"),
]


@COSTLY
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=9), st.data())
def test_whatever_is_read_is_edited_as_asked_or_refused(pieces, draw):
    data = "".join(pieces).encode()
    document = parse(data)
    if document.findings or not isinstance(document.value, dict | list) or not document.value:
        return
    way = draw.draw(st.sampled_from([way for way in ways(document.value) if way]))
    new = draw.draw(st.sampled_from(["text", 7, {"k": [1, {"n": "x y"}], "t": "two\nlines"}, ["a", "b"], [], {}]))

    try:
        after = put(File(PATH, data), way, new)
    except Refused:
        return

    assert same(read(after.data), with_(document.value, way, new))
