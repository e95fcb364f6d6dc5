"""Where a new line goes, how it is written, and what goes with one that is taken out."""

from __future__ import annotations

import pytest

from llmgw.catalog.edit import File, append, drop, put

PATH = "catalog/m.yaml"
ORDER = ("name", "state", "source", "profiles")


def after(done):
    return done.data.decode()


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param("name: m\nsource: s\n", "name: m\nstate: dry\nsource: s\n", id="behind what comes before it"),
        pytest.param("source: s\nname: m\n", "source: s\nname: m\nstate: dry\n", id="and people keep their own order"),
        pytest.param("source: s\nowner: o\n", "source: s\nowner: o\nstate: dry\n", id="at the end where none is there"),
        pytest.param("name: m  # why\nsource: s\n", "name: m  # why\nstate: dry\nsource: s\n", id="below a comment"),
        pytest.param(
            "name: m\n# of the source\nsource: s\n",
            "name: m\nstate: dry\n# of the source\nsource: s\n",
            id="above a comment of the next key",
        ),
        pytest.param("name: m\n\nsource: s\n", "name: m\nstate: dry\n\nsource: s\n", id="above an empty line"),
        pytest.param(
            "name:\n  m\n  # more of the name\n\n  # and more\n\nsource: s\n",
            "name:\n  m\n  # more of the name\n\n  # and more\nstate: dry\n\nsource: s\n",
            id="below comments that are indented",
        ),
        pytest.param("name: m", "name: m\nstate: dry", id="without a last line end"),
        pytest.param("name: m\r\nsource: s", "name: m\r\nstate: dry\r\nsource: s", id="with the line end of its line"),
        pytest.param("a: 1\r\nname: m", "a: 1\r\nname: m\r\nstate: dry", id="or that of the file"),
        pytest.param("{name: m, source: s}\n", "{name: m, state: dry, source: s}\n", id="in braces"),
        pytest.param("{source: s, owner: o}\n", "{source: s, owner: o, state: dry}\n", id="at the end of braces"),
        pytest.param("{name: m,source: s}\n", "{name: m,state: dry,source: s}\n", id="with the comma of the others"),
        pytest.param(
            "{\n  name: m,\n  source: s\n}\n", "{\n  name: m,\n  state: dry,\n  source: s\n}\n", id="on its own line"
        ),
        pytest.param(
            "{\n  name: m,  # why\n}\n", "{\n  name: m,  # why\n  state: dry,\n}\n", id="with a last comma as before"
        ),
        pytest.param("{\n  name: m  # why\n}\n", "{\n  name: m,  # why\n  state: dry\n}\n", id="without one as before"),
        pytest.param('{"name":"m"}', '{"name":"m", "state": "dry"}', id="in the quotes of JSON"),
        pytest.param('"name": m\n', '"name": m\n"state": dry\n', id="a key in quotes where all are"),
        pytest.param(
            "name:   m\nsource: s\n", "name:   m\nstate: dry\nsource: s\n", id="one space where values differ"
        ),
        pytest.param("name:   m\nbeta:   s\n", "name:   m\nstate:   dry\nbeta:   s\n", id="as many where they do not"),
    ],
)
def test_a_new_key_is_written(before, expected):
    assert after(put(File(PATH, before.encode()), ("state",), "dry", order=ORDER)) == expected


@pytest.mark.parametrize(
    ("before", "item", "expected"),
    [
        pytest.param("l:\n  - a\n", "b", "l:\n  - a\n  - b\n", id="as an item"),
        pytest.param("l:\n- a\n# end\n", "b", "l:\n- a\n- b\n# end\n", id="at the dash of the others"),
        pytest.param("l:\n  -   a\n", "b", "l:\n  -   a\n  -   b\n", id="with the spaces of the others"),
        pytest.param("l:\n  - 'a'\n", "b", "l:\n  - 'a'\n  - 'b'\n", id="in the quotes of the others"),
        pytest.param("l:\n  - 'a'\n  - c\n", "b", "l:\n  - 'a'\n  - c\n  - b\n", id="in none where they differ"),
        pytest.param("l: [a]\n", "b", "l: [a, b]\n", id="in brackets"),
        pytest.param("l: [ a ]\n", "b", "l: [ a, b ]\n", id="in brackets with spaces"),
        pytest.param("l: []\n", "b", "l: [b]\n", id="in empty brackets"),
        pytest.param("l:\nx: 1\n", "b", "l: [b]\nx: 1\n", id="where nothing is written"),
        pytest.param("x: 1\n", "b", "x: 1\nl: [b]\n", id="where no list is"),
        pytest.param("x:\n  - 1\n", "b", "x:\n  - 1\nl:\n  - b\n", id="in a new list as the file's others are"),
        pytest.param("x:\n    - 1\n", "b", "x:\n    - 1\nl:\n    - b\n", id="indented as they are"),
        pytest.param("l:\n  - {k: a}\n", {"k": "b"}, "l:\n  - {k: a}\n  - {k: b}\n", id="a mapping as the others are"),
        pytest.param(
            "l:\n  - k: a\n    m: {x: 1}\n",
            {"k": "b", "m": {"x": 2}},
            "l:\n  - k: a\n    m: {x: 1}\n  - k: b\n    m: {x: 2}\n",
            id="and what is in it as well",
        ),
        pytest.param(
            "l:\n    -   k: a\n        m:\n            x: '1'\n",
            {"k": "b", "m": {"x": "2"}},
            "l:\n    -   k: a\n        m:\n            x: '1'\n    -   k: b\n        m:\n            x: '2'\n",
            id="with the file's indentation",
        ),
    ],
)
def test_a_new_item_is_written(before, item, expected):
    assert after(append(File(PATH, before.encode()), ("l",), item)) == expected


