"""A file is read as it says, with the place of each part; what would make it say something else is refused there."""

from __future__ import annotations

import pytest

from llmgw.catalog.parse import MOST_FINDINGS, Limits, parse
from llmgw.catalog.problem import Place

FILE = b"""\
# a comment
name: coder
profiles:
  - name: gpu
    replicas: 7
  - {name: cpu, replicas: "4"}
"""


def found(text: str | bytes) -> list[tuple[int, int, str]]:
    """Line, column and what, of every finding."""
    document = parse(text if isinstance(text, bytes) else text.encode())
    return [(*(f.place or document.place(f.at)), f.what) for f in document.findings]


def test_a_file_is_a_plain_value():
    document = parse(FILE)

    assert document.value == {
        "name": "coder",
        "profiles": [{"name": "gpu", "replicas": 7}, {"name": "cpu", "replicas": "4"}],
    }
    assert (document.findings, document.whole) == ((), True)


@pytest.mark.parametrize(
    ("at", "value", "key"),
    [
        ((), (2, 1), (2, 1)),
        (("name",), (2, 7), (2, 1)),
        (("profiles",), (4, 3), (3, 1)),
        (("profiles", 0), (4, 5), (4, 5)),
        (("profiles", 0, "replicas"), (5, 15), (5, 5)),
        (("profiles", 1, "replicas"), (6, 27), (6, 17)),
    ],
)
def test_every_key_and_value_has_its_place(at, value, key):
    document = parse(FILE)

    assert (document.place(at), document.key_place(at)) == (value, key)


def test_the_place_of_what_is_not_there_is_the_nearest_thing_around_it():
    document = parse(FILE)

    assert document.place(("profiles", 1, "priority", "x")) == document.place(("profiles", 1))
    assert document.place(("profiles", 7)) == document.place(("profiles",))
    assert parse(b"").place(("name",)) == Place(1, 1)


def test_what_is_written_is_known_beside_what_it_stands_for():
    document = parse(b"version: 1.10")

    assert (document.value, document.raw(("version",)), document.raw(())) == ({"version": 1.1}, "1.10", None)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_editors_do(end):
    assert parse(end.join(["a: 1", "", "b: 2"]).encode()).place(("b",)) == (3, 4)


def test_a_byte_order_mark_is_passed_over():
    document = parse(b"\xef\xbb\xbfname: coder")

    assert (document.value, document.place(("name",))) == ({"name": "coder"}, (1, 7))


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "---\n...\n"])
def test_an_empty_file_is_nothing(text):
    assert (parse(text.encode()).value, found(text)) == (None, [])


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param("a: 1\na: 2", [(2, 1, "the key `a` is written twice")], id="a key that is there twice"),
        pytest.param('a: 1\n"a": 2', [(2, 1, "the key `a` is written twice")], id="however it is quoted"),
        pytest.param("a: &x 1", [(1, 4, "an anchor `&x` is in the file")], id="an anchor nobody uses"),
        pytest.param(
            "a: &x 1\nb: *x",
            [(1, 4, "an anchor `&x` is in the file"), (2, 4, "an alias `*x` is in the file")],
            id="an alias",
        ),
        pytest.param("*x : 1", [(1, 1, "a key is an alias")], id="an alias for a key"),
        pytest.param("a:\n  <<: {b: 1}", [(2, 3, "a merge key `<<` is in the file")], id="a merge key"),
        pytest.param("a: !!str 1", [(1, 4, "a tag `!!str` is in the file")], id="a tag"),
        pytest.param("a: ! x", [(1, 4, "a tag `!` is in the file")], id="a tag that says nothing"),
        pytest.param("a: !x {}", [(1, 4, "a tag `!x` is in the file")], id="a tag of a mapping"),
        pytest.param(
            "a: !!python/object/apply:os.system [ls]",
            [(1, 4, "a tag `!!python/object/apply:os.system` is in the file")],
            id="a tag that wants a program run",
        ),
        pytest.param("%YAML 1.1\n---\na: 1", [(1, 1, "a directive is in the file")], id="a directive"),
        pytest.param("a: 1\n---\nb: 2", [(2, 1, "a second document begins")], id="a second document"),
        pytest.param("1: a", [(1, 1, "the key `1` is not text")], id="a number for a key"),
        pytest.param("true: a", [(1, 1, "the key `true` is not text")], id="a boolean for a key"),
        pytest.param("? \n: a", [(1, 2, "a key is empty")], id="nothing for a key"),
        pytest.param("? [a]\n: b", [(1, 3, "a key is a list or a mapping")], id="a list for a key"),
        pytest.param('a: "\\e[2J"', [(1, 4, "the text has a control character")], id="an escape for terminals"),
        pytest.param("a: b: c", [(1, 5, "this is not YAML")], id="two colons"),
        pytest.param("a: [1, 2", [(2, 1, "this is not YAML")], id="an open list"),
        pytest.param("a:\n\t- b", [(2, 1, "this is not YAML")], id="a tab"),
        pytest.param("a: 1\n  b: 2", [(2, 4, "this is not YAML")], id="a wrong indentation"),
        pytest.param("a: 'b", [(1, 6, "this is not YAML")], id="an open quote"),
        pytest.param(b"a: \xff", [(1, 4, "the file is not UTF-8")], id="a byte that is no text"),
        pytest.param(b"a: b\nc: \xed\xa0\x80", [(2, 4, "the file is not UTF-8")], id="half a surrogate pair"),
        pytest.param("name: a".encode("utf-16"), [(1, 1, "the file is not UTF-8")], id="UTF-16"),
        pytest.param(b"a: b\0", [(1, 5, "the file is not text")], id="a NUL"),
        pytest.param("a: b\u2028c: d", [(1, 5, "the file is not text")], id="a line break only YAML 1.1 knows"),
        pytest.param("a: 1" + "0" * 2000, [(1, 4, "a number of 2001 characters is written")], id="a long number"),
    ],
)
def test_what_would_make_a_file_say_something_else_is_refused_where_it_stands(text, problems):
    assert found(text) == problems


