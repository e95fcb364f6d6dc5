"""The changes that `make mutants` makes of the core."""

import ast

import pytest

from bench.mutations import mutated, mutations


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("x = a < b", ["x = a <= b"], id="a comparison"),
        pytest.param("x = a and b", ["x = a or b"], id="and"),
        pytest.param("x = not a", ["x = not not a"], id="not"),
        pytest.param("x = a + b", ["x = a - b"], id="a sum"),
        pytest.param("x = True", ["x = False"], id="a truth"),
        pytest.param("x = 1", ["x = 2"], id="a number"),
        pytest.param("x = a if b else c", ["x = a if False else c"], id="a branch"),
        pytest.param("f(a)", ["None"], id="a call for its effect"),
        pytest.param("x = sorted(a, key=b)", ["x = list(a)"], id="an order"),
        pytest.param("x: Literal[1] = a", [], id="an annotation decides nothing"),
        pytest.param("class A(B, frozen=True):\n    pass", [], id="nor does what a class is made with"),
        pytest.param("x = a + 1", ["x = a - 1", "x = a + 2"], id="one change at a time"),
    ],
)
def test_a_mutant_is_the_code_with_one_thing_changed(before, after):
    assert [ast.unparse(mutated(before, m)) for m in mutations(before)] == after