@pytest.mark.parametrize(
    ("before", "way", "expected"),
    [
        pytest.param("a: 1\nb: 2  # two\nc: 3\n", ("b",), "a: 1\nc: 3\n", id="a line with its comment"),
        pytest.param("a: 1\n# of b\nb: 2\n", ("b",), "a: 1\n# of b\n", id="and not the comment above it"),
        pytest.param("a: 1\nb:\n  - x\n\n  - y\n\nc: 3\n", ("b",), "a: 1\n\nc: 3\n", id="all lines of a block"),
        pytest.param("a: 1\nb: 2", ("b",), "a: 1", id="the last line without an end"),
        pytest.param("a: 1\r\nb: 2", ("b",), "a: 1", id="and its line end of two characters"),
        pytest.param("- a: 1\n  b: 2\n", (0, "a"), "- b: 2\n", id="the key beside a dash"),
        pytest.param("- a: 1\n  # of b\n  b: 2\n", (0, "a"), "- \n  # of b\n  b: 2\n", id="where a comment follows"),
        pytest.param("a:\n  b: 1\n", ("a", "b"), "a: {}\n", id="the only key"),
        pytest.param("a:   # why\n  - b\nc: 1\n", ("a", 0), "a: []   # why\nc: 1\n", id="the only item"),
        pytest.param("{a: 1, b: 2, c: 3}", ("a",), "{b: 2, c: 3}", id="the first in braces"),
        pytest.param("{a: 1, b: 2, c: 3}", ("b",), "{a: 1, c: 3}", id="one among others"),
        pytest.param("{a: 1, b: 2, c: 3, }", ("c",), "{a: 1, b: 2, }", id="the last"),
        pytest.param("# a\n- a\n# of b\n# too\n- b\n# c\n- c\n", (1,), "# a\n- a\n# c\n- c\n", id="and its heading"),
        pytest.param("# team\n\n# a\n- a\n- b\n", (0,), "# team\n\n- b\n", id="and not what an empty line parts"),
        pytest.param("- a\n  # of a\n- b\n", (1,), "- a\n  # of a\n", id="nor what is indented below another"),
        pytest.param("# a\r\n- a\r\n# b\r\n- b", (1,), "# a\r\n- a", id="with line ends of two characters"),
        pytest.param(
            "# yaml-language-server: $schema=x\n# a\n- a\n- b\n",
            (0,),
            "# yaml-language-server: $schema=x\n- b\n",
            id="nor what editors read",
        ),
        pytest.param("x: [\n  a,\n  b,  # two\n  c\n]\n", ("x", 1), "x: [\n  a,\n  c\n]\n", id="its own line"),
        pytest.param(
            "x: [\n  a,  # one\n  b   # two\n]\n", ("x", 1), "x: [\n  a  # one\n]\n", id="the last one's line and comma"
        ),
        pytest.param("x: [\n  a,\n  b,\n]\n", ("x", 1), "x: [\n  a,\n]\n", id="and the last comma stays"),
        pytest.param("x: [\n  a,\n]\n", ("x", 0), "x: []\n", id="the only one of several lines"),
    ],
)
def test_what_is_taken_out(before, way, expected):
    assert after(drop(File(PATH, before.encode()), way)) == expected


@pytest.mark.parametrize(
    ("before", "new", "expected"),
    [
        pytest.param("a: x  # why\n", "w", "a: w  # why\n", id="plain"),
        pytest.param("a: 'x'\n", "it's", "a: 'it''s'\n", id="in the quotes it had"),
        pytest.param('a: "x"\n', "y", 'a: "y"\n', id="in the other quotes it had"),
        pytest.param("a: 'x'\n", 7, "a: 7\n", id="a number needs none"),
        pytest.param("a: 7\n", "7", 'a: "7"\n', id="and text that looks like one does"),
        pytest.param("a: x\n", "yes", 'a: "yes"\n', id="nor are words left that others take for true"),
        pytest.param("a:  # why\n", "w", "a: w  # why\n", id="where nothing was"),
        pytest.param("a: >-  # why\n  x\n  y\nb: 1\n", "w", "a: w  # why\nb: 1\n", id="one line for a block"),
        pytest.param("a: >-\n    x\nb: 1\n", "y\nz", "a: |-\n    y\n    z\nb: 1\n", id="a block for a block"),
        pytest.param("a: x\n  y\nb: 1\n", "z", "a: z\nb: 1\n", id="one line for several"),
        pytest.param("a: [x, y]  # why\n", ["x", "z"], "a: [x, z]  # why\n", id="the item that differs"),
        pytest.param("a:\n  - x  # 1\n  - y  # 2\n", ["y"], "a:\n  - y  # 2\n", id="the items that stay, untouched"),
        pytest.param(
            "a:\n  - x  # 1\n  - z  # 2\n", ["x", "w", "z"], "a:\n  - x  # 1\n  - w\n  - z  # 2\n", id="one between"
        ),
        pytest.param("a: {x: 1, y: 2}  # w\n", {"y": 3, "z": 4}, "a: {y: 3, z: 4}  # w\n", id="the keys that differ"),
        pytest.param("a: 1\n", {"x": [1, {"w": 2}]}, "a: {x: [1, {w: 2}]}\n", id="a mapping for a number"),
        pytest.param('{"a": 1}', ["x", {"y": "z"}], '{"a": ["x", {"y": "z"}]}', id="all text in quotes as in JSON"),
        pytest.param('{"a": ["x", 1]}', ["x", 1, "y"], '{"a": ["x", 1, "y"]}', id="beside a number as well"),
    ],
)
def test_another_value(before, new, expected):
    assert after(put(File(PATH, before.encode()), ("a",), new)) == expected
