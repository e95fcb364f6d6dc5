"""One thing changed in a piece of code: what a careless edit might do, and a test should notice."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CALLS = {"sorted": "list", "min": "max", "max": "min", "any": "all", "all": "any"}

Change = Callable[[ast.AST], bool]
"""Changes a node where it is of its kind, and says whether it was."""


class Mutation(NamedTuple):
    """One change of one tree."""

    line: int
    words: str
    nth: int
    """Of the tree's nodes, in the order they are walked in."""


def mutations(text: str) -> list[Mutation]:
    """Every change of a module that could make it decide differently."""
    found = []
    for nth, node in enumerate(_nodes(ast.parse(text))):
        for words, change in CHANGES:
            if change(node):
                found.append(Mutation(getattr(node, "lineno", 0), words, nth))
                break
    return found


def mutated(text: str, mutation: Mutation) -> ast.Module:
    """The module with one change."""
    tree = ast.parse(text)
    node = next(n for nth, n in enumerate(_nodes(tree)) if nth == mutation.nth)
    dict(CHANGES)[mutation.words](node)
    return ast.fix_missing_locations(tree)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    # Listed before any is changed: a change must not shift the number of those after it.
    nodes = list(ast.walk(tree))
    # Types, and what classes are made with (frozen, ordered), are checked by others and decide nothing.
    notes = [n for node in nodes for n in (getattr(node, "annotation", None), getattr(node, "returns", None)) if n]
    notes += [k for node in nodes if isinstance(node, ast.ClassDef) for k in (*node.keywords, *node.decorator_list)]
    skipped = {id(n) for note in notes for n in ast.walk(note)}
    return (n for n in nodes if id(n) not in skipped)


def _comparison(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        node.ops = [COMPARISONS[type(node.ops[0])]()]
        return True
    return False


def _junction(node: ast.AST) -> bool:
    if isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        return True
    return False


def _negation(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        return True
    return False


def _sum(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return True
    return False


def _truth(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
        return True
    return False


def _number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        node.value += 1
        return True
    return False


def _branch(node: ast.AST) -> bool:
    if isinstance(node, ast.If | ast.IfExp):
        node.test = ast.Constant(value=False)
        return True
    return False


def _statement(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):
        node.value = ast.Constant(value=0)
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        node.value = ast.Constant(value=None)
        return True
    return False


def _call(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        node.func.id = CALLS[node.func.id]
        if node.func.id == "list":
            node.keywords = []
        return True
    return False


CHANGES: tuple[tuple[str, Change], ...] = (
    ("comparison turned round", _comparison),
    ("and for or, or for and", _junction),
    ("not left out", _negation),
    ("minus for plus, plus for minus", _sum),
    ("the other truth", _truth),
    ("one more", _number),
    ("never taken", _branch),
    ("left out", _statement),
    ("another function", _call),
)
