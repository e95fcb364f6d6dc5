"""Whether one value of a file fits its type and its rules, and everything in which it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llmgw.catalog.document import Document
from llmgw.catalog.explain import explain
from llmgw.catalog.fields import Strict
from llmgw.catalog.problem import Finding, Steps

T = TypeVar("T", bound=Strict)


def fit(
    kind: type[T], document: Document, base: Steps, rules: Callable[[T], Iterable[Finding]], most: int
) -> tuple[T | None, list[Finding]]:
    """The value at `base` as its type, or None and what is wrong with it.

    Args:
        kind: what it should be.
        document: the file it is in.
        base: the way to it.
        rules: what is wrong with one that fits the type, by ways that begin at it.
        most: findings wanted.
    """
    raw = document.value_at(base)
    try:
        value = _validated(kind, raw)
    except ValidationError as error:
        # A hostile file has tens of thousands of them.
        flaws = error.errors(include_url=False)[:most]
        found = [*explain(kind, flaws, document, base), *_others(kind, raw, flaws, base, rules)]
        return None, found[:most]
    found = _findings(value, base, rules)
    return (None if found else value), found[:most]


def _validated(kind: type[T], raw: Any) -> T:
    # `class_` is how Python spells the field, and no key of a file.
    return kind.model_validate(raw, by_name=False)


def _findings(value: T, base: Steps, rules: Callable[[T], Iterable[Finding]]) -> list[Finding]:
    return [finding._replace(at=(*base, *finding.at)) for finding in rules(value)]


def _others(
    kind: type[T], raw: Any, flaws: Sequence[ErrorDetails], base: Steps, rules: Callable[[T], Iterable[Finding]]
) -> list[Finding]:
    """What the rules find in the rest of a value that does not fit, so that it is said in the same run."""
    refused: list[Steps] = [flaw["loc"] for flaw in flaws]
    try:
        rest = _validated(kind, _without(raw, refused))
    except ValidationError:
        return []
    touched = [(*base, *at) for at in refused]
    return [f for f in _findings(rest, base, rules) if not any(_touch(f.at, at) for at in touched)]


def _touch(one: Steps, other: Steps) -> bool:
    """Whether one is on the way to the other."""
    return one[: len(other)] == other[: len(one)]


def _without(raw: Any, refused: Iterable[Steps]) -> Any:
    """A copy without what was refused."""
    copy = deepcopy(raw)
    for at in refused:
        here, holder, key = copy, None, None
        for step in at:
            if isinstance(here, dict) and step in here:
                holder, key, here = here, step, here[step]
            elif isinstance(here, list) and isinstance(step, int) and step < len(here):
                here = here[step]
            else:
                # A key that is missing, or one whose value is out already.
                break
        else:
            if holder:
                holder.pop(key)
    return copy