def test_a_quoted_merge_key_is_a_key_like_any_other():
    assert (parse(b'"<<": 1').value, found('"<<": 1')) == ({"<<": 1}, [])


def test_reading_goes_on_after_what_can_be_passed_over():
    assert [what for _, _, what in found("a: &x 1\na: 2\nb: *x\n1: 2\nc: !t 3")] == [
        "an anchor `&x` is in the file",
        "the key `a` is written twice",
        "an alias `*x` is in the file",
        "the key `1` is not text",
        "a tag `!t` is in the file",
    ]


def test_a_file_that_ends_in_the_middle_is_known_until_there():
    document = parse(b"name: coder\nprofiles:\n  - name: gpu\n    replicas: [}")

    assert (document.value, document.whole) == (
        {"name": "coder", "profiles": [{"name": "gpu", "replicas": []}]},
        False,
    )


@pytest.mark.parametrize(
    ("text", "limits", "what"),
    [
        ("a: b", Limits(bytes=3), "the file is too large"),
        ("[a, b, c]", Limits(nodes=3), "the file has too many parts"),
        ("[[a]]", Limits(depth=1), "the file is too deep"),
    ],
)
def test_a_file_has_limits_and_one_at_them_is_read(text, limits, what):
    over = parse(text.encode(), limits)
    at = parse(text.encode(), Limits(*(limit + 1 for limit in limits)))

    assert ([f.what for f in over.findings], over.whole) == ([what], False)
    assert (at.findings, at.whole) == ((), True)


def test_a_file_of_nothing_but_problems_is_left_after_a_hundred():
    document = parse(b"x: &x 1\n" + b"".join(b"k%d: *x\n" % n for n in range(5000)))

    assert len(document.findings) == MOST_FINDINGS + 1
    assert (document.findings[-1].what, document.whole) == ("the rest of the file is not read", False)


def test_every_finding_ends_in_what_to_do():
    for text in (
        "a: *x",
        "a: b: c",
        "a: @x",
        "a\nb: c",
        "a: [}",
        "a: |x",
        "%X\n---\n",
        "- a\nb: c",
        "a: - b",
        "&",
        '"\\q"',
    ):
        document = parse(text.encode())
        assert document.findings, text
        assert all(f.what and f.why and f.do for f in document.findings), document.findings
