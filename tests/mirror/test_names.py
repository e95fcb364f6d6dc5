"""Which names a version and its files may have."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog import fields
from llmgw.mirror import names


def problems(*paths: str) -> list[str]:
    return [problem for _, problem in names.path_problems(paths)]


@pytest.mark.parametrize(
    "path",
    [
        "model.gguf",
        "model-00001-of-00002.safetensors",
        "1_Pooling/config.json",
        "a/b/c/d.json",
        "C++.txt",
        "-x.gguf",
        "x" * 200,
    ],
)
def test_names_that_real_repositories_use_are_taken(path: str):
    assert problems(path) == []


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="empty"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("../x", id="up"),
        pytest.param("a/../../x", id="up on the way"),
        pytest.param("a/./x", id="here"),
        pytest.param("a//x", id="an empty part"),
        pytest.param("a/", id="a folder"),
        pytest.param("a\\x", id="backslash"),
        pytest.param("C:x", id="drive letter"),
        pytest.param("x\0", id="NUL"),
        pytest.param("x\n", id="a line's end"),
        pytest.param("x\x1b[2J", id="control characters"),
        pytest.param("x\u202egguf", id="turned writing direction"),
        pytest.param("%2e%2e/x", id="percent"),
        pytest.param("x.", id="trailing dot"),
        pytest.param(".hidden", id="hidden"),
        pytest.param("a/.hidden", id="hidden below"),
        pytest.param("_incoming", id="the mirror's own"),
        pytest.param("modèle.gguf", id="not ASCII"),
        pytest.param("a b", id="a space"),
        pytest.param("x" * 201, id="too long"),
        pytest.param("a/b/c/d/e", id="too deep"),
    ],
)
def test_a_name_that_means_more_than_itself_is_refused(path: str):
    (problem,) = problems(path)

    assert problem.isprintable()
    assert problem.isascii()


def test_every_problem_is_said():
    assert problems("a.gguf", "../x", "A.gguf", "a.gguf/x") == [
        "file '../x': each part of its path is made of letters, digits, dot, dash, plus and underscore, "
        "and begins with neither dot nor underscore",
        "file 'A.gguf': 'a.gguf' is the same where case does not count",
        "file 'a.gguf/x': 'a.gguf' is a file, and cannot be a folder too",
    ]


def test_more_files_than_a_version_may_have_are_counted():
    assert problems(*map(str, range(10_001))) == ["there are 10001 files, and a version has at most 10000"]


def test_the_pattern_of_models_and_versions_is_the_catalogs():
    assert names.NAME == fields.NAME


@pytest.mark.parametrize("name", ["a", "qwen3-coder-30b", "2026-11", "0.1_x", "x" * 63])
def test_names_of_models_are_those_of_the_catalog(name: str):
    assert list(names.name_problems(name, name)) == []


@pytest.mark.parametrize("name", ["", "A", ".a", "_incoming", "-a", "a/b", "..", "x" * 64, "a\n", "é"])
def test_other_names_are_refused_twice_where_both_are_wrong(name: str):
    assert [problem.partition(" ")[0] for problem in names.name_problems(name, name)] == ["name", "version"]


@given(st.lists(st.text(alphabet="aA.b/_-\\\0%é", max_size=12), max_size=6))
def test_what_is_taken_stays_inside_and_apart(paths: list[str]):
    if problems(*paths):
        return
    for path in paths:
        assert os.path.normpath(path) == path
        assert not PurePosixPath(path).is_absolute()
        assert not any(part.startswith((".", "_")) for part in PurePosixPath(path).parts)
    assert len({path.casefold() for path in paths}) == len(paths)
    assert not any(a.casefold().startswith(b.casefold() + "/") for a in paths for b in paths)
