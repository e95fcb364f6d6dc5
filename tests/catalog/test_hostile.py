"""Whatever a file holds, what comes out is problems: in bounded time and memory, and never an exception."""

from __future__ import annotations

import json
import time
import tracemalloc
from functools import cache

import pytest
from catalog.written import KEY, LOCK, MODEL, SERVER, as_yaml, changed
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from llmgw.catalog import schema
from llmgw.catalog.check import read_fleet, read_keys, read_lock, read_models, read_server
from llmgw.catalog.files import read_server_file
from llmgw.catalog.model import Model
from llmgw.catalog.parse import MODEL_FILE, SERVER_FILE, parse
from llmgw.catalog.shared import Shared

FULL = MODEL_FILE.bytes
LAUGHS = b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 5000))

BOMBS = {
    "a billion laughs": LAUGHS,
    "aliases only": b"a: &x 1\nb: [" + b"*x," * (FULL // 3 - 10) + b"]",
    "a merge in each of many mappings": b"a: &x {a: 1}\nb: [" + b"{<<: *x}," * (FULL // 9 - 10) + b"]",
    "deep lists": b"[" * FULL,
    "deep mappings": b"{a: " * (FULL // 4),
    "deep blocks": b"- " * (FULL // 2),
    "deep keys": b"? " * (FULL // 2),
    "deep keys in braces": b"{? " * (FULL // 3),
    "many empty lists": b"[" + b"[]," * (FULL // 3 - 1) + b"]",
    "many numbers": b"[" + b"1," * (FULL // 2 - 1) + b"]",
    "many models without anything": b"- {}\n" * (FULL // 5),
    "many models with a name": b"- name: a\n" * (FULL // 10),
    "many models with a wrong key": b"- {nam: a}\n" * (FULL // 11),
    "many unknown keys": b"".join(b"k%d:\n" % n for n in range(24_000)),
    "one key many times": b"a:\n" * (FULL // 3),
    "a long key": b"a" * (FULL - 4) + b": 1",
    "a long quoted key": b'"' + b"a" * (FULL - 8) + b'": 1',
    "a long text": b"name: " + b"a" * (FULL - 6),
    "a long number": b"name: " + b"9" * (FULL - 6),
    "a long hexadecimal number": b"name: 0x" + b"f" * (FULL - 8),
    "a long text for a duration": b"schema: 1\ncluster: a\nnode_grace: '" + b"1" * (FULL - 40) + b"'",
    "a long duration": b"schema: 1\ncluster: a\nnode_grace: " + b"1s" * (FULL // 2 - 20),
    "a long exponent": b"context_length: 1e" + b"9" * 900,
    "a number beyond any": b"context_length: 1" + b"0" * 900,
    "many anchors": b"".join(b"&a%d " % n for n in range(30_000)),
    "only quotes": b'"' * FULL,
    "only tabs": b"\t" * FULL,
    "only colons": b":" * FULL,
    "only commas": b"[" + b"," * (FULL - 1),
    "only dashes": b"-\n" * (FULL // 2),
    "only documents": b"---\n" * (FULL // 4),
    "only tags": b"!a " * (FULL // 3),
    "only exclamation marks": b"!" * FULL,
    "only directives": b"%YAML 1.2\n" * (FULL // 10),
    "only stars": b"*" * FULL,
    "only spaces, and then something": b" " * (FULL - 1) + b"a",
    "a block that begins and does not end": b"description: |\n" + b"  a\n" * (FULL // 4 - 10),
    "too much": b"#" * (FULL + 1),
    "NULs": b"\0" * FULL,
    "no UTF-8": b"\xff" * FULL,
    "UTF-16": "name: a".encode("utf-16"),
    "UTF-32": "name: a".encode("utf-32"),
    "half of a pair": b'name: "\\ud800"',
    "a byte order mark in the middle": b"name: a\xef\xbb\xbf",
    "a bell": b'name: "\\a\\e[31m"',
    "text that runs backwards": "name: \u202eedoc".encode(),
}


EVERY_WAY = ("a billion laughs", "deep blocks", "a long text", "no UTF-8", "only tags", "a number beyond any")


def read(data: bytes):
    """All problems of the four readings of a file."""
    return (
        *read_models("catalog/a.yaml", data).problems,
        *read_server(data)[1],
        *read_keys("keys/a.yaml", data).problems,
        *read_lock("locks/a.yaml", data).problems,
    )


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_hostile_file_is_a_problem_at_once(bomb):
    began = time.process_time()
    # What is read as a model goes through all of it; a few are read as the other kinds of file too.
    problems = read(BOMBS[bomb]) if bomb in EVERY_WAY else read_models("catalog/a.yaml", BOMBS[bomb]).problems
    took = time.process_time() - began

    assert problems
    assert len(problems) <= 4 * 101
    assert all(len(str(p)) < 2000 and str(p).replace("\n", "").isprintable() for p in problems)
    # One reading takes well under a second; what is quadratic in such a file takes minutes.
    assert took < 20.0


@pytest.mark.parametrize("bomb", ["a billion laughs", "many unknown keys", "a long number"])
def test_a_hostile_file_takes_little_memory(bomb):
    tracemalloc.start()
    read_models("catalog/a.yaml", BOMBS[bomb])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 64 * 1024 * 1024


def test_a_hostile_server_file_has_more_room_and_an_end_too():
    began = time.process_time()
    server, problems = read_server(b"nodes: [" + b"[]," * (SERVER_FILE.bytes // 3 - 10) + b"]")
    took = time.process_time() - began

    assert server is None
    assert problems[-1].what == "the file has too many parts"
    assert took < 60.0


PIECES = [
    *b"*a,&a ,!t ,<<: ,- ,: ,---,{,],[,},\",',\xff,\0,null,1e9,\\ud800,#,|,%,~,\t,\n,\xe2\x80\xa8".split(b","),
    b"9" * 99,
    b"",
]


@st.composite
def damaged(draw):
    """A good file with a few pieces of it replaced."""
    data = draw(
        st.sampled_from([as_yaml(MODEL), as_yaml([MODEL, MODEL]), as_yaml(SERVER), as_yaml(KEY), as_yaml(LOCK)])
    )
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, min(len(data), begin + 40)))
        data = data[:begin] + draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + data[end:]
    return data


@settings(max_examples=250, deadline=None)
@given(damaged() | st.binary() | st.text().map(str.encode))
def test_whatever_a_file_holds_only_problems_come_out(data):
    problems = read(data)
    read_fleet(
        {"server.yaml": data, "catalog/a.yaml": data, "catalog/b.yaml": data, "keys/a.yaml": data, "locks/a.yaml": data}
    )

    assert all(problem.what != "internal error" for problem in problems)
    for problem in problems:
        assert str(problem).encode("utf-8")
        assert problem.line_form().isprintable()
        assert problem.line >= 1


@cache
def editor():
    """What an editor checks a file of models with."""
    return Draft202012Validator(json.loads(schema.documents()["model.schema.json"]))


@settings(max_examples=150, deadline=None)
@given(damaged())
def test_what_is_taken_is_what_an_editor_takes(data):
    found = read_models("catalog/a.yaml", data)
    if not found.problems:
        assert list(editor().iter_errors(parse(data).value)) == []
        assert all(isinstance(entry.model, Model) for entry in found.models)


@pytest.mark.parametrize(
    "facts", [b"{layers: 1e400}", b"{experts: {a: [1]}}", b"{layers: [1, [2]]}", b"{layers: null}", b"[1]", b"{A: 1}"]
)
def test_a_lock_with_any_facts_freezes_its_own_model_and_no_other(facts):
    lock = as_yaml({**LOCK, "facts": "here"}).replace(b'"here"', facts)
    files = {"server.yaml": as_yaml(SERVER), "catalog/a.yaml": as_yaml([MODEL, OTHER]), "locks/coder.yaml": lock}

    catalog = read_fleet(files)

    assert (catalog.frozen, [entry.model.name for entry in catalog.models]) == (("coder",), ["other"])
    assert {(p.path, p.model, p.do) for p in catalog.problems} == {("locks/coder.yaml", "coder", "llmgw lock coder")}


OTHER = changed(MODEL, (("name",), "other"), (("aliases",), []))
NO_BYTES: bytes = None  # type: ignore[assignment]
"""What no file holds: reading it ends in an exception that nobody foresaw."""


@pytest.mark.parametrize(
    "read_one",
    [
        lambda: read_models("a.yaml", NO_BYTES),
        lambda: read_keys("a.yaml", NO_BYTES),
        lambda: read_lock("a.yaml", NO_BYTES),
        lambda: read_server_file(NO_BYTES),
    ],
    ids=["a model", "a key", "a lock", "server.yaml"],
)
def test_a_fault_of_ours_in_one_file_is_a_problem_of_that_file(read_one):
    (problem,) = read_one().problems

    assert (problem.what, problem.line) == ("internal error", 1)
    assert "TypeError at llmgw.catalog.parse:" in problem.why
    assert "report it" in problem.do


def test_a_model_that_we_fail_to_read_is_frozen_by_its_name():
    broken = Shared(defaults=3)  # type: ignore[arg-type]

    found = read_models("catalog/a.yaml", as_yaml(MODEL), broken)

    assert [(p.what, p.model) for p in found.problems] == [("internal error", "coder")]
    assert (found.models, found.names, found.readable) == ((), ("coder",), True)
